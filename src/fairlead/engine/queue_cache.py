"""The queues as one engine knows them: read about once a second when it is used.

So a change takes effect everywhere on the first claim or submit a second after it, at the latest. One small record is
rung at every change, so that most looks cost one read; all are read now and then even if it was not rung.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from fairlead.core.errors import StoreError
from fairlead.core.instant import MINUTE, SECOND, Span
from fairlead.core.limits import Limits
from fairlead.core.order import Table
from fairlead.core.queue import QueueSettings, effective
from fairlead.core.settings import Settings
from fairlead.core.task import Lane
from fairlead.engine import breakers
from fairlead.engine.breakers import BELL as BELL
from fairlead.engine.breakers import Breakers
from fairlead.engine.clock import Clock
from fairlead.storage.protocol import Store
from fairlead.storage.values import Record

KIND: Final = "queue"
"""The kind of record that a queue's settings are."""
TYPE_KIND: Final = "type"
"""The kind of record that says of a task type that it is paused."""

FRESH: Final[Span] = SECOND
"""How long what was read is used without another look."""
SOON: Final[Span] = FRESH // 10
"""How long before it is due a look is taken by whoever has the time."""

_RESCAN: Final[Span] = MINUTE
"""How often all is read even if nobody rang: signals are hints."""
_OUTAGE_PAUSE: Final[Span] = 5 * SECOND

_decode: Final = msgspec.msgpack.Decoder(QueueSettings).decode


class QueueBook:
    """The queues as one engine knows them."""

    def __init__(self, store: Store, settings: Settings, clock: Clock, breakers: Breakers) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._breakers = breakers
        self._looked_at: Span | None = None
        self._read_at: Span | None = None
        self._rung: int | None = None
        self._effective: dict[str, Settings] = {}
        self._tables: dict[str, Table] = {}
        self._table = _table(settings)
        self.paused: frozenset[str] = frozenset()
        """The queues that are paused."""
        self.paused_types: frozenset[str] = frozenset()
        """The task types that are paused, in whatever queue."""
        self.limits: dict[str, Limits] = {}
        """The limits of the queues that have any of their own."""
        self.looks = 0
        """How often the store was asked."""

    @property
    def stale(self) -> bool:
        """Whether it is time to look again."""
        return self.fresh_for <= 0

    @property
    def fresh_for(self) -> Span:
        """How much longer what was read is used without another look."""
        return 0 if self._looked_at is None else self._looked_at + FRESH - self._clock.monotonic()

    async def refresh(self, ahead: Span = 0) -> None:
        """Look whether anything has changed, if that is due by then. Who comes meanwhile does not wait for it.

        While the store cannot be read, what was last known holds.
        """
        if self.fresh_for > ahead:
            return
        first = self._looked_at is None
        if not first:
            self._looked_at = self._clock.monotonic()
        try:
            await self._look()
        except StoreError:
            # What the caller is about to do meets the same error, or can be done without knowing more.
            self._looked_at = self._clock.monotonic() + _OUTAGE_PAUSE - FRESH
        else:
            self._looked_at = self._clock.monotonic() if first else self._looked_at

    def expire(self) -> None:
        """Have the next use read everything: something was changed here."""
        self._looked_at = self._rung = None

    def settings_of(self, queue: str) -> Settings:
        """The settings as they are for a queue."""
        return self._effective.get(queue, self._settings)

    def table_of(self, queue: str) -> Table:
        """How the wait of a queue's tasks counts."""
        return self._tables.get(queue, self._table)

    @property
    def bounded(self) -> bool:
        """Whether any queue may have a bound."""
        return bool(self._effective) or self._settings.queue_bound is not None

    def bounds_of(self, queues: Collection[str]) -> dict[str, int]:
        """The bounds of those queues that have one."""
        bounds = {queue: self.settings_of(queue).queue_bound for queue in queues}
        return {queue: bound for queue, bound in bounds.items() if bound is not None}

    def withheld(self, lane: Lane) -> bool:
        """Whether the tasks of a lane wait because someone paused them, or because their type keeps failing."""
        return lane.queue in self.paused or lane.type in self.paused_types or self._breakers.holds(lane.type)

    @property
    def excluded_types(self) -> frozenset[str]:
        """The task types that are paused, or claimed only as probes."""
        withheld = self._breakers.withheld
        return self.paused_types | withheld if withheld else self.paused_types

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Sleep until there may be work in one of these queues.

        What is paused is not listened to: its tasks would ring for nothing. So that a resume is noticed, this then
        takes no longer than what was read is fresh. Where a rate holds starts back, no ring tells when the next is due,
        and this takes no longer than about until then.
        """
        listening = [queue for queue in queues if queue not in self.paused]
        if len(listening) < len(queues) or self.excluded_types:
            timeout = min(timeout, FRESH / SECOND)
        for queue in listening:
            limits = self.limits.get(queue)
            if limits is not None and limits.paced:
                timeout = min(timeout, limits.pause / SECOND)
        if listening:
            await self._store.wait(listening, timeout)
        else:
            await asyncio.sleep(timeout)

    async def _look(self) -> None:
        self.looks += 1
        rung = next((record.version for record in await self._store.scan(BELL)), 0)
        now = self._clock.monotonic()
        if self._read_at is not None and rung == self._rung and now - self._read_at < _RESCAN:
            return
        queues = [(record.name, settings_in(record)) for record in await self._store.scan(KIND)]
        types = await self._store.scan(TYPE_KIND)
        self._breakers.learn(await self._store.scan(breakers.KIND))
        self._effective = {
            name: effective(self._settings, own)
            for name, own in queues
            if own is not None and own != QueueSettings(paused=own.paused)
        }
        self._tables = {name: _table(own) for name, own in self._effective.items()}
        self.paused = frozenset(name for name, own in queues if own is not None and own.paused)
        self.paused_types = frozenset(record.name for record in types)
        self.limits = {name: limits for name, own in queues if own is not None and (limits := own.limits) is not None}
        self._rung, self._read_at = rung, now


def _table(settings: Settings) -> Table:
    # Luck only moves the turns of a weighted order, and no wait changes those.
    (table, *_) = settings.order.tables(1, lambda: 0.0)
    return table


def settings_in(record: Record) -> QueueSettings | None:
    """The settings in a record; None if they are of a version that this one cannot read."""
    try:
        return _decode(record.value)
    except msgspec.MsgspecError:
        return None
