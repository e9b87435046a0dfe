"""How the queues stand, as far as one server needs to know: counted seldom, asked often; and how they stood lately."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import OrderedDict, deque
from typing import Final

import msgspec
from msgspec import Raw, Struct

from fairlead.admin.engine import AdminEngine
from fairlead.admin.stats import Sample, sample, standing
from fairlead.core.errors import StoreError
from fairlead.core.instant import MINUTE, SECOND, Span
from fairlead.core.queues.order import Policy, Table
from fairlead.core.task import PRIORITIES, QUEUED, Task
from fairlead.engine.queue_ages import AtRisk, QueueAges, StarvationCount
from fairlead.engine.stats import Stats, aged

_FRESH: Final[Span] = SECOND
"""Positions from counts older than this have them counted anew."""
_STALE: Final[Span] = 2 * SECOND
"""Positions from counts older than this wait until they are, and are not told otherwise."""
_PATIENCE: Final = 0.5
"""How long a submit waits for the counting, in seconds."""


_PATIENT: Final = 1.0
"""How long the answer with statistics waits for ages, in seconds."""
_SPARE: Final = 20
"""Of the time, ages are counted a part in so many at most."""
_KEPT_AGES: Final[Span] = MINUTE
"""How old ages may be that are told while they are counted anew."""
_MOST_SCOPES: Final = 64


class _Ages:
    """The ages of some queues, and the counting of them."""

    def __init__(self) -> None:
        self.ages = QueueAges()
        self.at: Span = 0
        self.took: Span = 0
        self.counting: asyncio.Task[QueueAges] | None = None


class Ages:
    """How long the tasks have waited that wait, counted seldom: on some stores it takes time to count them."""

    def __init__(self, engine: AdminEngine) -> None:
        self._engine = engine
        self._kept: OrderedDict[frozenset[str] | None, _Ages] = OrderedDict()
        """By the queues that are counted together; None for all."""

    async def of(self, queues: frozenset[str] | None) -> QueueAges:
        """The ages of some queues, or of all; none while nobody knows them."""
        known = self._kept.get(queues)
        now = self._engine.clock.monotonic()
        if known is None:
            known = self._kept[queues] = _Ages()
            self._count(queues, known)
            if len(self._kept) > _MOST_SCOPES:
                self._kept.popitem(last=False)
        elif known.counting is None and now - known.at >= max(_FRESH, _SPARE * known.took):
            self._count(queues, known)
        self._kept.move_to_end(queues)
        if known.counting is not None:
            await asyncio.wait([known.counting], timeout=_PATIENT)
        return known.ages if self._engine.clock.monotonic() - known.at < _KEPT_AGES else QueueAges()

    def _count(self, queues: frozenset[str] | None, known: _Ages) -> None:
        begun = self._engine.clock.monotonic()

        def learn(counting: asyncio.Task[QueueAges]) -> None:
            known.counting = None
            known.at = self._engine.clock.monotonic()
            known.took = known.at - begun
            failed = counting.cancelled() or counting.exception() is not None
            known.ages = QueueAges() if failed else counting.result()

        known.counting = asyncio.get_running_loop().create_task(self._engine.ages(queues))
        known.counting.add_done_callback(learn)


class Depths:
    """How many ready tasks each queue has per priority: counted, and what was submitted here since."""

    def __init__(self, engine: AdminEngine) -> None:
        self._engine = engine
        self._ahead: dict[str, tuple[Table, list[list[int]]]] = {}
        self._depths: dict[str, list[int]] = {}
        self._since: list[Task] = []
        """What was submitted here while the counting was under way."""
        self._counted: Span | None = None
        self._counting: asyncio.Task[Stats] | None = None
        self._asking: list[asyncio.Future[Stats]] = []
        """Who waits for what is being counted."""
        self._recent: tuple[Span, Stats, Span, AtRisk] | None = None
        self._starving = StarvationCount(
            engine.store, engine.clock, lambda queue: engine.queue_cache.settings_of(queue).order
        )

    def _order_of(self, queue: str) -> Policy:
        return self._engine.queue_cache.settings_of(queue).order

    async def stats(self) -> Stats:
        """The engine's stats; those who ask at the same time are answered together."""
        self._count()
        asking: asyncio.Future[Stats] = asyncio.get_running_loop().create_future()
        self._asking.append(asking)
        return await asking

    async def recent(self) -> tuple[Stats, Span, AtRisk]:
        """The stats, and how late the most overdue schedule is, at most a second old; and which tasks may starve."""
        now = self._engine.clock.monotonic()
        if self._recent is None or now - self._recent[0] >= _FRESH:
            stats, late = await asyncio.gather(self.stats(), self._engine.schedules.lateness())
            oldest = {
                (name, priority): line.oldest_age
                for name, queue in stats.queues.items()
                for priority, line in queue.lines.items()
                if line.oldest_age
            }
            self._recent = now, stats, late, await self._starving.count(oldest)
        return self._recent[1:]

    async def ready(self) -> bool:
        """Whether positions can be told from counts that are not stale.

        While the counts are only a little old they are counted anew behind the caller's back: no submit waits for it
        but the first after a pause, and none waits long.
        """
        age = self._age()
        if age < _FRESH:
            return True
        counting = self._count()
        if age >= _STALE:
            await asyncio.wait([counting], timeout=_PATIENCE)
        return self._age() < _STALE

    def position(self, task: Task) -> int | None:
        """How many ready tasks of its queue are served before a task that was just stored, itself included."""
        status, queue = task.status, task.spec.queue
        if status.state is not QUEUED:
            return None
        depths = self._depths.get(queue)
        if depths is None:
            depths = self._depths[queue] = [0] * len(PRIORITIES)
        depths[status.priority] += 1
        if self._counting is not None:
            self._since.append(task)
        table = self._engine.queue_cache.table_of(queue)
        known = self._ahead.get(queue)
        if known is None or known[0] is not table:
            known = self._ahead[queue] = table, _ahead(table)
        return sum(map(depths.__getitem__, known[1][status.priority]))

    def _count(self) -> asyncio.Task[Stats]:
        if self._counting is None:
            self._since.clear()
            self._counting = asyncio.get_running_loop().create_task(self._engine.stats())
            self._counting.add_done_callback(self._learn)
        return self._counting

    def _learn(self, counting: asyncio.Task[Stats]) -> None:
        self._counting = None
        asking, self._asking = self._asking, []
        for each in asking:
            _pass_on(counting, each)
        # An error is for those who asked for stats; submits go on without positions.
        if counting.cancelled() or counting.exception() is not None:
            return
        self._counted = self._engine.clock.monotonic()
        self._depths = {
            name: [queue.lines[priority].depth for priority in PRIORITIES]
            for name, queue in counting.result().queues.items()
        }
        since, self._since = self._since, []
        # They take their places once more, behind what was counted.
        for task in since:
            self.position(task)
        self._ahead.clear()

    def _age(self) -> float:
        return math.inf if self._counted is None else self._engine.clock.monotonic() - self._counted


