"""Counting what came of tasks in this process: within a minute, within an hour, and how many are promoted in a day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct

from fairlead.core.identity import WorkerId
from fairlead.core.instant import DAY, HOUR, MINUTE, SECOND, Instant, Span
from fairlead.core.task import COMPLETED, PRIORITIES, Priority, State, Task
from fairlead.engine.events.types import worker_of
from fairlead.engine.records import DecodedRecord, Form, Records, Unread

_SLICE: Final[Span] = 5 * SECOND
_SLICES: Final = MINUTE // _SLICE
_MOST_QUEUES: Final = 100

_LONG_SLICE: Final[Span] = 5 * MINUTE
_LONG_SLICES: Final = HOUR // _LONG_SLICE
_MOST_ROWS: Final = 5_000
"""How many rows of the last hour a process keeps."""
_MOST_REPORTED: Final = 2_400
"""How many of them it tells the others."""
OTHER_QUEUES: Final = ""
"""Instead of the name of a queue: all those together that there are too many of to tell apart."""

Name = TypeVar("Name")


class Throughput(Struct, frozen=True, kw_only=True):
    """How many tasks came to their end within a minute."""

    completed: int = 0
    failed: int = 0
    """Those that ended as failed or as a dead letter; a retry is no end."""


class Spent(Struct, frozen=True, array_like=True):
    """How many tasks came to their end within a minute, and how long their last attempts took."""

    ended: int = 0
    time: Span = 0


class HourCounts(Struct, frozen=True, kw_only=True):
    """What was counted within the last hour; that is the five minutes under way and the eleven times five before."""

    ended: int = 0
    """How many tasks completed, failed or became dead letters."""
    waited: Span = 0
    """How long these had been ready before their last attempt began, in all."""
    took: Span = 0
    """How long their last attempts took, in all."""
    promoted: int = 0
    """How many tasks were claimed as more urgent than they are, because they had waited."""
    recovered: int = 0
    """How many tasks were taken from workers that were lost, and wait again."""

    def plus(self, other: HourCounts) -> HourCounts:
        """Both together."""
        return HourCounts(
            ended=self.ended + other.ended,
            waited=self.waited + other.waited,
            took=self.took + other.took,
            promoted=self.promoted + other.promoted,
            recovered=self.recovered + other.recovered,
        )


NO_COUNTS: Final = HourCounts()


class HourRow(Struct, frozen=True, array_like=True):
    """What was counted of one priority of one queue within five minutes."""

    queue: str
    priority: int
    number: int
    """Which five minutes since 1970."""
    ended: int = 0
    waited: Span = 0
    took: Span = 0
    promoted: int = 0
    recovered: int = 0


_ENDED, _WAITED, _TOOK, _PROMOTED, _RECOVERED = range(5)


class ThroughputMeter:
    """The ends of attempts that this process has settled, by worker; and what they took, by queue and priority."""

    def __init__(self) -> None:
        self._slices: dict[tuple[WorkerId | None, int], list[int]] = {}
        """By worker and slice of time: how many completed, how many failed."""
        # Most tasks are counted where the last one was, so that place is kept at hand.
        self._worker: WorkerId | None = None
        self._start: Instant = 0
        self._slice = [0, 0]
        self._taken: dict[tuple[str, int], _ByPriority] = {}
        """By queue and slice of time, then by priority: how many ended, how long they had waited, how long they took.
        What is older than a minute is added to the hour."""
        self._queue: str | None = None
        self._taking = _no_counts()
        self._hour: dict[tuple[str, int, int], list[int]] = {}
        """By queue, priority and long slice of time: the numbers of an `HourRow`."""
        self._hour_number = 0

    def count(self, tasks: Sequence[Task], at: Instant) -> None:
        """Count tasks that stand like this after an attempt; one that will be tried again does not count."""
        turned = not 0 <= at - self._start < _SLICE
        for task in tasks:
            status, queue = task.status, task.spec.queue
            if status.state is COMPLETED:
                failed = 0
            elif status.state is State.FAILED or status.state is State.DEAD_LETTER:
                failed = 1
            else:
                continue
            worker = worker_of(task)
            if turned or worker != self._worker or queue != self._queue:
                self._turn_to(worker, queue, at)
                turned = False
            self._slice[failed] += 1
            taking, started_at, ready_at = self._taking[status.priority], status.started_at, status.ready_at
            taking[_ENDED] += 1
            # A clock that went back makes nothing shorter than nothing.
            if started_at is not None:
                if at > started_at:
                    taking[_TOOK] += at - started_at
                if started_at > ready_at:
                    taking[_WAITED] += started_at - ready_at

    def total(self, now: Instant) -> Throughput:
        """What was counted for all workers together."""
        return _sum([counts for (_, number), counts in list(self._slices.items()) if _is_recent(number, now)])

    def of(self, worker: WorkerId, now: Instant) -> Throughput:
        """What was counted for one worker."""
        numbers = range(now // _SLICE - _SLICES + 1, now // _SLICE + 1)
        return _sum([counts for number in numbers if (counts := self._slices.get((worker, number))) is not None])

    def spent(self, now: Instant) -> dict[str, Spent]:
        """What was counted by queue; of very many queues, those with most."""
        sums: dict[str, list[int]] = {}
        for (queue, number), taken in list(self._taken.items()):
            if _is_recent(number, now):
                total = sums.setdefault(queue, [0, 0])
                total[0] += sum(each[_ENDED] for each in taken)
                total[1] += sum(each[_TOOK] for each in taken)
        most = sorted(sums, key=lambda queue: -sums[queue][1])[:_MOST_QUEUES]
        return {queue: Spent(*sums[queue]) for queue in most}

    def promoted(self, task: Task, at: Instant) -> None:
        """Count a task that was claimed as more urgent than it is."""
        self._row(task.spec.queue, task.status.priority, at // _LONG_SLICE)[_PROMOTED] += 1

    def recovered(self, task: Task, at: Instant) -> None:
        """Count a task that was taken from a lost worker and waits again."""
        self._row(task.spec.queue, task.status.priority, at // _LONG_SLICE)[_RECOVERED] += 1

    def hour(self, now: Instant) -> list[HourRow]:
        """What was counted within the last hour; of very many queues, those with most, and the others together."""
        rows = {key: list(row) for key, row in list(self._hour.items()) if _is_this_hour(key[2], now)}
        for (queue, number), taken in list(self._taken.items()):
            long_number = number * _SLICE // _LONG_SLICE
            if _is_this_hour(long_number, now):
                for priority, counts in enumerate(taken):
                    if counts[_ENDED]:
                        _add(rows.setdefault((queue, priority, long_number), [0] * 5), counts)
        if len(rows) > _MOST_REPORTED:
            rows = _fewer(rows)
        return [HourRow(*key, *row) for key, row in sorted(rows.items())]

    def _row(self, queue: str, priority: int, number: int) -> list[int]:
        row = self._hour.get((queue, priority, number))
        if row is None:
            if number != self._hour_number:
                self._hour_number = number
                for key in [key for key in list(self._hour) if not 0 <= number - key[2] < _LONG_SLICES]:
                    self._hour.pop(key, None)
            kept = queue if len(self._hour) < _MOST_ROWS else OTHER_QUEUES
            row = self._hour.setdefault((kept, priority, number), [0] * 5)
        return row

    def _keep(self, now: Instant) -> None:
        """Add to the hour what is older than a minute."""
        for queue, number in [key for key in list(self._taken) if not _is_recent(key[1], now)]:
            taken = self._taken.pop((queue, number), ())
            for priority, counts in enumerate(taken):
                if counts[_ENDED]:
                    _add(self._row(queue, priority, number * _SLICE // _LONG_SLICE), counts)

    def _turn_to(self, worker: WorkerId | None, queue: str, at: Instant) -> None:
        number = at // _SLICE
        if (worker, number) not in self._slices:
            _forget(self._slices, at)
        if (queue, number) not in self._taken:
            self._keep(at)
        self._worker, self._queue, self._start = worker, queue, number * _SLICE
        self._slice = self._slices.setdefault((worker, number), [0, 0])
        self._taking = self._taken.setdefault((queue, number), _no_counts())


_ByPriority: TypeAlias = tuple[list[int], ...]


def _no_counts() -> _ByPriority:
    return tuple([0, 0, 0] for _ in PRIORITIES)


def _add(row: list[int], counts: Sequence[int]) -> None:
    for position, count in enumerate(counts):
        row[position] += count


def _fewer(rows: dict[tuple[str, int, int], list[int]]) -> dict[tuple[str, int, int], list[int]]:
    """The rows of the queues with most, and those of all others together."""
    ended: dict[str, int] = {}
    for (queue, _, _), row in rows.items():
        ended[queue] = ended.get(queue, 0) + sum(row[each] for each in (_ENDED, _PROMOTED, _RECOVERED))
    kept = set(sorted(ended, key=lambda queue: -ended[queue])[: _MOST_REPORTED // (_LONG_SLICES * len(Priority))])
    fewer: dict[tuple[str, int, int], list[int]] = {}
    for (queue, priority, number), row in rows.items():
        name = queue if queue in kept else OTHER_QUEUES
        _add(fewer.setdefault((name, priority, number), [0] * 5), row)
    return fewer


def hour_of(rows: Iterable[HourRow], now: Instant) -> dict[str, dict[Priority, HourCounts]]:
    """What all of the rows that are of the last hour say together, by queue and priority."""
    sums: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        # A later version may know other priorities.
        if 0 <= row.priority < len(PRIORITIES) and _is_this_hour(row.number, now):
            counts = (row.ended, row.waited, row.took, row.promoted, row.recovered)
            _add(sums.setdefault((row.queue, row.priority), [0] * 5), counts)
    hour: dict[str, dict[Priority, HourCounts]] = {}
    for (queue, number), (ended, waited, took, promoted, recovered) in sums.items():
        hour.setdefault(queue, {})[PRIORITIES[number]] = HourCounts(
            ended=ended, waited=waited, took=took, promoted=promoted, recovered=recovered
        )
    return hour


def ended_per_second(rows: Iterable[HourRow], now: Instant) -> dict[tuple[str, Priority], float]:
    """How many tasks ended per second within the last five to ten minutes, by queue and priority."""
    known = {int(priority): priority for priority in Priority}
    last = now // _LONG_SLICE
    recent = [row for row in rows if row.priority in known and row.number in (last - 1, last)]
    span = max(SECOND, now - min((row.number for row in recent), default=last) * _LONG_SLICE)
    ended: Counter[tuple[str, Priority]] = Counter()
    for row in recent:
        ended[row.queue, known[row.priority]] += row.ended
    return {line: count * SECOND / span for line, count in ended.items()}


def _is_this_hour(number: int, now: Instant) -> bool:
    return 0 <= now // _LONG_SLICE - number < _LONG_SLICES


def _forget(slices: dict[tuple[Name, int], list[int]], now: Instant) -> None:
    for key in [key for key in list(slices) if not _is_recent(key[1], now)]:
        slices.pop(key, None)


def _is_recent(number: int, now: Instant) -> bool:
    return 0 <= now // _SLICE - number < _SLICES


def _sum(slices: list[list[int]]) -> Throughput:
    return Throughput(completed=sum(counts[0] for counts in slices), failed=sum(counts[1] for counts in slices))


PROMOTED: Final = "promoted"
"""The kind of record that a day's count is, by the number of the day since 1970."""

