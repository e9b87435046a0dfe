"""Beating: what a keeper does with the leases that it is told of, in a process or a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from fairlead.core.errors import StoreError
from fairlead.core.identity import LeaseToken, TaskId, WorkerId
from fairlead.core.instant import SECOND, Span, span
from fairlead.core.secret_mask import Masked
from fairlead.core.settings import Settings
from fairlead.engine.leases import StoreLeases
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.credentials import Named
from fairlead.storage.open import open_store
from fairlead.storage.protocol import OneWriter
from fairlead.storage.values import Beat, Pulse
from fairlead.worker.keeper.pipe import forget

LOOK_INTERVAL: Final = 1.0
"""How often, in seconds, a keeper looks whether cancel was asked."""

Tell = Callable[[Mapping[TaskId, Pulse], int], None]
"""Told of leases that are lost or should stop, and how many heartbeats did not arrive."""


class Leases(Protocol):
    """What keeps leases, of an engine or of a server; its coroutines must not suspend."""

    @property
    def settings(self) -> Settings: ...

    async def heartbeat(self, beats: Sequence[Beat], /) -> list[Pulse]: ...

    async def look(self, beats: Sequence[Beat], /) -> list[Pulse]:
        """What a heartbeat would learn, without renewing anything."""
        ...

    async def time_out(self, beats: Sequence[Beat], /) -> None:
        """Settle attempts as timed out, for a worker that does not say so."""
        ...


class Remote(Struct, frozen=True):
    """A worker of a server."""

    worker: WorkerId
    key: str | None

    def __repr__(self) -> str:
        return f"Remote({self.worker!r})"


class Brief(Masked, frozen=True):
    """What a keeper process needs to open what it renews leases with."""

    url: str
    settings: Settings
    remote: Remote | None = None
    """What it takes beside the URL, if that is a server's."""
    journal: str | None = None
    """The journal behind the store, which is told of what is settled."""
    credentials: Named | None = None
    """The function that gives credentials to the store, if there is one."""
    journal_credentials: Named | None = None


class KeptLeases(StoreLeases):
    """Leases, renewed in a store that is open for that, and settled in it with its journal."""

    def __init__(self, brief: Brief) -> None:
        self._credentials = None if brief.credentials is None else brief.credentials.find()
        store = open_store(brief.url, blocking=True, credentials=self._credentials)
        super().__init__(run_inline(store), brief.settings)
        self._brief = brief

    async def time_out(self, beats: Sequence[Beat]) -> None:
        """Settle attempts as timed out, for a worker that does not say so."""
        # Hardly ever needed, and large.
        from fairlead.engine.engine import Engine

        brief = self._brief
        # A settle is noted for the journal, if there is one; renewing is not, and needs no way to it.
        store = await open_store(
            brief.url,
            journal=brief.journal,
            blocking=True,
            credentials=self._credentials,
            journal_credentials=None if brief.journal_credentials is None else brief.journal_credentials.find(),
        )
        engine = Engine(store, brief.settings, batching=False)
        try:
            await engine.follow_clock()
            await engine.time_out(beats)
        finally:
            await engine.close()


def open_leases(packed: bytes) -> Leases:
    """Where leases are renewed, by a packed brief: the store itself, or a server."""
    brief = msgspec.msgpack.decode(packed, type=Brief)
    if brief.remote is None:
        return KeptLeases(brief)
    from fairlead.client.http.transport import Address
    from fairlead.client.worker_protocol import RemoteLeases

    return RemoteLeases(Address(brief.url, brief.remote.key), brief.remote.worker, brief.settings)


