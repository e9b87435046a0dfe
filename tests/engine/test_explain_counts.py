"""What explain reads to count those ahead, on every store: never more than a bound, whatever waits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fairlead.core.identity import WorkerId
from fairlead.core.instant import LATEST, MINUTE, SECOND
from fairlead.core.queues.promotion import BEFORE_ALL, FIRST_ID, Place
from fairlead.core.task import Lane, Priority, State
from fairlead.engine.explain import counts
from fairlead.engine.explain.counts import MOST_READ, counted
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store
from fairlead.storage.values import LaneTally, Stretch
from tests.engine.building import Bench
from tests.unit.building import NOW


class Deep(MemoryStore):
    """Has as many in every stretch as is asked for, and notes how many it reads."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.read = 0

    async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
        assert most is not None
        self.read += 2 * most * len(stretches)
        return [min(self.depth, most)] * len(stretches)


def lanes(count: int, depth: int) -> list[LaneTally]:
    named = [Lane("default", f"type-{number}", (), Priority.LOW) for number in range(count)]
    return [LaneTally(lane, {State.QUEUED: depth}, NOW - 10 * MINUTE) for lane in named]


@pytest.mark.parametrize("count", [1, 3, 100, 1_000, 10_000])
async def test_no_more_than_the_bound_is_read_whatever_is_ahead(count: int) -> None:
    store, tallies = Deep(1_000_000), lanes(count, 1_000_000)
    half = Place(NOW - 5 * MINUTE, FIRST_ID)
    found = await counted(store, [Stretch(each.lane, BEFORE_ALL, half) for each in tallies], tallies, NOW)
    assert store.read <= MOST_READ
    assert len(found.guessed) == count and found.numbers == [500_000] * count, (
        "half of a lane, if its tasks have come evenly"
    )


async def test_a_few_are_counted_and_a_whole_lane_needs_no_counting() -> None:
    store, tallies = Deep(7), lanes(2, 100)
    half = Place(NOW, FIRST_ID)
    parts = (BEFORE_ALL, half), (half, Place(LATEST, FIRST_ID))
    asked = [Stretch(each.lane, *ends) for each in tallies for ends in parts]
    assert await counted(store, asked, tallies, NOW) == counts.StretchCounts([7, 93, 7, 93])


async def test_one_deep_lane_is_given_what_the_others_leave() -> None:
    class OneDeep(Deep):
        async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
            found = await super().count(stretches, most)
            return [number if each.lane.type == "type-0" else 1 for each, number in zip(stretches, found, strict=True)]

    store, tallies = OneDeep(6_000), lanes(50, 6_000)
    asked = [Stretch(each.lane, BEFORE_ALL, Place(NOW, FIRST_ID)) for each in tallies]
    found = await counted(store, asked, tallies, NOW)
    assert found == counts.StretchCounts([6_000] + [1] * 49)
    assert store.read <= MOST_READ


async def test_what_is_beyond_the_bound_is_told_as_about(any_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(store=any_store, batching=False)
    monkeypatch.setattr(counts.counted, "__defaults__", (40,))
    await bench.engine.worker_records.register(WorkerId("one"), queues=["default"], capacity=1)
    ids = []
    for _ in range(60):
        ids.append((await bench.submit()).id)
        bench.clock.advance(SECOND)
    await bench.engine.worker_records.beat(WorkerId("one"), running=1)
    few, many = [(await bench.engine.explain(task_id)).line for task_id in (ids[3], ids[50])]
    assert few is not None and (few.ahead, few.exact) == (3, True)
    assert many is not None and not many.exact and 45 <= many.ahead <= 55
