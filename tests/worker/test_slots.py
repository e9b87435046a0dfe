"""Slots by kind of handler: how many there are, what is claimed for them, and what a claim asks for."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from fairlead.core.errors import InvalidSettings
from fairlead.core.task import Priority, State, Task
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Claim
from fairlead.worker.handlers import Handler, HandlerPlace, Handlers
from fairlead.worker.slots import MOST_AT_ONCE, ClaimSize, Slots, WorkerSlots, usual_capacity
from fairlead.worker.worker import WorkerSettings
from tests.worker.building import Crew, eventually
from tests.worker.processor import Processor


class Counted(NamedTuple):
    """Of a claim, which types it asked for, how many tasks of them, how many it got, and how many slots were free."""

    types: frozenset[str] | None
    limit: int
    given: int
    free: int


class CountingStore(MemoryStore):
    """Notes each claim."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: list[Counted] = []
        self.free: Callable[[], int] = lambda: 0

    async def claim(self, claim: Claim) -> list[Task]:
        free = self.free()
        tasks = await super().claim(claim)
        self.claims.append(Counted(claim.types, claim.limit, len(tasks), free))
        return tasks


def sizes(given: Sequence[int]) -> list[int]:
    """What claims ask for in turn that would be given so many at most."""
    size, asked = ClaimSize(), []
    for there in given:
        asked.append(size.most)
        size = size.after(size.most, min(there, size.most))
    return asked


def test_claims_grow_as_long_as_they_are_full() -> None:
    assert sizes([1_000] * 9) == [8, 16, 32, 64, 128, 256, 500, 500, 500]


def test_a_claim_for_the_few_slots_that_are_free_may_be_full_too() -> None:
    size = ClaimSize(64)
    assert size.after(1, 1) == ClaimSize(128)


def test_after_a_claim_that_was_not_full_the_next_asks_for_twice_what_there_was() -> None:
    assert ClaimSize(256).after(256, 60) == ClaimSize(120)
    assert ClaimSize(256).after(256, 3) == ClaimSize(8)
    assert ClaimSize(MOST_AT_ONCE).after(MOST_AT_ONCE, MOST_AT_ONCE - 1) == ClaimSize(MOST_AT_ONCE)


def test_who_found_nothing_begins_anew() -> None:
    assert sizes([1_000, 1_000, 0, 1_000]) == [8, 16, 32, 8]


@pytest.mark.parametrize(
    ("processors", "concurrency", "in_threads", "isolated"),
    [(1, 100, 5, 1), (2, 100, 6, 2), (6, 100, 10, 6), (64, 100, 10, 64), (128, 100, 10, 100), (8, 3, 3, 3)],
)
def test_threads_and_processes_have_few_slots(
    processors: int, concurrency: int, in_threads: int, isolated: int
) -> None:
    assert usual_capacity(HandlerPlace.LOOP, concurrency, processors) == concurrency
    assert usual_capacity(HandlerPlace.THREAD, concurrency, processors) == in_threads
    assert usual_capacity(HandlerPlace.PROCESS, concurrency, processors) == isolated


def test_what_is_said_counts_even_above_the_concurrency() -> None:
    settings = WorkerSettings(concurrency=3, thread_concurrency=50, isolated_concurrency=7)
    assert [settings.capacities[place] for place in HandlerPlace] == [3, 50, 7]


@pytest.mark.parametrize("name", ["thread_concurrency", "isolated_concurrency"])
@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "3"])
def test_a_number_of_slots_is_a_whole_number_of_at_least_one(name: str, wrong: object) -> None:
    with pytest.raises(InvalidSettings, match=name):
        WorkerSettings(**{name: wrong})  # type: ignore[arg-type]


async def test_each_kind_fills_its_own_slots_and_waits_for_no_other(crew: Crew) -> None:
    release, released = asyncio.Event(), threading.Event()
    running: Counter[str] = Counter()

    async def on_loop() -> None:
        running["async"] += 1
        await release.wait()

    def in_thread() -> None:
        running["thread"] += 1
        released.wait()

    crew.handle(on_loop)
    crew.handle(in_thread)
    blocked = [await crew.submit("in_thread", priority=Priority.CRITICAL) for _ in range(5)]
    async with crew.working(concurrency=4, thread_concurrency=2):
        await eventually(lambda: running["thread"] == 2)
        # The threads are taken, and more of them are wanted: the event loop is free all the same.
        free = [await crew.submit("on_loop", priority=Priority.LOW) for _ in range(6)]
        await eventually(lambda: running["async"] == 4)
        assert running == {"thread": 2, "async": 4}
        released.set()
        for task in blocked:
            await crew.until(task, State.COMPLETED)
        release.set()
        for task in free:
            await crew.until(task, State.COMPLETED)


async def test_a_slot_of_one_kind_that_comes_free_is_used_while_another_kind_has_nothing() -> None:
    crew = Crew(store=CountingStore())
    started: list[int] = []
    doors = [threading.Event() for _ in range(3)]

    def in_thread(number: int) -> None:
        started.append(number)
        doors[number].wait()

    async def on_loop() -> None: ...

    crew.handle(in_thread)
    crew.handle(on_loop)
    for number in range(3):
        await crew.submit("in_thread", parameters={"number": number})
    async with crew.working(thread_concurrency=1):
        for number in range(3):
            await eventually(lambda number=number: started == list(range(number + 1)))  # type: ignore[misc]
            doors[number].set()