INTERVAL: Final = 10.0
"""Seconds between two samples."""
KEPT: Final = 360
"""How many samples are kept: an hour of them."""


class Recorder:
    """Keeps the samples of one server; others have their own, and all are lost when it ends."""

    def __init__(self, engine: AdminEngine, depths: Depths) -> None:
        self._engine = engine
        self._depths = depths
        self.samples: deque[Sample] = deque(maxlen=KEPT)

    async def run(self) -> None:
        """Take samples for as long as this is not cancelled; what the store cannot say is left out."""
        while True:
            with contextlib.suppress(StoreError):
                await self.take()
            await asyncio.sleep(INTERVAL)

    async def take(self) -> None:
        """Take a sample."""
        self.samples.append(sample(await self._depths.stats(), self._engine.clock.now()))


def _ahead(table: Table) -> list[list[int]]:
    """For each priority those that are served no later, whatever the age of their tasks."""
    return [
        [int(other) for other in PRIORITIES if other == own or table[other].rank <= table[own].rank]
        for own in PRIORITIES
    ]


def _pass_on(counting: asyncio.Task[Stats], asking: asyncio.Future[Stats]) -> None:
    """Tell one who asked what came of the counting, unless they have left."""
    if asking.done():
        return
    if counting.cancelled():
        asking.cancel()
    elif (error := counting.exception()) is not None:
        asking.set_exception(error)
    else:
        asking.set_result(counting.result())


_ENCODE: Final = msgspec.json.Encoder().encode


class _Shown(Struct, frozen=True):
    """What was shown, and what it was made of."""

    stats: Stats
    ages: QueueAges | None
    queue: str | None
    answer: Raw


class StatsAnswers:
    """Shows how the queues stand.

    Those who ask while the tasks are counted are told of the same count, so they have the same answer. A caller who is
    bound to a tenant has stats of its own, and what is made of them is shown to nobody else.
    """

    def __init__(self) -> None:
        self._last: _Shown | None = None

    def show(self, stats: Stats, ages: QueueAges | None, queue: str | None) -> Raw:
        """The stats of all queues or of one, with these ages of their tasks, as JSON."""
        last = self._last
        if last is not None and last.stats is stats and last.ages is ages and last.queue == queue:
            return last.answer
        shown = standing(stats if ages is None else aged(stats, ages), queue)
        self._last = _Shown(stats, ages, queue, Raw(_ENCODE(shown)))
        return self._last.answer
