"""The alert of a server that dead letters have become too many: in its log, and by a webhook if it has one.

It looks at counts that are made anyway, every few seconds and beside everything else. Each server tells what it sees:
two servers of one store both tell, each of them once for a burst.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from fairlead.admin.engine import AdminEngine
from fairlead.core.dead_letters import Burst
from fairlead.core.errors import StoreError
from fairlead.core.instant import MINUTE, SECOND, Span
from fairlead.core.task import State
from fairlead.engine.runtime.telemetry import Logger
from fairlead.engine.stats import Stats
from fairlead.server.live.queue_depths import Depths
from fairlead.server.settings import ServerSettings
from fairlead.wire.text import iso

log = Logger("fairlead.dead_letters")

INTERVAL: Final = 10.0
"""Seconds between two looks."""
CALL_INTERVAL: Final[Span] = MINUTE
"""How long after a call of the webhook the next may be made; what is to be told meanwhile goes into that."""
MOST_LINES: Final = 10
"""How many task types and queues one look puts into the log by name."""
MOST_TOLD: Final = 50
"""How many of them one call of the webhook names."""

_REASON_LIMIT: Final = 300
_TYPE: Final = "task_type"
_QUEUE: Final = "queue"
_QUIET: Final = Burst()


class Excess(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task type, or a queue, with as many dead letters as its alert threshold."""

    task_type: str | None = None
    queue: str | None = None
    dead_letters: int
    new: int
    """How many of them came since it was last told, or since the server began to look."""
    threshold: int


class DeadLetterNotice(Struct, frozen=True, kw_only=True):
    """What the webhook is told."""

    type: str = "dead_letter.alert"
    at: str
    alerts: list[Excess]
    more: int = 0
    """How many more task types and queues there are, which are not named."""


Call: TypeAlias = Callable[[DeadLetterNotice], object]
"""Calls the webhook: blocks, and raises when it was not delivered."""

_Subject: TypeAlias = tuple[str, str]


