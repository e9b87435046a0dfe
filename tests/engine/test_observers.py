"""Observers are told of every accepted transition, once."""

from __future__ import annotations

import asyncio

from fairlead.core.events import CancelConfirmed, Completed, Failed, HandedBack, TimedOut
from fairlead.core.instant import DAY, SECOND
from fairlead.core.task import State
from fairlead.engine.engine import Settlement
from fairlead.engine.events.types import Happening, Occurrence
from tests.engine.building import BOOM, Bench, a_wish


async def test_the_life_of_a_task_is_told_step_by_step(bench: Bench) -> None:
    task = await bench.submit(delay=SECOND, max_retries=1)
    bench.clock.advance(SECOND)
    await bench.engine.sweep()
    (task,) = await bench.claim()
    await bench.settle(task, HandedBack())
    (task,) = await bench.claim()
    await bench.settle(task, TimedOut())
    bench.clock.advance(2 * SECOND)
    await bench.engine.sweep()
    (task,) = await bench.claim()
    await bench.settle(task, Failed(failure=BOOM))
    await bench.engine.replay(task.id)
    (task,) = await bench.claim()
    await bench.engine.cancel(task.id)
    await bench.settle(task, CancelConfirmed())
    bench.clock.advance(DAY)
    await bench.engine.sweep()

    assert bench.told() == [
        Happening.SUBMITTED,
        Happening.READY,
        Happening.STARTED,
        Happening.HANDED_BACK,
        Happening.STARTED,
        Happening.RETRYING,
        Happening.READY,
        Happening.STARTED,
        Happening.DEAD_LETTER,
        Happening.REPLAYED,
        Happening.STARTED,
        Happening.CANCEL_ASKED,
        Happening.CANCELLED,
        Happening.REMOVED,
    ]


async def test_versions_told_are_one_apart_so_nothing_is_missed_or_told_twice(bench: Bench) -> None:
    task = await bench.submit()
    for _ in range(3):
        (task,) = await bench.claim()
        await bench.engine.cancel(task.id)
        await bench.settle(task, Failed(failure=BOOM))
        await bench.engine.replay(task.id)

    versions = [occurrence.task.status.version for occurrence in bench.occurrences]
    assert versions == list(range(1, len(versions) + 1))


async def test_a_task_is_shown_as_it_stands_after_it(bench: Bench) -> None:
    task = await bench.executing()
    settled = await bench.settle(task, Completed(b"1"))

    assert bench.occurrences[-1] == Occurrence(Happening.COMPLETED, bench.clock.now(), settled)


async def test_a_removed_task_is_shown_as_it_last_stood(bench: Bench) -> None:
    settled = await bench.settle(await bench.executing(), Completed(b"1"))
    await bench.engine.discard(settled.id)

    assert bench.occurrences[-1] == Occurrence(Happening.REMOVED, bench.clock.now(), settled)


async def test_a_settle_said_again_is_not_told_again(bench: Bench) -> None:
    task = await bench.executing()
    for _ in range(3):
        await bench.settle(task, Completed())

    assert bench.told().count(Happening.COMPLETED) == 1


async def test_a_settle_refused_is_not_told_as_if_it_had_happened(bench: Bench) -> None:
    task = await bench.executing()
    await bench.settle(task, HandedBack())
    await bench.engine.settle([Settlement(task, Completed())])

    assert Happening.COMPLETED not in bench.told()


async def test_of_many_submits_of_one_key_one_is_told(bench: Bench) -> None:
    await asyncio.gather(*(bench.engine.submit(a_wish(idempotency_key="k")) for _ in range(20)))

    assert bench.told() == [Happening.SUBMITTED]


async def test_every_observer_is_told_also_one_that_came_later(bench: Bench) -> None:
    late: list[Occurrence] = []
    await bench.submit()
    bench.engine.observe(late.append)
    task = await bench.submit()

    assert [occurrence.task.id for occurrence in late] == [task.id]
    assert len(bench.occurrences) == 2


async def test_a_lost_worker_is_told_as_a_retry_and_then_as_a_dead_letter(bench: Bench) -> None:
    await bench.executing(max_crashes=1)
    for _ in range(2):
        bench.clock.advance(30 * SECOND)
        await bench.engine.sweep()
        bench.clock.advance(2 * SECOND)
        await bench.engine.sweep()
        await bench.claim()

    assert bench.told()[2:] == [Happening.RETRYING, Happening.READY, Happening.STARTED, Happening.DEAD_LETTER]
    assert bench.occurrences[-1].task.state is State.DEAD_LETTER