async def test_a_worker_of_one_kind_claims_in_one_breath_for_all_its_types() -> None:
    store = CountingStore()
    crew = Crew(store=store)

    async def one() -> None: ...

    async def two() -> None: ...

    crew.handle(one)
    crew.handle(two)
    tasks = [await crew.submit(name) for name in ("one", "two") * 5]
    async with crew.working():
        for task in tasks:
            await crew.until(task, State.COMPLETED)
    assert {claim.types for claim in store.claims} == {frozenset({"one", "two"})}


async def test_on_a_full_queue_all_claims_but_the_first_few_ask_for_every_free_slot() -> None:
    store = CountingStore()
    crew = Crew(store=store)

    async def work() -> None: ...

    crew.handle(work)
    tasks = [await crew.submit("work") for _ in range(1_220)]
    async with crew.working() as worker:
        store.free = lambda: worker._slots.of(HandlerPlace.LOOP).free
        for task in tasks:
            await crew.until(task, State.COMPLETED)
    full = [claim for claim in store.claims if claim.limit == claim.given]
    assert [claim.limit for claim in full[:3]] == [8, 16, 32]
    assert full[3].limit in {64, full[3].free}
    assert [claim.limit for claim in full[4:]] == [claim.free for claim in full[4:]]


def slots_of_two_kinds() -> tuple[WorkerSlots, Slots, Slots]:
    """Those of a worker with coroutines and threads, which looks for what is not there every hour."""

    async def on_loop() -> None: ...

    def in_thread() -> None: ...

    handlers = Handlers([Handler("on_loop", on_loop), Handler("in_thread", in_thread)])
    slots = WorkerSlots(handlers, WorkerSettings(thread_concurrency=6).capacities, interval=3_600.0)
    return slots, slots.of(HandlerPlace.LOOP), slots.of(HandlerPlace.THREAD)


async def test_a_kind_without_tasks_is_not_claimed_for_each_time_another_is() -> None:
    slots, on_loop, in_thread = slots_of_two_kinds()
    assert await slots.due() == [on_loop, in_thread]
    slots.note([(on_loop, 8, 8), (in_thread, 6, 0)])
    assert await slots.due() == [on_loop]
    slots.note([(on_loop, 16, 3)])
    assert await slots.due() == [on_loop]
    # Only when there is nothing for the others either, it is looked at before the worker waits.
    slots.note([(on_loop, 8, 0)])
    assert await slots.due() == [in_thread]
    assert not slots.are_idle
    slots.note([(in_thread, 6, 0)])
    assert slots.are_idle


async def test_a_worker_one_kind_of_which_is_full_does_not_wait_for_a_bell() -> None:
    slots, on_loop, in_thread = slots_of_two_kinds()
    in_thread.free = 0
    slots.note([(on_loop, 8, 0)])
    assert not slots.are_idle
    looking = asyncio.create_task(slots.due())
    await asyncio.sleep(0)
    in_thread.give_back()
    assert await looking == [in_thread]


async def test_one_wait_for_all_kinds_asks_for_what_each_of_them_can_bear() -> None:
    slots, on_loop, in_thread = slots_of_two_kinds()
    in_thread.free = 2
    assert (slots.wish, on_loop.wish, in_thread.wish) == (2, 8, 2)
    slots.note([(on_loop, 8, 0), (in_thread, 2, 0)])
    slots.note_wait(2, 0)
    assert slots.are_idle
    slots.note_wait(2, 1)
    assert await slots.due() == [on_loop, in_thread]


async def test_after_a_first_claim_that_was_full_a_worker_leaves_others_a_moment() -> None:
    slots, on_loop, _ = slots_of_two_kinds()
    now = asyncio.get_running_loop().time()
    slots.note([(on_loop, 8, 8)])
    assert on_loop.rests_until > now
    # One that had no room for more has nobody to wait for.
    on_loop.rests_until = 0.0
    slots.note([(on_loop, 3, 3)])
    assert on_loop.rests_until == 0.0


CHEAP = 10
"""How many turns of the processor a task of 0.1 s takes."""


@pytest.mark.parametrize("at_once", [None, 10], ids=["default", "the-most-by-default"])
async def test_tasks_that_compute_end_within_their_timeout(at_once: int | None) -> None:
    """60 tasks of 0.1 s of a processor, each with 4 s. At a hundred at once each of them would take 6 s."""
    processor = Processor(at_once)
    await processor.add(60, CHEAP)
    async with processor.working():
        await processor.work()
    assert len(processor.took) == 60
    assert max(processor.took) * 0.1 / CHEAP <= 1.0
    assert {task.state for task in await processor.tasks()} == {State.COMPLETED}


async def test_at_a_hundred_at_once_they_would_not() -> None:
    processor = Processor(100)
    await processor.add(60, CHEAP)
    async with processor.working():
        await processor.work()
    assert min(processor.took[-30:]) * 0.1 / CHEAP > 4.0


async def test_a_late_critical_task_starts_not_much_later_than_with_two_at_once() -> None:
    """It comes when a third of 150 low ones has ended and others have just begun, and takes the first free slot."""
    starts = {}
    for at_once in (2, None, 10, 100):
        processor = Processor(at_once)
        await processor.add(150, CHEAP, Priority.LOW)
        async with processor.working():
            starts[at_once] = await processor.start_of_a_late_one(50 * CHEAP + 5, Priority.CRITICAL)
    assert starts[None] <= 1.5 * starts[2]
    assert starts[10] <= 1.5 * starts[2]
    assert starts[100] > 1.5 * starts[2]
