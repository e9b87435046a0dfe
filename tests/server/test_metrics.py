"""`/metrics`: how the store stands, and what the server did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fairlead.core.circuit import Circuit, CircuitSettings, CircuitState, opened
from fairlead.core.events import Completed, Failed
from fairlead.core.health.unserved import MOST_NAMED, Ability, Fleet, unserved
from fairlead.core.identity import WorkerId
from fairlead.core.schedule import Schedule
from fairlead.core.settings import Settings
from fairlead.core.task import Lane, Priority, State
from fairlead.engine.fair_keys import FairKeys
from fairlead.engine.metrics.collector import MOST_NAMES
from fairlead.engine.metrics.names import (
    CAPACITY_USED,
    CATALOGUE,
    HEARTBEAT_FAILURES,
    JOURNAL_BEHIND,
    STORE_INTACT,
    MetricSource,
)
from fairlead.engine.stats import stats_of
from fairlead.engine.worker_records import WORKER_WORDS
from fairlead.server.routes.health import gauges
from fairlead.storage.journal.duties import Flusher
from fairlead.storage.journal.store import JournalStore
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import open_store
from fairlead.storage.values import LaneTally, Tally
from tests.engine.building import a_wish
from tests.engine.counting import Read, read
from tests.server.serving import BOOM, Service
from tests.servers.stores import Place


async def scrape(service: Service) -> Read:
    """The page, when it is counted anew."""
    service.advance(1)
    answer = await service.client.get("/metrics")
    assert answer.status_code == 200, answer.text
    return Read(answer.text)


async def test_it_shows_how_the_store_stands(in_memory: Service) -> None:
    await in_memory.submit(queue="mail", priority="low", max_retries=0)
    (task,) = await in_memory.claim(queues=["mail"])
    await in_memory.settle(task, Failed(failure=BOOM))
    await in_memory.submit(queue="mail", priority="low")
    worker_records = in_memory.engine.worker_records
    await worker_records.register(WorkerId("one"), queues=["mail"], capacity=4)
    await worker_records.beat(WorkerId("one"), running=3)
    page = await scrape(in_memory)
    assert page.value("fairlead_queue_depth", queue="mail", priority="low") == 1
    assert page.value("fairlead_queue_oldest_age_seconds", queue="mail", priority="low") == 1
    assert page.value("fairlead_queue_depth", queue="mail", priority="high") == 0
    assert page.value("fairlead_task_state", status="dead_letter") == 1
    assert page.value("fairlead_task_state", status="queued") == 1
    assert page.value("fairlead_dead_letter_size") == 1
    assert page.value("fairlead_workers", status="active") == 1
    assert page.value("fairlead_workers", status="dead") == 0
    assert page.value("fairlead_worker_capacity_used_ratio") == 0.75
    assert page.value("fairlead_tasks_dead_letter_total", type="send_mail", reason="retries_used_up") == 1


async def test_every_store_is_shown_alike(place: Place) -> None:
    store = await open_store(place.url, journal=place.journal)
    async with Service(store, Settings(dead_letter_alert=2)) as service:
        await service.ended(Failed(failure=BOOM), max_retries=0)
        await service.ended(Completed(), priority="high")
        await service.submit(priority="low")
        await service.engine.circuits.set("send_mail", CircuitSettings())
        await service.engine.circuits.open("send_mail")
        for worker in ("active", "paused"):
            await service.engine.worker_records.register(WorkerId(worker), queues=["default"], capacity=2)
        await service.engine.workers.pause(WorkerId("paused"))
        service.advance(31 * 60)
        for worker in ("active", "paused"):
            await service.engine.worker_records.beat(WorkerId(worker), running=1)
        if isinstance(store, JournalStore):
            await Flusher(store.hot, store.journal).all()
        page = await scrape(service)

    assert page.value("fairlead_queue_depth", queue="default", priority="low") == 1
    assert page.value("fairlead_queue_oldest_age_seconds", queue="default", priority="low") == 31 * 60 + 1
    assert page.value("fairlead_tasks_at_risk", queue="default", priority="low") == 1
    states = {state: page.value("fairlead_task_state", status=state) for state in State}
    assert {state: count for state, count in states.items() if count} == {"dead_letter": 1, "completed": 1, "queued": 1}
    assert page.value("fairlead_dead_letter_size") == 1
    assert page.value("fairlead_dead_letters", type="send_mail") == 1
    assert page.value("fairlead_dead_letter_alert_threshold", type="send_mail") == 2
    assert page.value("fairlead_circuit_state", type="send_mail", state="open") == 1
    workers = {word: page.value("fairlead_workers", status=word) for word in WORKER_WORDS}
    assert workers == {"active": 1, "paused": 1, "draining": 0, "dead": 0}
    assert page.value("fairlead_worker_capacity_used_ratio") == 0.5
    assert page.value("fairlead_task_transitions_total", from_="executing", to="dead_letter") == 1
    ended = {"type": "send_mail", "priority": "high", "status": "completed"}
    assert page.value("fairlead_task_duration_seconds_count", **ended) == 1
    assert page.value("fairlead_store_intact") == (1 if place.journal else None)


async def test_it_has_every_metric_that_a_server_can_show(in_memory: Service) -> None:
    page = await scrape(in_memory)
    expected = {family.name for family in CATALOGUE} - {JOURNAL_BEHIND.name, STORE_INTACT.name, HEARTBEAT_FAILURES.name}
    assert page.names == expected
    in_memory.metrics.employ(lambda: 1.0)
    assert (await scrape(in_memory)).names == expected | {HEARTBEAT_FAILURES.name}
    assert CAPACITY_USED.source is MetricSource.WORKER


async def test_dead_letters_are_told_by_type_beside_their_alert_threshold() -> None:
    settings = Settings(dead_letter_alert=3, dead_letter_alerts=(("charge", 1),))
    async with Service(MemoryStore(), settings) as service:
        for task_type, queue in (("charge", "a"), ("mail", "a"), ("mail", "b")):
            await service.submit(task_type=task_type, queue=queue, max_retries=0)
            (task,) = await service.claim(queues=[queue])
            await service.settle(task, Failed(failure=BOOM))
        page = await scrape(service)
        for task_type, count, threshold in (("charge", 1, 1), ("mail", 2, 3)):
            assert page.value("fairlead_dead_letters", type=task_type) == count
            assert page.value("fairlead_dead_letter_alert_threshold", type=task_type) == threshold
    page = read(gauges(stats_of(Tally(lanes=(), next_alarm=None), 0), late=0))
    assert page.value("fairlead_dead_letter_alert_threshold", type="charge") is None


async def test_very_many_types_circuits_and_queues_at_risk_do_not_make_the_page_grow(in_memory: Service) -> None:
    many = MOST_NAMES + 50
    lanes = [
        LaneTally(Lane(f"queue-{n}", f"type-{n:03}", (), Priority.LOW), {State.DEAD_LETTER: 1 + (n == 249)})
        for n in range(many)
    ]
    circuit = Circuit(settings=CircuitSettings())
    circuits = {f"type-{n:03}": opened(circuit, 0) if n == 249 else circuit for n in range(many)}
    at_risk = {(f"queue-{n}", Priority.LOW): 1 for n in range(many)} | {("nobody's", Priority.LOW): 9}
    stats = stats_of(Tally(lanes=lanes, next_alarm=None), 0, circuits=circuits)
    page = read(gauges(stats, 0, at_risk, lambda task_type: 5))
    for name in ("fairlead_dead_letters", "fairlead_circuit_state"):
        types = page.labels(name, "type")
        assert len(types) == MOST_NAMES + 1 and {"other", "type-249"} < types
    assert page.value("fairlead_dead_letters", type="type-249") == 2
    assert page.value("fairlead_dead_letters", type="other") == 50
    assert page.value("fairlead_dead_letter_alert_threshold", type="other") is None
    assert page.value("fairlead_circuit_state", type="other", state="closed") == 50
    assert page.value("fairlead_tasks_at_risk", queue="other", priority="low") == 50


async def test_what_no_worker_could_run_is_told_by_kind_and_of_very_many_few(in_memory: Service) -> None:
    await in_memory.submit(task_type="render")
    page = await scrape(in_memory)
    assert page.value("fairlead_unserved_tasks", queue="default", type="any", reason="no_workers") == 1
    many = MOST_NAMES + 50
    ready = [(Lane(f"queue-{n % 100}", f"type-{n:03}", (), Priority.LOW), 1 + (n == 249), 0) for n in range(many)]
    ready += [(Lane("queue-0", f"flood-{n}", (), Priority.LOW), 1, 0) for n in range(1_000)]
    fleet = Fleet([Ability(tuple(f"queue-{n}" for n in range(100)), ("known",), ())])
    lanes = [LaneTally(lane, {State.QUEUED: count}, oldest_ready=0) for lane, count, _ in ready]
    stats = stats_of(Tally(lanes=lanes, next_alarm=None), 0, unserved=unserved(fleet, ready, 0))
    page = read(gauges(stats, 0))
    types = page.labels("fairlead_unserved_tasks", "type")
    assert len(types) <= MOST_NAMES + 1 and {"other", "type-249"} < types
    assert page.value("fairlead_unserved_tasks", queue="queue-0", type="other", reason="other") == 1_003 - MOST_NAMED


async def test_tenants_that_share_queues_are_named_with_a_bound(in_memory: Service) -> None:
    await in_memory.engine.queues.change("default", fair="tenant")
    for tenant in ("acme", "acme", "umbrella"):
        await in_memory.submit(tenant=tenant)
    page = await scrape(in_memory)
    assert page.value("fairlead_fair_keys", queue="default") == 2
    assert page.value("fairlead_fair_key_waiting", queue="default", key="acme") == 2
    lanes = [LaneTally(Lane(f"queue-{n}", "mail", (), Priority.LOW), {State.QUEUED: 12}, 0) for n in range(50)]
    fair = {f"queue-{n}": FairKeys(keys=12, waiting={f"key-{k}": 1 for k in range(10)}, others=2) for n in range(50)}
    page = read(gauges(stats_of(Tally(lanes=lanes, next_alarm=None), 0, fair=fair), 0))
    queues = [f"queue-{n}" for n in range(50)]
    keys = [*(f"key-{k}" for k in range(10)), "other"]
    told = {(q, k): page.value("fairlead_fair_key_waiting", queue=q, key=k) or 0 for q in queues for k in keys}
    assert sum(told.values()) == 50 * 12
    assert sum(count > 0 for (_, key), count in told.items() if key != "other") == MOST_NAMES


async def test_the_state_of_a_circuit_is_one_of_three(in_memory: Service) -> None:
    circuits = in_memory.engine.circuits
    await circuits.set("charge", CircuitSettings())
    for turn, state in ((circuits.open, "open"), (circuits.close, "closed")):
        await turn("charge")
        page = await scrape(in_memory)
        shown = {each: page.value("fairlead_circuit_state", type="charge", state=each) for each in CircuitState}
        assert shown == {"closed": 0, "open": 0, "half_open": 0, state: 1}


async def test_tasks_that_wait_for_long_are_at_risk(in_memory: Service) -> None:
    await in_memory.submit(priority="low")
    assert (await scrape(in_memory)).value("fairlead_tasks_at_risk", queue="default", priority="low") == 0
    in_memory.advance(31 * 60)
    page = await scrape(in_memory)
    assert page.value("fairlead_tasks_at_risk", queue="default", priority="low") == 1
    assert page.value("fairlead_tasks_at_risk", queue="default", priority="high") == 0


def test_a_store_that_has_lost_something_is_shown() -> None:
    for intact, value in ((True, 1), (False, 0)):
        page = read(gauges(stats_of(Tally(lanes=(), next_alarm=None, journal_behind=0, intact=intact), 0), late=0))
        assert page.value("fairlead_store_intact") == value


def test_a_journal_that_is_behind_is_shown() -> None:
    page = read(gauges(stats_of(Tally(lanes=(), next_alarm=None, journal_behind=7), 0), late=0))
    assert page.value("fairlead_journal_behind") == 7


async def test_a_schedule_that_nobody_fires_is_late(in_memory: Service) -> None:
    schedules = in_memory.engine.schedules
    assert (await scrape(in_memory)).value("fairlead_schedule_late_seconds") == 0
    await schedules.add(Schedule(name="often", cron="every 10 seconds", submission=a_wish()))
    assert (await scrape(in_memory)).value("fairlead_schedule_late_seconds") == 0
    in_memory.advance(100)
    late = (await scrape(in_memory)).value("fairlead_schedule_late_seconds")
    assert late is not None and 90 <= late <= 101
    await schedules.fire()
    assert (await scrape(in_memory)).value("fairlead_schedule_late_seconds") == 0
    in_memory.advance(100)
    await schedules.pause("often")
    assert (await scrape(in_memory)).value("fairlead_schedule_late_seconds") == 0


async def test_many_queues_do_not_make_the_page_grow_without_bound(in_memory: Service) -> None:
    wishes = [a_wish(queue=f"queue-{number:04}") for number in range(MOST_NAMES + 50)]
    await in_memory.engine.submit_many([*wishes, a_wish(queue="queue-0249")])
    page = await scrape(in_memory)
    queues = page.labels("fairlead_queue_depth", "queue")
    assert len(queues) == MOST_NAMES + 1
    assert {"other", "queue-0249"} < queues
    assert page.value("fairlead_queue_depth", queue="other", priority="medium") == 50
    assert page.value("fairlead_queue_oldest_age_seconds", queue="other", priority="medium") == 1


class Asked(MemoryStore):
    """Counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def tally(self) -> Any:
        self.asked.append("tally")
        return await super().tally()

    async def find(self, *arguments: Any, **options: Any) -> Any:
        raise AssertionError("a scrape looks at no tasks")

    async def get(self, ids: Sequence[Any]) -> Any:
        raise AssertionError("a scrape looks at no tasks")

    async def due(self, *arguments: Any) -> Any:
        raise AssertionError("a scrape looks at no tasks")


