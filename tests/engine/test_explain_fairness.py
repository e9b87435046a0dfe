"""What explain says of a task whose queue is shared by fair keys, on every store that gives turns."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import asdict

from fairlead.core.events import HandedBack
from fairlead.core.explain.explanation import Cause, CauseCode, Explanation
from fairlead.core.identity import WorkerId
from fairlead.core.instant import HOUR
from fairlead.core.queues.order import Promote, Strict
from fairlead.core.task import Priority, State, Task
from fairlead.storage.protocol import Sharing, Store
from tests.engine.building import Bench, a_wish

WORKER = WorkerId("worker-1")


@pytest.fixture
async def bench(any_store: Store) -> Bench:
    if not isinstance(any_store, Sharing):
        pytest.skip("the store gives no turns")
    bench = Bench(store=any_store)
    await bench.engine.worker_records.register(WORKER, queues=["default"], capacity=4)
    return bench


async def submit(bench: Bench, count: int, **wish: object) -> list[Task]:
    answers = await bench.engine.submit_many([a_wish(**wish)] * count)
    return [answer.task for answer in answers if not isinstance(answer, Exception)]


def turns_of(told: Explanation) -> Cause:
    (cause,) = [each for each in told.causes if each.code == CauseCode.TAKES_TURNS]
    return cause


@pytest.mark.parametrize("seed", range(6))
async def test_every_place_is_exact(bench: Bench, seed: int) -> None:
    """Each of a mixed line is claimed at the place that was told, counted claim by claim."""
    luck = random.Random(seed)
    order = Strict() if seed % 3 == 2 else Promote()
    await bench.engine.queues.change("default", fair="tenant", weight={"acme": 3, "tiny": 0.3}, order=order)
    submitted: list[Task] = []
    for _ in range(4):
        for tenant in luck.sample(["acme", "umbrella", "tiny", "initech", None], 3):
            wish = {"tenant": tenant, "type": luck.choice(["a", "b"])}
            submitted += await submit(bench, luck.randrange(1, 6), priority=Priority(luck.randrange(2, 4)), **wish)
        for task in await bench.claim(luck.randrange(5)):
            if luck.random() < 0.2:
                await bench.settle(task, HandedBack())
        bench.clock.advance(luck.randrange(3))
    now = [await bench.engine.get(task.id) for task in submitted]
    waiting = [task for task in now if task.state is State.QUEUED]
    told: dict[str, int | None] = {}
    for task in waiting:
        line = (await bench.engine.explain(task.id)).line
        assert line is not None and (line.exact or _may_tie(task))
        told[task.id] = line.position if line.exact else None
    served = [task.id for _ in waiting for task in await bench.claim(1)]
    assert len(served) == len(waiting)
    wrong = {place: told[each] for place, each in enumerate(served, 1) if told[each] not in (place, None)}
    assert not wrong
    assert sum(place is not None for place in told.values()) > len(told) // 2


def _may_tie(task: Task) -> bool:
    """Whether a task without a key can have its turn: then their ids decide, which are not read."""
    return task.spec.takes_turns


async def test_the_sentence_says_who_shares_the_line_and_who_is_ahead(bench: Bench) -> None:
    await bench.engine.queues.change("default", fair="tenant")
    for tenant in ("initech", "umbrella", "hooli", "globex"):
        await submit(bench, 30, tenant=tenant)
    *_, last = await submit(bench, 4, tenant="acme")
    told = await bench.engine.explain(last.id)
    assert turns_of(told).text == (
        "5 tenants share this line, acme gets 1 turn in 5; 19 tasks are ahead, about 3 of them its own"
    )
    data = turns_of(told).data
    assert (data["keys"], data["turn_in"], data["ahead_of_others"], data["ahead_of_own"]) == (5, 5.0, 16, 3)
    assert told.line is not None and told.line.position == 20 and told.line.exact


async def test_how_many_of_its_own_are_ahead_is_exact_only_where_none_can_be_missing(bench: Bench) -> None:
    await bench.engine.queues.change("default", fair="tenant")
    await submit(bench, 9, tenant="umbrella")
    first, *others, last = await submit(bench, 9, tenant="acme")
    for task in others:
        await bench.engine.cancel(task.id)
    told = await bench.engine.explain(last.id)
    assert told.line is not None and told.line.exact
    assert turns_of(told).data["exact"] is False and "about 1 of them its own" in turns_of(told).text
    await bench.engine.cancel(first.id)
    told = await bench.engine.explain(last.id)
    assert turns_of(told).data["exact"] is True
    assert "9 tasks of others and 0 of its own are ahead" in turns_of(told).text


async def test_weights_are_part_of_it(bench: Bench) -> None:
    await bench.engine.queues.change("default", fair="tenant", weight={"acme": 3})
    await submit(bench, 9, tenant="umbrella")
    first, *_, last = await submit(bench, 9, tenant="acme")
    assert "acme gets 1 turn in 1.33" in turns_of(await bench.engine.explain(last.id)).text
    assert turns_of(await bench.engine.explain(first.id)).data["ahead_of_own"] == 0
    assert turns_of(await bench.engine.explain(last.id)).data["ahead_of_own"] == 8


async def test_tasks_without_a_key_are_one_key_together(bench: Bench) -> None:
    *_, last = await submit(bench, 3)
    await bench.engine.queues.change("default", fair="tenant")
    await submit(bench, 9, tenant="acme")
    told = turns_of(await bench.engine.explain(last.id))
    assert told.text.startswith("2 tenants share this line, those without a key get 1 turn in 2 together")
    assert told.data["ahead_of_own"] == 2


async def test_promoted_tasks_have_their_turns_and_the_place_is_about(bench: Bench) -> None:
    await bench.engine.queues.change("default", fair="tenant")
    await submit(bench, 5, tenant="acme", priority=Priority.LOW)
    bench.clock.advance(2 * HOUR)
    await bench.engine.worker_records.beat(WORKER, running=0)
    *_, last = await submit(bench, 6, tenant="umbrella", priority=Priority.HIGH)
    line = (await bench.engine.explain(last.id)).line
    assert line is not None and not line.exact
    served = [task.id for _ in range(11) for task in await bench.claim(1)]
    assert 6 <= served.index(last.id) + 1 <= (line.position or 0) <= 8


async def test_others_appear_as_numbers_only(bench: Bench) -> None:
    await bench.engine.queues.change("default", fair="tenant")
    await submit(bench, 3, tenant="umbrella")
    (own,) = await submit(bench, 1, tenant="acme")
    told = await bench.engine.explain(own.id, "acme")
    assert turns_of(told).data["keys"] == 2
    assert "umbrella" not in repr([asdict(cause) for cause in told.causes])


async def test_a_queue_without_fair_keys_says_nothing_of_turns(bench: Bench) -> None:
    (task,) = await submit(bench, 1, tenant="acme")
    assert CauseCode.TAKES_TURNS not in [cause.code for cause in (await bench.engine.explain(task.id)).causes]
