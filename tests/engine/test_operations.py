"""Operations, on every store: everything meant is done once, whatever dies meanwhile, and no faster than allowed."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.admin import operations
from fairlead.admin.operations import runner as operation_runner
from fairlead.core.errors import OperationNotFound, OperationRefused
from fairlead.core.events import Failed
from fairlead.core.instant import DAY, MILLISECOND, MINUTE, SECOND
from fairlead.core.operation import LEASE, Action, NewOperation, Operation, Stage
from fairlead.core.query.parser import parse_query
from fairlead.core.task import Priority, State, Task
from fairlead.engine.events.types import Happening
from fairlead.storage.protocol import Lagging, Store
from fairlead.storage.values import Filter
from fairlead.testing.builders import a_task
from tests.engine.building import BOOM, Bench
from tests.engine.stocking import START, a_dead_letter, stock


class Killed(BaseException):
    """The process ends here."""


class Mortal:
    """A store whose user dies at a chosen call that writes."""

    def __init__(self, store: Store, lives: int) -> None:
        self._store = store
        self._lives = lives

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        if name not in ("put", "apply"):
            return call

        async def mortal(*arguments: Any, **how: Any) -> Any:
            self._lives -= 1
            if self._lives == 0:
                raise Killed
            answer = await call(*arguments, **how)
            if self._lives == -1:
                raise Killed
            return answer

        return mortal


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.core.operation.BATCH", 10)


async def finish(bench: Bench, operation: Operation) -> Operation:
    """Work on an operation until it stops."""
    while (now := await bench.engine.operations.get(operation.id)).stage.active:
        await bench.engine.operations.operator.once()
        bench.clock.advance(100 * MILLISECOND)
    return now


async def tasks_in(store: Store, *states: State) -> list[Task]:
    find = store.find_current if isinstance(store, Lagging) else store.find
    return await find(Filter(states=frozenset(states)), limit=10_000, newest_first=False)


def a_wish(action: Action = Action.REPLAY, query: str = "state:dead_letter", **how: Any) -> NewOperation:
    return NewOperation(action=action, query=parse_query(query), **how)


async def test_a_replay_queues_everything_that_is_meant_once(any_store: Store) -> None:
    bench = Bench(store=any_store)
    await stock(any_store, [a_dead_letter(n, queue="a" if n % 3 else "b") for n in range(60)])

    operation = await bench.engine.operations.start(
        a_wish(query="state:dead_letter queue:a params.user_id:<50", priority=Priority.CRITICAL, who="ada")
    )
    ended = await finish(bench, operation)

    assert (ended.stage, ended.expected, ended.done, ended.skipped, ended.failed) == (Stage.DONE, 33, 33, 0, 0)
    assert (ended.who, ended.holder, ended.batch) == ("ada", None, None)
    queued = await tasks_in(any_store, State.QUEUED)
    assert {(task.spec.queue, task.status.priority, task.status.retries) for task in queued} == {
        ("a", Priority.CRITICAL, 0)
    }
    assert len(queued) == 33 and len(await tasks_in(any_store, State.DEAD_LETTER)) == 27
    assert bench.told().count(Happening.REPLAYED) == 33


async def test_a_discard_and_a_cancel_do_the_same_for_their_states(any_store: Store) -> None:
    bench = Bench(store=any_store)
    await stock(any_store, [*(a_dead_letter(n) for n in range(25)), a_task(state=State.COMPLETED)])
    for _ in range(25):
        await bench.submit(type="spam")
    running = (await bench.claim(3))[0]

    discard = await bench.engine.operations.start(a_wish(Action.DISCARD, "type:send_mail"))
    cancel = await bench.engine.operations.start(a_wish(Action.CANCEL, "type:spam"))

    assert (await finish(bench, discard)).done == 25
    assert (await finish(bench, cancel)).done == 25
    assert await tasks_in(any_store, State.DEAD_LETTER) == []
    assert len(await tasks_in(any_store, State.CANCELLED)) == 22
    assert (await bench.engine.get(running.id)).status.cancel_asked
    assert (await finish(bench, await bench.engine.operations.start(a_wish(Action.CANCEL, "type:spam")))).done == 0


async def test_a_change_of_priority_reaches_what_waits_and_is_not_there_yet(any_store: Store) -> None:
    bench = Bench(store=any_store)
    for number in range(25):
        await bench.submit(type="report", priority=Priority.HIGH if number < 5 else Priority.LOW)
    await bench.submit(type="report", priority=Priority.LOW, delay=DAY)
    await bench.claim(2)
    wish = a_wish(Action.PRIORITIZE, "type:report", priority=Priority.HIGH)

    assert (await bench.engine.operations.preview(wish)).count == 21
    assert (await finish(bench, await bench.engine.operations.start(wish))).done == 21

    waiting = await tasks_in(any_store, State.QUEUED, State.SCHEDULED)
    assert [task.status.priority for task in waiting] == [Priority.HIGH] * 24
    assert bench.told().count(Happening.PRIORITIZED) == 21
    assert (await bench.engine.operations.preview(wish)).count == 0
    claimed = await bench.claim(30)
    assert [task.status.ready_at for task in claimed] == sorted(task.status.ready_at for task in claimed)


@pytest.mark.parametrize("action", Action)
async def test_whoever_dies_at_any_write_nothing_is_done_twice_and_nothing_left_out(
    any_store: Store, action: Action
) -> None:
    luck = random.Random(str(action))
    alive = Bench(store=any_store)
    if action in (Action.CANCEL, Action.PRIORITIZE):
        await stock(any_store, [a_task(type="send_mail") for n in range(95)])
    else:
        await stock(any_store, [a_dead_letter(n) for n in range(95)])
    priority = Priority.HIGH if action is Action.PRIORITIZE else None
    operation = await alive.engine.operations.start(a_wish(action, "type:send_mail", priority=priority))
    deaths = 0
    while (await alive.engine.operations.get(operation.id)).stage.active:
        # Each is a process of its own that dies at one of its first writes, before or after it has taken effect.
        mortal = Mortal(any_store, luck.randint(1, 8))
        bench = Bench(store=mortal, batching=False, clock=alive.clock, seed=luck.getrandbits(32))
        try:
            while (await alive.engine.operations.get(operation.id)).stage.active:
                await bench.engine.operations.operator.once()
        except Killed:
            deaths += 1
            alive.clock.advance(LEASE)

    ended = await alive.engine.operations.get(operation.id)
    assert deaths > 3
    assert (ended.stage, ended.done, ended.skipped, ended.failed) == (Stage.DONE, 95, 0, 0)
    states = {
        Action.REPLAY: {State.QUEUED: 95},
        Action.DISCARD: {},
        Action.CANCEL: {State.CANCELLED: 95},
        Action.PRIORITIZE: {State.QUEUED: 95},
    }
    tally = await any_store.tally()
    assert {state: count for lane in tally.lanes for state, count in lane.counts.items()} == states[action]
    if action is not Action.DISCARD:
        history = [len(task.status.history) for task in await tasks_in(any_store)]
        assert history == [1] * 95


async def test_a_task_that_fails_again_after_its_replay_is_not_replayed_again(bench: Bench) -> None:
    await stock(bench.store, [a_dead_letter(n) for n in range(30)])
    operation = await bench.engine.operations.start(a_wish())
    again = 0
    while (await bench.engine.operations.get(operation.id)).stage.active:
        await bench.engine.operations.operator.once()
        bench.clock.advance(SECOND)
        for task in await bench.claim(5):
            await bench.settle(task, Failed(failure=BOOM, retriable=False))
            again += 1

    assert again > 5
    assert (await bench.engine.operations.get(operation.id)).done == 30
    assert len(await tasks_in(bench.store, State.FAILED)) == again


async def test_only_what_was_there_at_the_moment_is_meant(bench: Bench) -> None:
    await stock(bench.store, [a_dead_letter(n) for n in range(5)])
    bench.clock.advance(SECOND)
    seen = await bench.engine.operations.preview(a_wish())
    bench.clock.advance(SECOND)
    late = await bench.executing(max_retries=0)
    await bench.settle(late, Failed(failure=BOOM))

    operation = await bench.engine.operations.start(a_wish(as_of=seen.as_of, expected=seen.count))

    assert (seen.count, len(seen.sample)) == (5, 5)
    assert (await finish(bench, operation)).done == 5
    assert [task.id for task in await tasks_in(bench.store, State.DEAD_LETTER)] == [late.id]


async def test_nothing_begins_if_there_are_not_as_many_as_were_seen(bench: Bench) -> None:
    await stock(bench.store, [a_dead_letter(n) for n in range(5)])

    with pytest.raises(OperationRefused, match="5 tasks match, not 4"):
        await bench.engine.operations.start(a_wish(expected=4))

    assert await bench.engine.operations.all() == []


async def test_a_dry_run_counts_and_shows_the_oldest_and_changes_nothing(any_store: Store) -> None:
    bench = Bench(store=any_store)
    tasks = await stock(any_store, [a_dead_letter(n) for n in range(40)])

    for query, count in (("state:dead_letter", 40), ("params.user_id:>=10 queue:default", 30)):
        preview = await bench.engine.operations.preview(a_wish(query=query))
        assert preview.count == count
        assert [task.id for task in preview.sample] == [task.id for task in tasks[40 - count :][:10]]
    assert await bench.engine.operations.all() == []


async def test_counting_very_many_ends_early_and_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.engine.search.MOST_COUNTED", 1_500)
    monkeypatch.setattr("fairlead.core.operation.BATCH", 1_000)
    await stock(bench.store, [a_dead_letter(n) for n in range(3_000)])
    wish = a_wish(query="error:unknown")

    preview = await bench.engine.operations.preview(wish)
    operation = await bench.engine.operations.start(wish)

    assert 1_500 <= preview.count < 3_000 and not preview.exact
    assert (operation.expected, operation.exact) == (preview.count, False)
    assert (await finish(bench, operation)).done == 3_000
    with pytest.raises(OperationRefused, match="not 5 as expected"):
        await bench.engine.operations.start(a_wish(Action.CANCEL, "state:queued", expected=5))


async def test_the_rate_is_never_exceeded_and_nearly_reached(bench: Bench) -> None:
    await stock(bench.store, [a_dead_letter(n) for n in range(400)])
    operation = await bench.engine.operations.start(a_wish(rate=20.0))
    done = []
    for _ in range(150):
        while await bench.engine.operations.operator.once() == 0:
            pass
        done.append((await bench.engine.operations.get(operation.id)).done)
        bench.clock.advance(100 * MILLISECOND)

    assert all(count <= 1 + 2 * tick for tick, count in enumerate(done))
    assert done[-1] >= 2 * 149 - 1
    # Whoever was away for long does not make up for it at once.
    bench.clock.advance(DAY)
    while await bench.engine.operations.operator.once() == 0:
        pass
    assert (await bench.engine.operations.get(operation.id)).done <= done[-1] + 20


async def test_a_canary_stops_after_so_many_and_goes_on_when_it_is_resumed(bench: Bench) -> None:
    await stock(bench.store, [a_dead_letter(n) for n in range(50)])
    operation = await bench.engine.operations.start(a_wish(canary=13))

    waiting = await finish(bench, operation)
    assert (waiting.stage, waiting.done) == (Stage.PAUSED, 13)
    assert "canary of 13" in waiting.note
    await bench.engine.operations.resume(operation.id)
    assert (await finish(bench, operation)).done == 50


async def test_it_can_be_paused_resumed_and_cancelled_while_it_runs(bench: Bench) -> None:
    await stock(bench.store, [a_dead_letter(n) for n in range(100)])
    operations = bench.engine.operations
    operation = await operations.start(a_wish())
    await operations.operator.once()

    assert (await operations.pause(operation.id)).stage is Stage.PAUSED
    for _ in range(3):
        await operations.operator.once()
    assert (await operations.get(operation.id)).done == 10
    await operations.resume(operation.id)
    await operations.operator.once()
    assert (await operations.get(operation.id)).stage is Stage.RUNNING
    cancelled = await operations.cancel(operation.id)
    await operations.operator.once()
    assert (cancelled.stage, cancelled.done) == (Stage.CANCELLED, 20)
    assert (await operations.get(operation.id)).done == 20
    assert await operations.cancel(operation.id) == cancelled
    with pytest.raises(OperationRefused, match="is cancelled"):
        await operations.resume(operation.id)
    with pytest.raises(OperationNotFound):
        await operations.pause("nobody")


async def test_a_pause_in_the_middle_of_a_batch_does_not_lose_its_counts(bench: Bench) -> None:
    await stock(bench.store, [a_dead_letter(n) for n in range(30)])
    operations = bench.engine.operations
    operation = await operations.start(a_wish())
    apply = bench.store.apply

    async def paused_meanwhile(changes: Any) -> Any:
        await operations.pause(operation.id)
        return await apply(changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operations.operator._task_changes, "apply", paused_meanwhile)
        await operations.operator.once()

    now = await operations.get(operation.id)
    assert (now.stage, now.done, now.batch, now.holder) == (Stage.PAUSED, 10, None, None)


async def test_one_process_at_a_time_works_on_an_operation(bench: Bench) -> None:
    await stock(bench.store, [a_dead_letter(n) for n in range(40)])
    other = Bench(store=bench.store, clock=bench.clock, seed=7)
    operation = await bench.engine.operations.start(a_wish())
    await bench.engine.operations.operator.once()
    holder = (await bench.engine.operations.get(operation.id)).holder

    await other.engine.operations.operator.once()
    assert (await bench.engine.operations.get(operation.id)).done == 10
    bench.clock.advance(LEASE)
    await other.engine.operations.operator.once()
    now = await bench.engine.operations.get(operation.id)
    assert now.done == 20 and now.holder != holder
    await bench.engine.operations.operator.once()
    assert (await bench.engine.operations.get(operation.id)).done == 20


async def test_it_is_kept_for_thirty_days_after_its_end(bench: Bench) -> None:
    await stock(bench.store, [a_dead_letter()])
    operation = await finish(bench, await bench.engine.operations.start(a_wish(who="ada")))

    bench.clock.advance(30 * DAY - SECOND)
    await bench.engine.operations.operator.once()
    assert [each.id for each in await bench.engine.operations.all()] == [operation.id]
    bench.clock.advance(MINUTE)
    await bench.engine.operations.operator.once()
    assert await bench.engine.operations.all() == []


async def test_an_operation_whose_query_cannot_be_read_here_is_paused(bench: Bench) -> None:
    await stock(bench.store, [a_dead_letter()])
    operation = await bench.engine.operations.start(a_wish())
    later = replace(operation, query="later:field")
    await bench.store.put(operations.KIND, operation.id, operation_runner.encode(later))

    await bench.engine.operations.operator.once()

    now = await bench.engine.operations.get(operation.id)
    assert now.stage is Stage.PAUSED and "cannot be read here" in now.note


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (a_wish(query=""), "would replay everything"),
        (a_wish(query="state:queued"), "states that replay is not for"),
        (a_wish(rate=0.0), "rate 0.0 is out of range"),
        (a_wish(canary=0), "canary 0 is out of range"),
        (a_wish(Action.DISCARD, priority=Priority.LOW), "only replay and prioritize can"),
        (a_wish(Action.PRIORITIZE, "state:queued"), "needs the new priority"),
        (a_wish(as_of=START + DAY), "in the future"),
    ],
)
async def test_what_makes_no_sense_is_refused(bench: Bench, wish: NewOperation, said: str) -> None:
    with pytest.raises(OperationRefused, match=said):
        await bench.engine.operations.start(wish)