async def test_a_scrape_asks_for_one_tally_and_no_more_than_once_a_second() -> None:
    store = Asked()
    async with Service(store) as service:
        await service.engine.submit(a_wish())
        for _ in range(5):
            page = Read((await service.client.get("/metrics")).text)
            assert page.value("fairlead_queue_depth", queue="default", priority="medium") == 1
        assert store.asked == ["tally"]
        await service.engine.submit(a_wish())
        page = Read((await service.client.get("/metrics")).text)
        assert page.value("fairlead_tasks_submitted_total", type="send_mail", priority="medium") == 2, "not cached"
        assert (await scrape(service)).value("fairlead_queue_depth", queue="default", priority="medium") == 2
        assert store.asked == ["tally", "tally"]


@pytest.mark.parametrize("status", ["active", "paused", "draining", "dead"])
async def test_workers_are_counted_by_how_they_stand(in_memory: Service, status: str) -> None:
    worker_records = in_memory.engine.worker_records
    await worker_records.register(WorkerId("one"), queues=["default"], capacity=4)
    await worker_records.beat(WorkerId("one"), running=0, draining=status == "draining")
    if status == "dead":
        in_memory.advance(60)
    if status == "paused":
        await worker_records.pause(WorkerId("one"))
    page = await scrape(in_memory)
    assert {word: page.value("fairlead_workers", status=word) for word in WORKER_WORDS} == {
        "active": 0, "paused": 0, "draining": 0, "dead": 0, status: 1
    }  # fmt: skip
