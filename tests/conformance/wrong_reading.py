"""Stores that find, tally, keep records or wait wrongly."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.queues.promotion import BEFORE_ALL, Place
from fairlead.core.task import Lane, State, Task
from fairlead.storage.values import (
    Filter,
    Known,
    LaneTally,
    Receipt,
    Record,
    Stretch,
    Tally,
)
from fairlead.testing.steps import contents
from tests.conformance.wrong_store import GAP, WrongStore


class GetsInTheOrderOfIds(WrongStore):
    """Answers with the tasks as they lie."""

    breaks = "F1"

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        return await super().get(sorted(ids))


class LeavesOutWhatIsMissing(WrongStore):
    """Answers with what there is."""

    breaks = "F1"

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        answers = await super().get(ids)
        return [task for task in answers if task is not None] if len(ids) > 1 else answers


class AnswersAlarmsById(WrongStore):
    """Gives the oldest task first, not the earliest alarm."""

    breaks = "F2"

    async def due(self, now: Instant | None, limit: int, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        return sorted(await super().due(now, limit, after), key=lambda task: task.id)


class RingsTooLate(WrongStore):
    """Gives alarms before now only."""

    breaks = "F2"

    async def due(self, now: Instant | None, limit: int, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        return await super().due((now or 0) - 1, limit, after)


class SkipsEqualAlarms(WrongStore):
    """Begins a page at the next moment, not at the next task."""

    breaks = "F2"

    async def due(self, now: Instant | None, limit: int, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        beyond = None if after is None else (after[0], TaskId("g"))
        return await super().due(now, limit, beyond)


class MissesAPageBoundary(WrongStore):
    """Skips the first task of every page but the first."""

    breaks = "F3"

    async def find(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        found = await super().find(matching, limit=limit + 1, newest_first=newest_first, after=after)
        return found[1:] if after is not None else found[:limit]


class FiltersAFullPage(WrongStore):
    """Reads a page and then looks what of it was asked for."""

    breaks = "F3"

    async def find(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        page = await super().find(Filter(), limit=limit, newest_first=newest_first, after=after)
        return [task for task in page if matching.admits(task)]


class FindsPartsOfTags(WrongStore):
    """Looks for a tag as text."""

    breaks = "F3"

    async def find(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        tag = matching.tag or ""
        untagged = replace(matching, tag=None)
        found = await super().find(untagged, limit=1_000_000, newest_first=newest_first, after=after)
        return [task for task in found if tag in " ".join(task.spec.tags)][:limit]


class TalliesKnownTasks(WrongStore):
    """Counts a task each time it is submitted."""

    breaks = "F4"

    def __init__(self) -> None:
        super().__init__()
        self._excess = 0

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        receipts = await super().add(tasks, now=now, bounds=bounds)
        self._excess += receipts.count(Known())
        return receipts

    async def tally(self) -> Tally:
        tally = await super().tally()
        if not tally.lanes or not self._excess:
            return tally
        first, *rest = tally.lanes
        state, count = next(iter(first.counts.items()))
        drifted = LaneTally(first.lane, {**first.counts, state: count + self._excess}, first.oldest_ready)
        return Tally([drifted, *rest], tally.next_alarm)


class KeepsEmptyLanes(WrongStore):
    """Tallies lanes that have no tasks any more."""

    breaks = "F4"

    def __init__(self) -> None:
        super().__init__()
        self._ever: dict[Lane, LaneTally] = {}

    async def tally(self) -> Tally:
        tally = await super().tally()
        lanes = {line.lane: line for line in tally.lanes}
        self._ever |= {lane: LaneTally(lane, {}) for lane in lanes}
        return Tally(list({**self._ever, **lanes}.values()), tally.next_alarm)


class MissesTheNextAlarm(WrongStore):
    """Looks for the next alarm among scheduled tasks only."""

    breaks = "F4"

    async def tally(self) -> Tally:
        tally = await super().tally()
        alarms = [task.status.ready_at for task in await contents(self) if task.state is State.SCHEDULED]
        return Tally(tally.lanes, min(alarms, default=None))


class CountsTheEnd(WrongStore):
    """Counts the task at the end of a stretch."""

    breaks = "F5"

    async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
        ends = [Place(stretch.end.ready_at, TaskId(f"{stretch.end.id}0")) for stretch in stretches]
        wider = [replace(stretch, end=end) for stretch, end in zip(stretches, ends, strict=True)]
        return await super().count(wider, most)


class CountsByTheMomentAlone(WrongStore):
    """Takes tasks of the same moment for later ones."""

    breaks = "F5"

    async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
        ends = [Place(stretch.end.ready_at, BEFORE_ALL.id) for stretch in stretches]
        return await super().count([replace(each, end=end) for each, end in zip(stretches, ends, strict=True)], most)


class PutsWhateverIsExpected(WrongStore):
    """Overwrites what the caller has not read."""

    breaks = "R1"

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        return await super().put(kind, name, value)


class ChecksBeforeItPuts(WrongStore):
    """Compares in one step and stores in another."""

    breaks = "R1"

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        versions = {record.name: record.version for record in await self.scan(kind)}
        await asyncio.sleep(GAP)
        if expected is not None and expected != versions.get(name, 0):
            return None
        return await super().put(kind, name, value)


class DropsWhateverIsExpected(WrongStore):
    """Removes what the caller has not read."""

    breaks = "R1"

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        return await super().drop(kind, name)


class ScansInTheOrderOfWriting(WrongStore):
    """Gives the record written last, last."""

    breaks = "R1"

    async def scan(self, kind: str) -> list[Record]:
        return list(self._records.stored.get(kind, {}).values())


class JoinsKindAndName(WrongStore):
    """Makes one key of kind and name."""

    breaks = "R1"

    async def scan(self, kind: str) -> list[Record]:
        prefix = f"{kind}:"
        records = {
            f"{record.kind}:{record.name}": record
            for alike in self._records.stored.values()
            for record in alike.values()
        }
        names = sorted(name for name in records if name.startswith(prefix))
        return [replace(records[name], kind=kind, name=name.removeprefix(prefix)) for name in names]


class NeverWakes(WrongStore):
    """Lets every waiter wait for its timeout."""

    breaks = "W1"

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        await asyncio.sleep(timeout)


class WakesEveryone(WrongStore):
    """Tells every waiter of every task."""

    breaks = "W1"

    def __init__(self) -> None:
        super().__init__()
        self._bell = asyncio.Event()

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        self._bell.set()
        self._bell = asyncio.Event()
        return await super().add(tasks, now=now, bounds=bounds)

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._bell.wait()
        except TimeoutError:
            pass


class ListensToOneQueue(WrongStore):
    """Wakes for the first of the queues named only."""

    breaks = "W1"

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        await super().wait(queues[:1], timeout)


class CountsOnAndOn(WrongStore):
    """Does not stop where it is told to."""

    breaks = "F5"

    async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
        return await super().count(stretches)