class DeadLetterAlert:
    """Tells when there are as many dead letters of a task type, or in a queue, as its threshold."""

    def __init__(self, engine: AdminEngine, depths: Depths, settings: ServerSettings, call: Call | None = None) -> None:
        self._engine = engine
        self._depths = depths
        self._queues = dict(settings.dead_letter_queue_alerts)
        self._pause = round(settings.dead_letter_alert_pause_seconds * SECOND)
        self._call = call
        self._bursts: dict[_Subject, Burst] | None = None
        self._pending: list[Excess] = []
        self._more = 0
        self._called_at: Span | None = None
        self._calling: asyncio.Task[None] | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether anything has a threshold."""
        settings = self._engine.settings
        return bool(self._queues or settings.dead_letter_alerts or settings.dead_letter_alert)

    async def run(self) -> None:
        """Look for as long as this is not cancelled; what the store cannot say is seen the next time."""
        while self.is_wanted:
            with contextlib.suppress(StoreError):
                await self.take()
            await asyncio.sleep(INTERVAL)

    async def take(self) -> None:
        """Look once, tell the log, and have the webhook called if it is time for that."""
        stats, now = await self._depths.stats(), self._engine.clock.monotonic()
        is_first = self._bursts is None
        found = self._look(stats, now)
        self._log(found)
        # What was there before anybody looked was seen by whoever looked then: a server that is started again and again
        # must not call for it each time.
        if not is_first and self._call is not None:
            room = max(0, MOST_TOLD - len(self._pending))
            self._pending += found[:room]
            self._more += max(0, len(found) - room)
            self._begin_call(self._call, now)

    async def settled(self) -> None:
        """Wait until no call is under way."""
        if self._calling is not None:
            await asyncio.wait([self._calling])

    def _look(self, stats: Stats, now: Span) -> list[Excess]:
        first, before = self._bursts is None, self._bursts or {}
        counts = self._counts(stats)
        after: dict[_Subject, Burst] = {}
        found: list[Excess] = []
        for subject in counts.keys() | before.keys():
            threshold = self._threshold(subject)
            if threshold is None:
                continue
            count, burst = counts.get(subject, 0), before.get(subject, _QUIET)
            if count < threshold and burst is _QUIET:
                continue
            seen = burst.after(count, threshold, now, self._pause)
            if seen.told_at == now and burst.told_at != now:
                found.append(_excess(subject, count, count - seen.known, threshold))
            if first:
                seen = Burst(known=count, seen=count)
            if not seen.is_over(now, self._pause):
                after[subject] = seen
        self._bursts = after
        return sorted(found, key=lambda each: (-each.dead_letters, each.task_type or "", each.queue or ""))

    def _counts(self, stats: Stats) -> Mapping[_Subject, int]:
        counts: dict[_Subject, int] = {}
        for name, queue in stats.queues.items():
            if name in self._queues:
                counts[_QUEUE, name] = queue.states[State.DEAD_LETTER]
            for task_type, count in queue.dead_letters.items():
                counts[_TYPE, task_type] = counts.get((_TYPE, task_type), 0) + count
        return counts

    def _threshold(self, subject: _Subject) -> int | None:
        kind, name = subject
        return self._queues.get(name) if kind is _QUEUE else self._engine.settings.alert_at(name)

    def _log(self, found: list[Excess]) -> None:
        for each in found[:MOST_LINES]:
            what, name = ("task type", each.task_type) if each.queue is None else ("queue", each.queue)
            field = "type" if each.queue is None else "queue"
            log.warning(
                "%s %s has %d dead letters, %d of them new: its alert threshold is %d; `fairlead dlq groups -q %s:%s` "
                "shows their errors",
                what, name, each.dead_letters, each.new, each.threshold, field, name,
            )  # fmt: skip
        if len(found) > MOST_LINES:
            log.warning(
                "%d more task types and queues have as many dead letters as their alert threshold; `fairlead dlq "
                "groups` shows them",
                len(found) - MOST_LINES,
            )

    def _begin_call(self, call: Call, now: Span) -> None:
        """Call the webhook, unless it is being called or was called a moment ago."""
        rested = self._called_at is None or now - self._called_at >= CALL_INTERVAL
        if self._pending and rested and (self._calling is None or self._calling.done()):
            notice = DeadLetterNotice(at=iso(self._engine.clock.now()), alerts=self._pending, more=self._more)
            self._pending, self._more, self._called_at = [], 0, now
            self._calling = asyncio.get_running_loop().create_task(_told(call, notice))


def _excess(subject: _Subject, count: int, new: int, threshold: int) -> Excess:
    kind, name = subject
    return Excess(**{kind: name}, dead_letters=count, new=new, threshold=threshold)


async def _told(call: Call, notice: DeadLetterNotice) -> None:
    """Call the webhook in a thread of its own. It is called once: one that did not answer may have understood."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Exception | None] = loop.create_future()

    def run() -> None:
        error: Exception | None = None
        try:
            call(notice)
        except Exception as raised:
            error = raised
        # A loop that was closed meanwhile has no one left who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, answer, error)

    # Not one of the loop's own threads: a server could not end while the webhook keeps it waiting.
    try:
        threading.Thread(target=run, name="fairlead-dead-letter-webhook", daemon=True).start()
        error = await answer
    except RuntimeError as no_thread:
        error = no_thread
    if error is not None:
        reason = " ".join(str(error).split())[:_REASON_LIMIT]
        log.error("the dead-letter webhook was not told of %s: %s", _named(notice.alerts), reason)


def _resolve(answer: asyncio.Future[Exception | None], error: Exception | None) -> None:
    if not answer.done():
        answer.set_result(error)


def _named(alerts: Iterable[Excess]) -> str:
    first, *others = [each.task_type or f"queue {each.queue}" for each in alerts]
    return f"{first} and {len(others)} more" if others else first
