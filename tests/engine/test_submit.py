"""Submitting tasks."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Mapping, Sequence

import pytest

from fairlead.core.errors import InvalidTask, PayloadTooLarge, QueueFull, StoreUnavailable
from fairlead.core.identity import TaskId, slot_of, slot_of_id
from fairlead.core.instant import DAY, MINUTE, Instant
from fairlead.core.settings import Settings
from fairlead.core.task import State, Task
from fairlead.engine.engine import Submitted
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Filter, Receipt
from tests.engine.building import Bench, a_wish


async def test_a_submitted_task_can_be_read_back_as_it_was_answered(bench: Bench) -> None:
    answer = await bench.engine.submit(a_wish(parameters=b'{"to":"ada"}'))

    assert not answer.existing
    assert await bench.engine.get(answer.task.id) == answer.task


async def test_the_id_leads_to_the_slot_of_the_queue(bench: Bench) -> None:
    assert slot_of_id((await bench.submit(queue="mail")).id) == slot_of("mail")


async def test_ids_sort_in_the_order_of_submits_though_the_clock_stands_still(bench: Bench) -> None:
    ids = [(await bench.submit()).id for _ in range(20)]

    assert ids == sorted(set(ids))


async def test_an_invalid_submit_is_raised_and_stores_nothing(bench: Bench) -> None:
    with pytest.raises(InvalidTask, match="'not a name'"):
        await bench.engine.submit(a_wish(queue="not a name"))

    assert await bench.engine.find() == []
    assert bench.told() == []


async def test_parameters_over_the_limit_are_refused() -> None:
    bench = Bench(Settings(payload_limit=10))

    with pytest.raises(PayloadTooLarge, match="11 bytes, over the limit of 10"):
        await bench.submit(parameters=b'{"a":12345}')


async def test_of_many_each_succeeds_or_fails_by_itself_and_answers_keep_their_order() -> None:
    bench = Bench(Settings(queue_bound=2))
    first, invalid, again, second, full = await bench.engine.submit_many(
        [
            a_wish(idempotency_key="k"),
            a_wish(type="not a name"),
            a_wish(idempotency_key="k"),
            a_wish(),
            a_wish(),
        ]
    )

    assert isinstance(first, Submitted)
    assert isinstance(invalid, InvalidTask)
    assert again == Submitted(first.task, existing=True)
    assert isinstance(second, Submitted)
    assert isinstance(full, QueueFull)
    assert {task.id for task in await bench.engine.find()} == {first.task.id, second.task.id}


async def test_nothing_submitted_is_nothing_answered(bench: Bench) -> None:
    assert await bench.engine.submit_many([]) == []


class TestIdempotency:
    async def test_a_key_answers_with_the_task_it_first_named(self, bench: Bench) -> None:
        first = await bench.engine.submit(a_wish(idempotency_key="k", parameters=b'{"n":1}'))
        again = await bench.engine.submit(a_wish(idempotency_key="k", parameters=b'{"n":2}'))

        assert again == Submitted(first.task, existing=True)

    @pytest.mark.parametrize("batching", [True, False])
    async def test_a_hundred_submits_of_one_key_at_once_make_one_task(self, batching: bool) -> None:
        bench = Bench(batching=batching)
        answers = await asyncio.gather(*(bench.engine.submit(a_wish(idempotency_key="k")) for _ in range(100)))

        assert len({answer.task.id for answer in answers}) == 1
        assert sorted(answer.existing for answer in answers) == [False] + [True] * 99
        assert len(await bench.engine.find()) == 1

    async def test_the_same_key_in_another_queue_is_another_key(self, bench: Bench) -> None:
        one = await bench.submit(idempotency_key="k", queue="a")
        other = await bench.submit(idempotency_key="k", queue="b")

        assert one.id != other.id

    async def test_a_key_is_free_again_after_its_retention(self, bench: Bench) -> None:
        first = await bench.submit(idempotency_key="k")
        bench.clock.advance(DAY)

        assert (await bench.submit(idempotency_key="k")).id != first.id

    async def test_a_key_is_free_again_when_its_task_is_discarded(self, bench: Bench) -> None:
        first = await bench.submit(idempotency_key="k")
        await bench.engine.cancel(first.id)
        await bench.engine.discard(first.id)

        assert not (await bench.engine.submit(a_wish(idempotency_key="k"))).existing

    async def test_a_key_whose_holder_goes_while_it_is_looked_up_is_taken_after_all(self) -> None:
        store = LosesTheHolder()
        bench = Bench(store=store)
        await bench.submit(idempotency_key="k")
        store.losing = True

        answer = await bench.engine.submit(a_wish(idempotency_key="k"))

        assert not answer.existing
        assert await bench.engine.get(answer.task.id) == answer.task

    async def test_a_held_key_is_answered_though_the_queue_is_full(self) -> None:
        bench = Bench(Settings(queue_bound=1))
        first = await bench.submit(idempotency_key="k")

        assert (await bench.engine.submit(a_wish(idempotency_key="k"))).task == first


class TestABoundedQueue:
    async def test_says_how_many_wait_and_how_many_may(self) -> None:
        bench = Bench(Settings(queue_bound=2))
        await bench.submit()
        await bench.submit(delay=MINUTE)

        with pytest.raises(QueueFull, match="submit later") as refusal:
            await bench.submit()
        assert (refusal.value.queue, refusal.value.depth, refusal.value.bound) == ("default", 2, 2)

    async def test_has_room_again_when_a_task_is_claimed(self) -> None:
        bench = Bench(Settings(queue_bound=1))
        await bench.executing()

        assert (await bench.submit()).state is State.QUEUED

    async def test_does_not_fill_another_queue(self) -> None:
        bench = Bench(Settings(queue_bound=1))
        await bench.submit(queue="a")

        assert (await bench.submit(queue="b")).state is State.QUEUED

    async def test_is_never_exceeded_by_submits_at_once(self) -> None:
        bench = Bench(Settings(queue_bound=10))
        answers = await asyncio.gather(*(bench.engine.submit(a_wish()) for _ in range(50)), return_exceptions=True)

        assert sum(isinstance(answer, QueueFull) for answer in answers) == 40
        assert len(await bench.engine.find(Filter(states=frozenset({State.QUEUED})))) == 10


async def test_a_store_that_is_away_is_reported_and_nothing_is_told() -> None:
    bench = Bench(store=AwayOnAdd())

    with pytest.raises(StoreUnavailable):
        await bench.submit()
    assert bench.told() == []


async def test_refused_queue_names_leave_nothing_behind(bench: Bench) -> None:
    await bench.engine.submit_many([a_wish(queue="! warm up")])
    tracemalloc.start()
    try:
        for number in range(2_000):
            await bench.engine.submit_many([a_wish(queue=f"! {number} " + "x" * 500)])
        gc.collect()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert left < 200_000


class LosesTheHolder(MemoryStore):
    """Forgets the holder of a key between naming it and being asked for it, once."""

    losing = False

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        if self.losing:
            self.losing = False
            for task in await super().get(ids):
                if task is not None:
                    self._remove(task)
        return await super().get(ids)


class AwayOnAdd(MemoryStore):
    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        raise StoreUnavailable("the store is away; try again")
