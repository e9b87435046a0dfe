"""Explaining tasks, on every store: where each stands, who could take it, and why it ran when it ran."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairlead.core.circuit import CircuitSettings
from fairlead.core.errors import StoreUnavailable, TaskNotFound
from fairlead.core.events import Completed, Failed
from fairlead.core.explain.explanation import Cause, CauseCode
from fairlead.core.health.diagnosis import Level
from fairlead.core.identity import WorkerId
from fairlead.core.instant import HOUR, MILLISECOND, MINUTE, SECOND
from fairlead.core.queues.limits import Rate
from fairlead.core.queues.order import HeadStart, Policy, Promote, Strict, Weighted
from fairlead.core.queues.promotion import Promotion
from fairlead.core.settings import Settings
from fairlead.core.task import Priority, State, Task
from fairlead.engine import submit
from fairlead.engine.engine import Submitted
from fairlead.engine.explain import causes, explainer
from fairlead.engine.worker_records import KindSlots
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store
from fairlead.storage.values import Record
from fairlead.testing.builders import a_settle
from fairlead.wire.explanations import explanation_of, explanation_shown
from tests.engine.building import BOOM, Bench, a_wish
from tests.engine.test_doctor import found
from tests.server.serving import NOBODY

CRITICAL, HIGH, MEDIUM, LOW = Priority
ONE = WorkerId("one")


@pytest.fixture
def bench(any_store: Store) -> Bench:
    return Bench(store=any_store, batching=False)


async def join(bench: Bench, **what: object) -> None:
    about: dict[str, object] = {"queues": ["default"], "capacity": 4} | what
    await bench.engine.worker_records.register(ONE, **about)  # type: ignore[arg-type]


async def codes(bench: Bench, task: Task) -> list[str]:
    return [cause.code for cause in (await bench.engine.explain(task.id)).causes]


@pytest.mark.parametrize("order", [Promote(low=2, medium=3, high=4), Strict(), HeadStart(high=3 * SECOND)], ids=type)
async def test_the_position_is_that_of_the_claim(any_store: Store, order: Policy) -> None:
    """What is said of every task of a mixed line is the order in which a worker then gets them."""
    bench = Bench(Settings(order=order), store=any_store, batching=False)
    await join(bench, capabilities=["gpu"])
    luck = random.Random(7)
    told: dict[int, str] = {}
    ids = []
    for _ in range(40):
        wish = {"priority": luck.choice(list(Priority)), "type": luck.choice(["a", "b"])}
        requires = luck.choice([frozenset(), frozenset({"gpu"})])
        ids.append((await bench.submit(**wish, requires=requires)).id)
        bench.clock.advance(luck.randrange(2))
    await bench.submit(queue="other", priority=CRITICAL)
    for task_id in ids:
        line = (await bench.engine.explain(task_id)).line
        assert line is not None and line.exact and line.ahead == sum(line.ahead_by_priority.values())
        assert line.position is not None
        told[line.position] = task_id
    claimed = await bench.claim(40, capabilities=["gpu"])
    assert [told[position] for position in range(1, 41)] == [task.id for task in claimed]


async def test_only_what_competes_for_slots_of_its_kind_is_ahead(bench: Bench) -> None:
    """A worker claims for each kind of handler apart, so a place and the free slots are those of the kind."""
    kinds = [
        KindSlots(kind="async", capacity=100, running=3, types=("fetch", "send")),
        KindSlots(kind="thread", capacity=2, running=2, types=("resize",)),
    ]
    await join(bench, types=["fetch", "send", "resize"], capacity=102, slots=kinds)
    await bench.engine.worker_records.beat(ONE, running=5, by_kind={"async": 3, "thread": 2})
    others = [await bench.submit(type=each) for each in ("fetch", "send", "fetch")]
    first, second = [await bench.submit(type="resize") for _ in range(2)]
    last = await bench.submit(type="send")
    told = {task.id: await bench.engine.explain(task.id) for task in (*others, first, second, last)}
    places = {task_id: each.line and (each.line.position, each.line.exact) for task_id, each in told.items()}
    assert [places[task.id] for task in (first, second, last)] == [(1, True), (2, True), (4, True)]
    free = [each.forecast and each.forecast.free_slots for each in (told[first.id], told[last.id])]
    assert free == [2, 100], "nothing of theirs executes, by the store"
    claimed = [await bench.claim(9, types=each.types) for each in kinds]
    assert [task.id for task in claimed[0]] == [*(task.id for task in others), last.id]
    assert [task.id for task in claimed[1]] == [first.id, second.id]


async def test_only_what_a_claim_would_take_now_is_ahead(bench: Bench) -> None:
    """Urgent tasks that cannot be served are passed over, by the claim and by what is said of the place."""
    types = ["send_mail", "paused", "broken", "limited"]
    await join(bench, types=types)
    await bench.engine.queues.change("default", type_running={"limited": 1})
    await bench.engine.circuits.set("broken", CircuitSettings(open_for=MINUTE))
    await bench.engine.circuits.open("broken")
    await bench.engine.queues.pause_type("paused")
    for task_type in ("paused", "broken", "unknown", "limited", "limited"):
        await bench.submit(type=task_type, priority=CRITICAL)
    await bench.submit(requires=frozenset({"gpu"}), priority=CRITICAL)
    task = await bench.submit(priority=LOW)
    told = await bench.engine.explain(task.id)
    assert told.line is not None
    assert (told.line.position, told.line.ahead_by_priority[CRITICAL]) == (2, 1)
    first, second = await bench.claim(5, ONE, types=types)
    assert (first.spec.type, second.id) == ("limited", task.id)


@pytest.mark.parametrize(
    ("settings", "key", "said"),
    [
        ({"running": 2}, None, "1 more may start now of the queue default, by its limit"),
        ({"type_running": {"send_mail": 2}}, None, "1 more may start now of the task type send_mail, by its limit"),
        ({"rate": Rate.parse("1/h")}, None, "no more may start now of the queue default, by its limit"),
        ({}, "customer 7", "no more may start now of the concurrency key customer 7, by its limit"),
    ],
    ids=["queue", "type", "rate", "key"],
)
async def test_what_a_limit_keeps_from_being_reached_has_no_place(
    bench: Bench, settings: dict[str, Any], key: str | None, said: str
) -> None:
    """One runs, one is ahead, and then it comes: nothing ends, so no claim gets there."""
    await join(bench)
    if settings:
        await bench.engine.queues.change("default", **settings)
    await bench.submit(concurrency_key=key)
    assert len(await bench.claim(1, ONE)) == 1
    _, task = await bench.submit(concurrency_key=key), await bench.submit(concurrency_key=key)
    told = await bench.engine.explain(task.id)
    assert told.line is not None and (told.line.position, told.line.unreached) == (None, said)
    assert CauseCode.NEXT_IN_LINE not in [cause.code for cause in told.causes]
    assert task.id not in [each.id for each in await bench.claim(5, ONE)]


async def test_promoted_and_critical_tasks_are_told_their_turns(bench: Bench) -> None:
    """What is said goes by whose turn it is where the engine claims."""
    old = [await bench.submit(priority=LOW) for _ in range(3)]
    bench.clock.advance(2 * HOUR)
    new = [await bench.submit(priority=CRITICAL) for _ in range(5)]
    await join(bench)
    left = [*old, *new]
    while left:
        told = {task.id: (await bench.engine.explain(task.id)).line for task in left}
        places = {line.position: task_id for task_id, line in told.items() if line is not None}
        assert sorted(place for place in places if place) == list(range(1, len(left) + 1))
        (task,) = await bench.claim(1, ONE)
        assert places[1] == task.id
        left = [each for each in left if each.id != task.id]


async def test_a_waiting_task_is_told_when_it_is_promoted_and_when_its_start_is_certain(bench: Bench) -> None:
    task = await bench.submit(priority=LOW)
    since = bench.clock.now()
    bench.clock.advance(15 * MINUTE)
    told = await bench.engine.explain(task.id)
    assert (told.priority, told.effective_priority) == (LOW, MEDIUM)
    assert told.line is not None
    assert told.line.next_promotion == Promotion(since + 30 * MINUTE, HIGH)
    assert (told.line.unpassable_from, told.line.turns_from) == (None, since + HOUR)


async def test_why_nobody_takes_it(bench: Bench) -> None:
    task = await bench.submit(type="render", requires=frozenset({"gpu"}))
    assert await codes(bench, task) == [CauseCode.NO_WORKERS]
    await join(bench, types=["send_mail"])
    assert await codes(bench, task) == [CauseCode.TYPE_UNKNOWN]
    await join(bench, types=["render"])
    assert await codes(bench, task) == [CauseCode.CAPABILITY_MISSING]
    await join(bench, queues=["video"], capabilities=["gpu"])
    assert await codes(bench, task) == [CauseCode.QUEUE_UNSERVED]
    await join(bench, capabilities=["gpu"])
    assert await codes(bench, task) == [CauseCode.NEXT_IN_LINE]
    await bench.engine.worker_records.beat(ONE, running=0, draining=True)
    assert await codes(bench, task) == [CauseCode.ALL_DRAINING]
    bench.clock.advance(MINUTE)
    told = await bench.engine.explain(task.id)
    assert told.causes[0].code == CauseCode.NO_WORKERS and told.causes[0].data == {"dead": 1}
    assert told.summary.startswith("it is queued: no worker is running; 1 was lost")
    assert told.forecast is not None and told.forecast.estimated_start is None
    assert told.forecast.no_estimate is not None and "no worker is running" in told.forecast.no_estimate


async def test_pauses_come_first(bench: Bench) -> None:
    task = await bench.submit()
    await join(bench)
    await bench.engine.queues.pause("default")
    await bench.engine.queues.pause_type("send_mail")
    told = await bench.engine.explain(task.id)
    assert [cause.code for cause in told.causes] == [CauseCode.QUEUE_PAUSED, CauseCode.TYPE_PAUSED]
    assert all(cause.blocks for cause in told.causes)
    assert told.line is not None and told.line.position is None and told.line.unreached == told.causes[0].text
    assert told.forecast is not None and (told.forecast.workers, told.forecast.latest_start) == (1, None)


async def test_an_open_circuit_holds_a_task_back(bench: Bench) -> None:
    await bench.engine.circuits.set("send_mail", CircuitSettings(open_for=MINUTE))
    task = await bench.submit()
    await join(bench)
    assert CauseCode.CIRCUIT_OPEN not in await codes(bench, task)
    await bench.engine.circuits.open("send_mail")
    told = await bench.engine.explain(task.id)
    (cause,) = [cause for cause in told.causes if cause.code == CauseCode.CIRCUIT_OPEN]
    assert cause.blocks and "is open, by hand; a few tasks are tried in 60s" in cause.text
    assert told.forecast is not None and told.forecast.estimated_start is None


async def test_a_limit_that_is_reached_is_named(bench: Bench) -> None:
    await join(bench)
    await bench.submit(concurrency_key="customer 7")
    task = await bench.submit(concurrency_key="customer 7")
    await bench.claim(1, ONE)
    (cause,) = [cause for cause in (await bench.engine.explain(task.id)).causes if cause.code == "limit_reached"]
    assert cause.text == (
        "the concurrency key customer 7 has 1 running, and 1 may run at once; "
        "`fairlead queues set default --key-running N` changes that"
    )
    assert not cause.blocks
    await bench.engine.queues.change("default", key_running=0, rate=Rate.parse("1/h"))
    bench.clock.advance(2 * SECOND)
    await bench.claim(1, ONE)
    task = await bench.submit()
    (cause,) = [cause for cause in (await bench.engine.explain(task.id)).causes if cause.code == "limit_reached"]
    assert cause.text.startswith("the queue default has started as many as its rate allows; the next may start in ")


async def test_the_pace_of_its_workers_gives_the_start(bench: Bench) -> None:
    await join(bench, capacity=1)
    for _ in range(30):
        await bench.submit()
        (task,) = await bench.claim(1, ONE)
        await bench.settle(task, Completed(None))
    bench.clock.advance(10 * SECOND)
    await bench.submit()
    await bench.claim(1, ONE)
    await bench.engine.worker_records.beat(ONE, running=1)
    waiting = [await bench.submit() for _ in range(6)]
    told = await bench.engine.explain(waiting[-1].id)
    assert [cause.code for cause in told.causes] == [CauseCode.TASKS_AHEAD, CauseCode.WORKERS_BUSY]
    assert told.forecast is not None
    # 30 in the ten seconds that it is there: five ahead, and then this one.
    assert told.forecast.rate == 3.0 and told.forecast.worker_ids == (ONE,)
    assert told.forecast.estimated_start == told.at + 2 * SECOND
    # Half as long again as one start in four takes at three per second, and ten times what one takes.
    promised = told.forecast.latest_start
    assert promised is not None and abs(promised - told.at - 50 * MINUTE - 12 * SECOND - 10 * SECOND // 3) < MILLISECOND
    # Nothing is lost on the way over HTTP.
    assert explanation_of(explanation_shown(told)) == told


async def test_a_scheduled_task_is_told_until_when_and_why(bench: Bench) -> None:
    await join(bench)
    later = await bench.submit(delay=MINUTE)
    told = await bench.engine.explain(later.id)
    assert (told.causes[0].code, told.causes[0].data) == (CauseCode.NOT_DUE, {"seconds": 60.0})
    assert told.due_at == later.status.ready_at and told.line is None
    assert told.forecast is not None and told.forecast.worker_ids == (ONE,)
    failed = await bench.settle(await bench.executing(), Failed(failure=BOOM))
    told = await bench.engine.explain(failed.id)
    assert told.state is State.SCHEDULED and told.causes[0].code == CauseCode.BACKOFF
    assert told.causes[0].text.startswith("attempt 1 failed (Boom: it went boom), and the next is due in ")
    bench.clock.advance(MINUTE)
    assert (await codes(bench, failed))[0] == CauseCode.SWEEP_LATE


@pytest.mark.parametrize("failed", [False, True], ids=["submitted", "put off"])
async def test_a_sweep_is_late_when_two_of_them_have_not_come(bench: Bench, failed: bool) -> None:
    task = await bench.submit(delay=0 if failed else MINUTE)
    if failed:
        task = await bench.settle(await bench.executing(), Failed(failure=BOOM))
    usual = CauseCode.BACKOFF if failed else CauseCode.NOT_DUE
    interval = bench.engine.settings.sweep_interval
    bench.clock.advance(task.status.ready_at - bench.clock.now() + 84 * MILLISECOND)
    (first, *_) = (await bench.engine.explain(task.id)).causes
    assert (first.code, first.data["seconds"]) == (usual, 0.0)
    assert first.text.endswith("is due now: a sweep queues it within 1s")
    bench.clock.advance(2 * interval - 84 * MILLISECOND)
    assert (await codes(bench, task))[0] == usual
    bench.clock.advance(1)
    assert (await codes(bench, task))[0] == CauseCode.SWEEP_LATE


async def test_a_task_that_was_let_go_is_due_from_then_on(bench: Bench) -> None:
    first = await bench.executing()
    last = await bench.submit(after=(first.id,))
    bench.clock.advance(HOUR)
    # As a worker leaves it that dies between the end of the first and what follows from it.
    await bench.store.apply([a_settle(first, Completed(None), now=bench.clock.now())])

    assert found(await bench.engine.diagnose(), "sweep").level is Level.GREEN
    assert (await codes(bench, last))[0] == CauseCode.NOT_DUE

    bench.clock.advance(2 * bench.engine.settings.sweep_interval + 1)

    late = found(await bench.engine.diagnose(), "sweep")
    assert (late.level, late.value) == (Level.RED, "1 due and still scheduled; the oldest for 2 s")
    assert (await codes(bench, last))[0] == CauseCode.SWEEP_LATE


async def test_an_ended_task_is_told_why_it_ran_when_it_ran(bench: Bench) -> None:
    task = await bench.submit(priority=LOW)
    bench.clock.advance(11 * MINUTE)
    (claimed,) = await bench.claim(1, ONE)
    running = await bench.engine.explain(task.id)
    assert [cause.code for cause in running.causes] == [CauseCode.ATTEMPT_BEGAN, CauseCode.EXECUTING]
    bench.clock.advance(SECOND)
    await bench.settle(claimed, Completed(None))
    told = await bench.engine.explain(task.id)
    assert [cause.code for cause in told.causes] == [CauseCode.ATTEMPT_BEGAN, CauseCode.ENDED]
    assert told.causes[0].data == {
        "attempt": 1,
        "waited_seconds": 660.0,
        "worker": "one",
        "served_as": "medium",
        "promoted": True,
    }
    assert told.effective_priority is MEDIUM and told.line is None and told.forecast is None


async def test_drawn_turns_are_explained_too(any_store: Store) -> None:
    bench = Bench(Settings(order=Weighted()), store=any_store, batching=False)
    await join(bench)
    tasks = [await bench.submit(priority=priority) for priority in (LOW, LOW, CRITICAL)]
    line = (await bench.engine.explain(tasks[1].id)).line
    assert line is not None and line.ahead_by_priority == {CRITICAL: 1, HIGH: 0, MEDIUM: 0, LOW: 1}
    (claimed,) = await bench.claim()
    assert (await bench.engine.explain(claimed.id)).effective_priority is claimed.status.priority


async def test_no_task_is_no_explanation(bench: Bench) -> None:
    with pytest.raises(TaskNotFound):
        await bench.engine.explain(NOBODY)  # type: ignore[arg-type]


async def test_what_holds_tasks_back_elsewhere_can_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seam for whatever else keeps tasks from starting."""
    bench = Bench()
    await join(bench)
    task = await bench.submit()

    async def held(seen: causes.Circumstances) -> list[Cause]:
        assert seen.task == task
        return [Cause("held", "it is held", blocks=True)]

    monkeypatch.setattr(explainer, "SOURCES", (*causes.SOURCES, held))
    told = await bench.engine.explain(task.id)
    assert told.summary == "it is queued: it is held"
    assert told.forecast is not None and told.forecast.estimated_start is None


class CountingStore(MemoryStore):
    """Counts how often the workers are looked up, and may be out of reach."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.away = False

    async def scan(self, kind: str) -> list[Record]:
        if kind == "worker":
            self.looks += 1
            if self.away:
                raise StoreUnavailable("it is away")
        return await super().scan(kind)


async def test_many_submits_look_once_at_the_workers() -> None:
    store = CountingStore()
    bench = Bench(store=store)
    submitted = await bench.engine.submit(a_wish())
    for _ in range(100):
        (doubt,) = await bench.engine.doubts(submitted)
        assert doubt.code == CauseCode.NO_WORKERS
    assert store.looks == 1
    await join(bench)
    store.looks = 0
    bench.clock.advance(submit.FRESH)
    assert await bench.engine.doubts(submitted) == ()
    assert store.looks == 1


async def test_a_store_that_is_away_and_a_task_that_was_there_raise_no_doubts() -> None:
    store = CountingStore()
    bench = Bench(store=store)
    submitted = await bench.engine.submit(a_wish())
    assert await bench.engine.doubts(Submitted(submitted.task, existing=True)) == ()
    store.away = True
    assert await bench.engine.doubts(submitted) == ()
