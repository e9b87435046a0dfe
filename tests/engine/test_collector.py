"""What a process counts of the tasks that pass through it."""

from __future__ import annotations

import contextlib
import random

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import TaskNotFound, WrongState
from fairlead.core.events import CancelConfirmed, Completed, Crashed, Failed, HandedBack, Outcome, TimedOut
from fairlead.core.identity import WorkerId
from fairlead.core.instant import MINUTE, SECOND
from fairlead.core.operation import Action, NewOperation
from fairlead.core.query.parser import parse_query
from fairlead.core.settings import Settings
from fairlead.core.task import Priority, Task
from fairlead.core.transitions import TRANSITIONS
from fairlead.engine.engine import Settlement
from fairlead.engine.metrics.collector import MOST_DURATIONS, MOST_NAMES, Metrics, measured
from fairlead.engine.metrics.names import CATALOGUE, DURATION, Family, Histogram, MetricKind, MetricSource, render
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Lagging, Upkept
from fairlead.storage.values import Filter, Tally
from tests.engine.building import BOOM, Bench, a_wish
from tests.engine.counting import Read, read

DURATIONS = "fairlead_task_duration_seconds"


class Counted(Bench):
    """A bench whose engine counts."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self.metrics = Metrics()
        self.engine = AdminEngine(self.store, settings, clock=self.clock, observers=[self.metrics])

    @property
    def page(self) -> Read:
        return read(self.metrics.collect())


@pytest.fixture
def bench() -> Counted:
    return Counted()


async def test_a_task_is_counted_when_it_is_submitted_claimed_and_completed(bench: Counted) -> None:
    await bench.submit(priority=Priority.HIGH)
    bench.clock.advance(3 * SECOND)
    (task,) = await bench.claim()
    bench.clock.advance(2 * SECOND)
    await bench.settle(task, Completed())
    page = bench.page
    assert page.value("fairlead_tasks_submitted_total", type="send_mail", priority="high") == 1
    assert page.value("fairlead_queue_wait_seconds_sum", priority="high") == 3
    assert page.value("fairlead_queue_wait_seconds_bucket", priority="high", le="1") == 0
    assert page.value("fairlead_queue_wait_seconds_bucket", priority="high", le="5") == 1
    assert page.value("fairlead_tasks_completed_total", type="send_mail", status="completed") == 1
    assert page.value(f"{DURATIONS}_sum", type="send_mail", priority="high", status="completed") == 2
    assert page.value(f"{DURATIONS}_count", type="send_mail", priority="high", status="completed") == 1


async def test_a_repeated_settle_is_counted_once(bench: Counted) -> None:
    task = await bench.executing()
    await bench.settle(task, Completed())
    await bench.settle(task, Completed())
    assert bench.page.value("fairlead_tasks_completed_total", type="send_mail", status="completed") == 1


async def test_every_other_end_of_an_attempt_is_counted_by_its_reason(bench: Counted) -> None:
    retried: dict[str, Outcome]
    retried = {"fail": Failed(failure=BOOM), "time_out": TimedOut(), "crash": Crashed(BOOM), "hand_back": HandedBack()}
    for task_type, outcome in retried.items():
        await bench.settle(await bench.executing(type=task_type), outcome)
    (task,) = await bench.claim()
    await bench.settle(task, Completed())
    await bench.settle(await bench.executing(type="bad"), Failed(failure=BOOM, retriable=False))
    await bench.settle(await bench.executing(type="dead", max_retries=0), Failed(failure=BOOM))
    await bench.settle(await bench.executing(type="doomed", max_crashes=0), Crashed(BOOM))
    stopped = await bench.executing(type="stopped")
    await bench.engine.cancel(stopped.id)
    await bench.settle(stopped, CancelConfirmed())
    await bench.engine.cancel((await bench.submit(type="never_ran")).id)
    page = bench.page
    for task_type, reason in (("fail", "failed"), ("time_out", "timed_out"), ("crash", "crashed")):
        assert page.value("fairlead_task_retries_total", type=task_type, priority="medium", reason=reason) == 1
        assert page.value(f"{DURATIONS}_count", type=task_type, priority="medium", status="retrying") == 1
    assert page.value("fairlead_task_retries_total", type="hand_back", priority="medium", reason="handed_back") is None
    assert page.value(f"{DURATIONS}_count", type="hand_back", priority="medium", status="handed_back") == 1
    for task_type, status, reason in (
        ("bad", "failed", "rejected"),
        ("dead", "dead_letter", "retries_used_up"),
        ("doomed", "dead_letter", "crash_loop"),
    ):
        assert page.value("fairlead_tasks_failed_total", type=task_type, reason=reason) == 1
        assert page.value("fairlead_tasks_completed_total", type=task_type, status=status) == 1
        dead = page.value("fairlead_tasks_dead_letter_total", type=task_type, reason=reason)
        assert dead == (1 if status == "dead_letter" else None)
    for task_type, ran in (("stopped", 1), ("never_ran", None)):
        assert page.value("fairlead_tasks_completed_total", type=task_type, status="cancelled") == 1
        assert page.value(f"{DURATIONS}_count", type=task_type, priority="medium", status="cancelled") == ran


async def test_a_lost_worker_is_counted_by_whoever_sweeps(bench: Counted) -> None:
    await bench.executing()
    bench.clock.advance(MINUTE)
    await bench.engine.sweep()
    labels = {"type": "send_mail", "priority": "medium", "reason": "worker_lost"}
    assert bench.page.value("fairlead_task_retries_total", **labels) == 1


async def test_a_worker_that_is_lost_and_a_process_that_crashes_are_failures_of_workers(bench: Counted) -> None:
    failures = "fairlead_worker_failures_total"
    assert bench.page.value(failures, reason="lost") == 0
    await bench.engine.worker_records.register(WorkerId("one"), queues=["default"], capacity=4)
    lost = await bench.executing(max_crashes=0)
    bench.clock.advance(MINUTE)
    await bench.engine.worker_records.sweep()
    await bench.engine.worker_records.sweep()
    await bench.engine.sweep()
    page = bench.page
    assert (page.value(failures, reason="lost"), page.value(failures, reason="crashed")) == (1, 0)
    assert page.value("fairlead_tasks_dead_letter_total", type=lost.spec.type, reason="crash_loop") == 1
    for max_crashes in (3, 0):
        await bench.settle(await bench.executing(max_crashes=max_crashes), Crashed(BOOM))
    assert bench.page.value(failures, reason="crashed") == 2


async def test_what_came_to_a_state_and_has_not_left_it_is_in_it_whatever_happened(bench: Counted) -> None:
    luck, engine = random.Random(7), bench.engine
    tasks: list[Task] = []
    outcomes: list[Outcome] = [
        Completed(), Failed(failure=BOOM), Failed(failure=BOOM, retriable=False), Failed(failure=BOOM, after=0),
        TimedOut(), Crashed(BOOM), HandedBack(), HandedBack(SECOND), CancelConfirmed(),
    ]  # fmt: skip
    for _ in range(400):
        priority = luck.choice(list(Priority))
        earlier = await engine.find(Filter(), limit=20)
        after = (luck.choice(earlier).id,) if earlier and luck.random() < 0.2 else ()
        delay = luck.choice([0, 0, MINUTE])
        task = await bench.submit(type="a", priority=priority, delay=delay, after=after, max_retries=1, max_crashes=1)
        tasks.append(task)
        for claimed in await bench.claim(luck.randint(0, 2)):
            if luck.random() < 0.8:
                await engine.settle([Settlement(claimed, luck.choice(outcomes))])
        for action in luck.sample([engine.cancel, engine.replay, engine.discard], luck.randint(0, 3)):
            with contextlib.suppress(WrongState, TaskNotFound):
                await action(luck.choice(tasks).id)
        bench.clock.advance(luck.choice([0, SECOND, 40 * SECOND]))
        await engine.sweep()
    wish = NewOperation(action=Action.PRIORITIZE, query=parse_query("type:a"), priority=Priority.LOW)
    operation = await engine.operations.start(wish)
    while (await engine.operations.get(operation.id)).stage.active:
        await engine.operations.operator.once()
        bench.clock.advance(SECOND)
    states, page = (await engine.stats()).states, bench.page
    moved = {
        (sample.labels["from"], sample.labels["to"]): int(sample.value)
        for family in page.families
        for sample in family.samples
        if sample.name == "fairlead_task_transitions_total"
    }
    for state, count in states.items():
        came = sum(number for (_, to), number in moved.items() if to == state)
        left = sum(number for (before, _), number in moved.items() if before == state)
        assert came - left == count, state
    assert sum(number for (before, _), number in moved.items() if before == "new") == len(tasks)
    allowed = {(before, "removed" if to is None else to) for (before, _), tos in TRANSITIONS.items() for to in tos}
    assert {pair for pair in moved if pair[0] != "new"} <= allowed
    assert len(moved) >= 15
    assert all(before != to for before, to in moved)
    counted = [page.value("fairlead_tasks_submitted_total", type="a", priority=each.word) or 0 for each in Priority]
    assert sum(counted) == len(tasks), "one that is given another priority is not submitted again"


async def test_a_promotion_is_counted_when_the_task_is_claimed(bench: Counted) -> None:
    await bench.submit(priority=Priority.LOW)
    await bench.submit(priority=Priority.MEDIUM)
    bench.clock.advance(20 * MINUTE)
    await bench.submit(priority=Priority.LOW)
    assert len(await bench.claim(3)) == 3
    page = bench.page
    assert page.value("fairlead_tasks_promoted_total", from_="low", to="medium") == 1
    assert page.value("fairlead_tasks_promoted_total", from_="medium", to="high") == 1


async def test_a_replay_and_a_due_task_are_no_submits(bench: Counted) -> None:
    task = await bench.submit(delay=SECOND)
    bench.clock.advance(SECOND)
    await bench.engine.sweep()
    await bench.engine.cancel(task.id)
    await bench.engine.replay(task.id)
    assert bench.page.value("fairlead_tasks_submitted_total", type="send_mail", priority="medium") == 1


async def test_a_hostile_task_type_cannot_make_metrics_grow_without_bound(bench: Counted) -> None:
    wishes = [a_wish(type=f"type-{number}", max_retries=0) for number in range(3 * MOST_NAMES)]
    await bench.engine.submit_many(wishes)
    tasks = await bench.claim(len(wishes))
    for number, task in enumerate(tasks):
        await bench.settle(task, Completed() if number % 2 else Failed(failure=BOOM))
    page = bench.page
    for name in ("fairlead_tasks_submitted_total", "fairlead_tasks_completed_total", f"{DURATIONS}_count"):
        types = page.labels(name, "type")
        assert len(types) == MOST_NAMES + 1
        assert "other" in types
    assert page.value("fairlead_tasks_submitted_total", type="other", priority="medium") == 2 * MOST_NAMES
    assert page.value("fairlead_tasks_completed_total", type="other", status="completed") == MOST_NAMES


async def test_types_in_all_priorities_and_with_all_ends_do_not_make_durations_grow_without_bound(
    bench: Counted,
) -> None:
    outcomes: list[Outcome] = [Completed(), Failed(failure=BOOM, retriable=False), CancelConfirmed()]
    wishes = [
        a_wish(type=f"type-{number}", priority=priority)
        for number in range(MOST_NAMES)
        for priority in Priority
        for _ in outcomes
    ]
    await bench.engine.submit_many(wishes)
    tasks = await bench.claim(len(wishes))
    for task, outcome in zip(sorted(tasks, key=lambda task: task.spec.type), outcomes * len(tasks), strict=False):
        await bench.settle(task, outcome)
    (durations,) = [each for each in bench.page.families if each.name == DURATIONS]
    counts = [sample for sample in durations.samples if sample.name.endswith("_count")]
    assert MOST_DURATIONS < len(counts) <= MOST_DURATIONS + len(Priority) * len(outcomes)
    assert sum(sample.value for sample in counts) == len(wishes)
    assert {sample.labels["type"] for sample in counts} > {"other"}


async def test_operations_of_the_store_are_timed_and_their_batches_counted(bench: Counted) -> None:
    await bench.engine.submit_many([a_wish() for _ in range(7)])
    assert len(await bench.claim(5)) == 5
    await bench.engine.stats()
    page = bench.page
    assert page.value("fairlead_batch_size_sum", operation="add") == 7
    assert page.value("fairlead_batch_size_bucket", operation="add", le="5") == 0
    assert page.value("fairlead_batch_size_bucket", operation="add", le="10") == 1
    assert page.value("fairlead_batch_size_sum", operation="claim") == 5
    for operation in ("add", "claim", "tally"):
        assert page.value("fairlead_store_seconds_count", operation=operation) == 1
    assert page.value("fairlead_batch_size_count", operation="tally") is None


async def test_an_operation_that_fails_is_timed_too(bench: Counted) -> None:
    class Failing(MemoryStore):
        async def tally(self) -> Tally:
            raise OSError

    told: list[str] = []
    with pytest.raises(OSError):
        await measured(Failing(), lambda operation, took, tasks: told.append(operation)).tally()
    assert told == ["tally"]


def test_a_store_that_is_measured_can_do_what_it_could() -> None:
    class Plain(MemoryStore):
        pass

    class Dutiful(MemoryStore):
        async def upkeep(self) -> None: ...

    for store, dutiful in ((Plain(), False), (Dutiful(), True)):
        wrapped = measured(store, lambda operation, took, tasks: None)
        assert isinstance(wrapped, Upkept) is dutiful
        assert not isinstance(wrapped, Lagging)


def test_a_worker_shows_how_busy_it_is_and_its_failed_heartbeats() -> None:
    metrics = Metrics()
    assert (
        not {"fairlead_worker_capacity_used_ratio", "fairlead_worker_heartbeat_failures_total"}
        & read(metrics.collect_worker()).names
    )
    metrics.employ(lambda: 0.25)
    metrics.beat_failed(2)
    page = read(metrics.collect_worker())
    assert page.value("fairlead_worker_capacity_used_ratio") == 0.25
    assert page.value("fairlead_worker_heartbeat_failures_total") == 2


def test_the_catalogue_has_each_name_once_and_says_what_it_means() -> None:
    names = [family.name for family in CATALOGUE]
    assert len(set(names)) == len(names)
    for family in CATALOGUE:
        assert family.name.startswith("fairlead_")
        assert family.name.endswith("_total") == (family.kind is MetricKind.COUNTER)
        assert family.doc.endswith(".")


def test_what_labels_hold_is_escaped() -> None:
    odd = 'a"b\\c\nd'
    family = Family("fairlead_odd", MetricKind.GAUGE, MetricSource.STORE, ("queue",), "Odd.")
    (parsed,) = Read(render([(family, [((odd,), 1.5)])]).decode()).families
    assert parsed.samples[0].labels == {"queue": odd}
    assert parsed.samples[0].value == 1.5


def test_a_value_at_a_bound_is_at_most_that_bound() -> None:
    histogram = Histogram((1_000_000, 2_000_000), SECOND)
    histogram.observe(1_000_000)
    histogram.observe(1_000_001)
    histogram.observe(5_000_000)
    page = read([(DURATION, [(("t", "low", "completed"), histogram)])])
    labels = {"type": "t", "priority": "low", "status": "completed"}
    counts = [page.value(f"{DURATIONS}_bucket", **labels, le=le) for le in ("1", "2", "+Inf")]
    assert counts == [1, 2, 3]