class Beater:
    """The beating itself. What is held may change meanwhile, from another thread too."""

    def __init__(
        self,
        leases: Leases,
        held: dict[TaskId, LeaseToken],
        due: dict[TaskId, float] | None = None,
        allowed: dict[TaskId, float] | None = None,
        end_writer: Callable[[], bool] = lambda: False,
    ) -> None:
        """`due` says when an attempt is so late that its worker will not say so any more.

        `allowed` says how much later its time began than the attempt, in seconds. `end_writer` is asked to end the
        worker if nothing can be settled because of it, and says whether it did.
        """
        self._end_writer = end_writer
        self._leases = leases
        self._held = held
        self._due = {} if due is None else due
        self._allowed = {} if allowed is None else allowed
        self._said: dict[TaskId, float] = {}
        """What of that the store was told of."""
        self._asked: set[tuple[TaskId, LeaseToken]] = set()
        """Those of which it was told that they should stop."""

    def beat(self) -> dict[TaskId, Pulse]:
        """Renew every lease; those that are lost or should stop."""
        beats = self._beats()
        if not beats:
            return {}
        allowed = dict(self._allowed)
        pulses = run_inline(self._leases.heartbeat(beats))
        self._said = allowed
        lost = {beat.id: beat.token for beat, pulse in zip(beats, pulses, strict=True) if pulse is Pulse.LOST}
        forget(self._held, lost)
        return dict.fromkeys(lost, Pulse.LOST) | self._unsaid(beats, pulses)

    def look(self) -> dict[TaskId, Pulse]:
        """Those that should stop, without renewing any: a cancel need not wait for the next heartbeat."""
        if not dict(self._allowed).items() <= self._said.items():
            # A lease that should last longer may end before the next heartbeat.
            return self.beat()
        beats = self._beats()
        return self._unsaid(beats, run_inline(self._leases.look(beats))) if beats else {}

    def time_out(self) -> dict[TaskId, Pulse]:
        """Settle what is far over its timeout: its worker lives, and its event loop is held up."""
        now = time.monotonic()
        late = [task_id for task_id, moment in list(self._due.items()) if moment <= now]
        beats = [Beat(task_id, self._held[task_id]) for task_id in late if task_id in self._held]
        if beats:
            try:
                self._settle(beats)
            except StoreError:
                # Tried again at the next look, as long as the lease lasts.
                return {}
            forget(self._held, {beat.id: beat.token for beat in beats})
        for task_id in late:
            self._due.pop(task_id, None)
            self._allowed.pop(task_id, None)
        return {beat.id: Pulse.OVERDUE for beat in beats}

    def _settle(self, beats: Sequence[Beat]) -> None:
        try:
            run_inline(self._leases.time_out(beats))
        except StoreError:
            if not self._end_writer():
                raise
            run_inline(self._leases.time_out(beats))

    def _beats(self) -> list[Beat]:
        allowed = self._allowed
        return [
            Beat(task_id, token, None, allowance(allowed.get(task_id))) for task_id, token in list(self._held.items())
        ]

    def _unsaid(self, beats: Sequence[Beat], pulses: Sequence[Pulse]) -> dict[TaskId, Pulse]:
        """Those that should stop, each told of once."""
        # The tasks of one claim share its token, and a task that is claimed again has another.
        asked = {(beat.id, beat.token) for beat, pulse in zip(beats, pulses, strict=True) if pulse is Pulse.CANCEL}
        fresh = asked - self._asked
        self._asked.intersection_update((beat.id, beat.token) for beat in beats)
        self._asked |= asked
        return {task_id: Pulse.CANCEL for task_id, _ in fresh}


def allowance(seconds: float | None) -> Span:
    """How much longer a lease may last, as a span."""
    return 0 if seconds is None else span(seconds)


def writer_of(leases: Leases) -> int | None:
    """The process that keeps all others from writing to the store; None if none does, or nobody can tell."""
    match leases:
        case KeptLeases(store=OneWriter() as store):
            return store.writer()
        case _:
            return None


def moment_of(settings: Settings) -> float:
    """How long, in seconds, a lease may be held before anyone looks after it."""
    return min(LOOK_INTERVAL, settings.heartbeat / SECOND / 2)


def lateness_of(settings: Settings) -> float:
    """How long after its timeout, in seconds, an attempt is so late that a keeper settles it.

    As long as its worker may still say so itself, and before its lease ends for good, which a keeper looks for twice.
    """
    grace = settings.grace / SECOND
    return max(grace / 2, min(0.8 * grace, grace - 2 * moment_of(settings)))


def keep(beater: Beater, settings: Settings, tell: Tell, pause: Callable[[float], bool]) -> None:
    """Beat and look until `pause`, which sleeps for so many seconds, says that it is over.

    The first beat comes at once: what is held already may have been held for long.
    """
    interval, moment = settings.heartbeat / SECOND, moment_of(settings)
    next_beat = time.monotonic()
    over = False
    while not over:
        beats = time.monotonic() >= next_beat
        pulses: dict[TaskId, Pulse] = {}
        try:
            pulses = beater.beat() if beats else beater.look()
        except StoreError:
            # A store that fails is tried again at once: a lease is worth three beats.
            if beats:
                tell({}, 1)
        else:
            if beats:
                next_beat = time.monotonic() + interval
        pulses |= beater.time_out()
        if pulses:
            tell(pulses, 0)
        over = pause(moment)