PROMOTED_FORM: Final = Form(kind=PROMOTED, decode=int, encode=lambda count: b"%d" % count)

_KEPT_DAYS: Final = 2
_TRIES: Final = 20


class Promotions:
    """The tasks that were served as more urgent than they are, because they had waited, by day of UTC."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._store = records.store
        self._counts: Counter[int] = Counter()
        """By day: what was counted here and not yet shared."""

    def count(self, at: Instant) -> None:
        """Count one more."""
        self._counts[at // DAY] += 1

    async def share(self) -> None:
        """Add what was counted here to what all processes have counted, and forget days long past."""
        counts, self._counts = self._counts, Counter()
        for day, count in counts.items():
            if await self._add(day, count):
                await self._forget(day)
            else:
                # Others were always quicker: it is added next time.
                self._counts[day] += count

    async def today(self, now: Instant) -> int:
        """How many were promoted since midnight UTC; what other processes counted may be a heartbeat behind."""
        day = now // DAY
        found = await self._records.find(PROMOTED_FORM, str(day))
        return self._counts[day] + (found.value if isinstance(found, DecodedRecord) else 0)

    async def _add(self, day: int, count: int) -> bool:
        for _ in range(_TRIES):
            found = await self._records.find(PROMOTED_FORM, str(day))
            if isinstance(found, Unread):
                return False
            number, version = (0, 0) if found is None else (found.value, found.version)
            value = PROMOTED_FORM.write(number + count)
            if await self._store.put(PROMOTED, str(day), value, expected=version) is not None:
                return True
        return False

    async def _forget(self, day: int) -> None:
        for each in (await self._records.read(PROMOTED_FORM)).kept:
            if int(each.name) <= day - _KEPT_DAYS:
                await self._store.drop(PROMOTED, each.name)
