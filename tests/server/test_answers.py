"""What answers tell beside the bare fact, on every store, with and without a journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from fairlead.admin.dead_letters import service as dead_letters
from fairlead.admin.keys.service import Keyring
from fairlead.core.errors import StoreUnavailable
from fairlead.core.events import CancelConfirmed, Completed, Failed
from fairlead.core.identity import WorkerId
from fairlead.core.tenancy import Role
from fairlead.server import caller_view
from fairlead.server.live import queue_depths
from fairlead.storage.journal.duties import Flusher
from fairlead.storage.journal.store import JournalStore
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import open_store
from fairlead.storage.protocol import Store
from fairlead.storage.values import Beat, Pulse, Stretch, Tally
from tests.server.serving import BOOM, Service
from tests.servers.stores import Place, place

__all__ = ["place"]

NOON = "2027-01-15T08:00:00.000000Z"
"""What the manual clock says at first."""


@pytest.fixture
async def any_store(place: Place) -> Store:
    """An empty store of each kind."""
    return await open_store(place.url, journal=place.journal)


@pytest.fixture
async def any_service(any_store: Store) -> AsyncIterator[Service]:
    """A server on it."""
    async with Service(any_store) as service:
        yield service


async def noted(store: Store) -> None:
    """Have the journal, if there is one, learn of all that has happened."""
    if isinstance(store, JournalStore):
        await Flusher(store.hot, store.journal).all()


# Cancel


async def test_cancelling_a_task_that_waits_tells_when_and_that_no_worker_had_to_hear_of_it(
    any_service: Service,
) -> None:
    task_id = (await any_service.submit())["task_id"]
    any_service.advance(5)
    assert await any_service.delete(f"/api/v1/tasks/{task_id}") == {
        "task_id": task_id,
        "status": "cancelled",
        "was_executing": False,
        "worker_notified": False,
        "cancellation_time": "2027-01-15T08:00:05.000000Z",
    }


async def test_a_worker_is_notified_once_its_heartbeat_was_answered_with_the_cancel(any_service: Service) -> None:
    task_id = (await any_service.submit())["task_id"]
    (task,) = await any_service.claim()
    assert task.status.lease is not None
    beat = Beat(task.id, task.status.lease.token)
    assert await any_service.engine.heartbeat([beat]) == [Pulse.HELD]
    asked = await any_service.delete(f"/api/v1/tasks/{task_id}", 202, wait=0)
    assert (asked["worker_notified"], asked["cancellation_time"]) == (False, NOON)

    any_service.advance(3)
    cancelling = asyncio.create_task(any_service.delete(f"/api/v1/tasks/{task_id}", 202, wait=1))
    while not any_service.state.endings._waiting:  # noqa: ASYNC110 - nothing tells that somebody waits
        await asyncio.sleep(0)
    assert await any_service.engine.heartbeat([beat]) == [Pulse.CANCEL]
    assert await cancelling == {
        "task_id": task_id,
        "status": "cancel_requested",
        "was_executing": True,
        "worker_notified": True,
        "cancellation_time": NOON,
    }


async def test_a_worker_that_stops_a_task_has_been_notified_and_one_that_completes_it_may_not(
    any_service: Service,
) -> None:
    for outcome, status, notified in ((CancelConfirmed(), "cancelled", True), (Completed(), "completed", False)):
        task_id = (await any_service.submit())["task_id"]
        (task,) = await any_service.claim()
        cancelling = asyncio.create_task(any_service.delete(f"/api/v1/tasks/{task_id}", wait=60))
        while not any_service.state.endings._waiting:  # noqa: ASYNC110 - nothing tells that somebody waits
            await asyncio.sleep(0)
        await any_service.settle(task, outcome)
        answer = await cancelling
        assert (answer["status"], answer["worker_notified"]) == (status, notified)


# A task


async def test_an_error_says_whether_it_is_retried(any_service: Service) -> None:
    rejected = await any_service.ended(Failed(failure=BOOM, retriable=False))
    used_up = await any_service.ended(Failed(failure=BOOM), max_retries=0)
    again = await any_service.ended(Failed(failure=BOOM, after=0), max_retries=1)
    for task_id, status, retriable in (
        (rejected, "failed", False),
        (used_up, "dead_letter", True),
        (again, "queued", True),
    ):
        shown = await any_service.show(task_id)
        assert (shown["status"], shown["error"]["retriable"]) == (status, retriable)
    assert (await any_service.show((await any_service.submit())["task_id"]))["error"] is None


async def test_a_task_without_a_trace_belongs_to_one_by_its_own_id_and_stores_none(any_service: Service) -> None:
    own, given = [(await any_service.submit(**wish))["task_id"] for wish in ({}, {"trace_id": "order-17"})]
    assert (await any_service.show(own))["trace_id"] == own
    assert (await any_service.show(given))["trace_id"] == "order-17"
    assert (await any_service.engine.get(own)).spec.trace is None
    worker = (await any_service.post("/internal/workers/register", {"capacity": 5}, 201))["worker_id"]
    polled = await any_service.post(f"/internal/workers/{worker}/poll", {"available_capacity": 5})
    assert {each["task_id"]: each["trace_id"] for each in polled["tasks"]} == {own: own, given: "order-17"}


# A submit


async def estimated(service: Service, status: int = 201, /, **wish: Any) -> tuple[Any, Any, Any]:
    """What a submit that asks for it is told of the start of its task."""
    answer = await service.client.post("/api/v1/tasks?estimate=true", json={"task_type": "send_mail", **wish})
    assert answer.status_code == status, answer.text
    told = answer.json()
    return told["position_in_queue"], told["estimated_start_time"], told["estimated_wait_seconds"]


async def join(service: Service, capacity: int = 1, completed: int = 0) -> None:
    """Have a worker that is busy with nothing, and has completed so many tasks within the last minute."""
    worker = WorkerId("worker-1")
    await service.engine.worker_records.register(worker, queues=["default"], capacity=capacity)
    service.advance(60)
    for _ in range(completed):
        await service.submit(priority="low")  # So that those of their kind that still come are behind.
    for task in await service.claim(completed):
        await service.settle(task, Completed())
    await service.engine.worker_records.beat(worker, running=0)


async def test_a_submit_that_does_not_ask_is_told_no_estimate(any_service: Service) -> None:
    for path in ("/api/v1/tasks", "/api/v1/tasks?estimate=false"):
        answer = await any_service.post(path, {"task_type": "send_mail"}, 201)
        assert not {"position_in_queue", "estimated_start_time", "estimated_wait_seconds"} & set(answer)


async def test_an_estimate_counts_who_is_ahead_and_goes_by_the_rate_of_the_last_minute(any_service: Service) -> None:
    await join(any_service, capacity=1, completed=30)
    assert await estimated(any_service) == (1, "2027-01-15T08:01:00.000000Z", 0.0)
    # One slot is free for the first; each of the others has its turn every two seconds.
    assert await estimated(any_service) == (2, "2027-01-15T08:01:02.000000Z", 2.0)
    assert await estimated(any_service, priority="high") == (1, "2027-01-15T08:01:00.000000Z", 0.0)
    assert await estimated(any_service, priority="low") == (4, "2027-01-15T08:01:06.000000Z", 6.0)


async def test_what_nobody_can_tell_is_null_and_the_task_is_stored(any_service: Service) -> None:
    assert await estimated(any_service) == (None, None, None)
    assert await estimated(any_service, delay_seconds=60) == (None, None, None)
    await join(any_service, capacity=5)
    await any_service.engine.queues.pause("default")
    assert await estimated(any_service) == (None, None, None)
    assert len((await any_service.get("/api/v1/tasks"))["tasks"]) == 3


async def test_an_estimate_of_a_task_that_was_there_is_as_it_stands_now(any_service: Service) -> None:
    await join(any_service, capacity=5)
    await estimated(any_service, idempotency_key="k")
    await any_service.submit(priority="high")
    assert (await estimated(any_service, 200, idempotency_key="k"))[0] == 2
    await any_service.claim(2)
    assert await estimated(any_service, 200, idempotency_key="k") == (None, None, None)


async def test_an_estimate_that_fails_or_takes_too_long_costs_no_submit(
    in_memory: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.Event()

    async def fails() -> Tally:
        raise StoreUnavailable("the store is away")

    async def hangs() -> Tally:
        await never.wait()
        raise AssertionError

    monkeypatch.setattr(caller_view, "_ESTIMATE_SECONDS", 0.05)
    await in_memory.submit()
    for tally in (fails, hangs):
        monkeypatch.setattr(in_memory.engine.store, "tally", tally)
        assert await estimated(in_memory) == (None, None, None)
    monkeypatch.undo()
    assert len((await in_memory.get("/api/v1/tasks"))["tasks"]) == 3


async def test_whether_to_estimate_is_said_by_a_boolean(in_memory: Service) -> None:
    problem = await in_memory.post("/api/v1/tasks?estimate=perhaps", {"task_type": "send_mail"}, 422)
    assert problem["field"] == "estimate"
    assert (await in_memory.get("/api/v1/tasks"))["tasks"] == []


async def test_an_estimate_is_told_to_a_tenant_of_its_own_tasks_only(in_memory: Service) -> None:
    await join(in_memory, capacity=5)
    ring = Keyring(in_memory.engine)
    keys = {name: (await ring.create(name, [Role.ADMIN], tenant=name)).text for name in ("acme", "umbrella")}
    in_memory.client.headers["authorization"] = f"Bearer {keys['acme']}"
    assert (await estimated(in_memory, idempotency_key="k"))[0] == 1
    in_memory.client.headers["authorization"] = f"Bearer {keys['umbrella']}"
    await in_memory.post("/api/v1/tasks?estimate=true", {"task_type": "send_mail", "tenant": "acme"}, 403)
    # As `explain` tells: others are a number.
    assert (await estimated(in_memory))[0] == 2


# Dead letters


async def test_a_page_of_dead_letters_tells_how_many_there_are_in_all(any_service: Service, any_store: Store) -> None:
    assert await any_service.get("/api/v1/dlq") == {"tasks": [], "next_cursor": None, "total_count": 0}
    for kind in ("a", "a", "b"):
        await any_service.ended(Failed(failure=BOOM), task_type=kind, max_retries=0)
    await any_service.ended(Failed(failure=BOOM, retriable=False))
    await noted(any_store)
    first = await any_service.get("/api/v1/dlq", limit=1)
    assert (len(first["tasks"]), first["total_count"]) == (1, 3)
    rest = await any_service.get("/api/v1/dlq", cursor=first["next_cursor"])
    assert (len(rest["tasks"]), rest["total_count"]) == (2, 3)
    for query, count in (
        ({"task_type": "a"}, 2),
        ({"queue": "default"}, 3),
        ({"queue": "other"}, 0),
        ({"q": "type:b"}, 1),
        ({"q": "error:Boom", "task_type": "a"}, 2),
        ({"q": "state:completed"}, 0),
    ):
        assert (await any_service.get("/api/v1/dlq", **query))["total_count"] == count, query
    problem = await any_service.get("/api/v1/dlq", 400, q="error:")
    assert problem["type"] == "/docs#invalid-query"


async def test_what_would_take_too_long_to_count_is_not_counted(
    in_memory: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MOST_LOOKED", 2)
    for _ in range(3):
        await in_memory.ended(Failed(failure=BOOM), max_retries=0)
    assert (await in_memory.get("/api/v1/dlq", q="error:Boom"))["total_count"] is None
    assert (await in_memory.get("/api/v1/dlq"))["total_count"] == 3


async def test_a_tenant_is_told_the_number_of_its_own_dead_letters(any_service: Service, any_store: Store) -> None:
    for tenant in ("acme", "umbrella", "umbrella"):
        await any_service.ended(Failed(failure=BOOM), tenant=tenant, max_retries=0)
    await noted(any_store)
    made = await Keyring(any_service.engine).create("acme", [Role.READ], tenant="acme")
    any_service.client.headers["authorization"] = f"Bearer {made.text}"
    assert (await any_service.get("/api/v1/dlq"))["total_count"] == 1


# Statistics


async def line(service: Service, queue: str | None = None, priority: str = "medium") -> Any:
    """How one priority stands in all queues, or in one."""
    stats = await service.get("/api/v1/queue/stats", **({} if queue is None else {"queue": queue}))
    if queue is not None:
        assert [each["priorities"] for each in stats["by_queue"].values()] in ([], [stats["queues"]])
    return stats["queues"][priority]


async def test_statistics_tell_percentiles_of_the_ages_by_priority_and_queue(any_service: Service) -> None:
    for queue, count in (("a", 10), ("b", 10)):
        for _ in range(count):
            await any_service.submit(queue=queue)
            any_service.advance(10)
    await any_service.submit(queue="a", priority="low")
    # Those of b have waited for 10 to 100 seconds, those of a for 110 to 200.
    for asked, p50, p95 in (("a", 150, 200), ("b", 50, 100), (None, 100, 190)):
        told = await line(any_service, asked)
        assert p50 <= told["age_p50_seconds"] <= p50 * 1.011
        assert p95 <= told["age_p95_seconds"] <= p95 * 1.011
    low = await line(any_service, "a", "low")
    assert low["age_p50_seconds"] == low["age_p95_seconds"] == 0
    none = await line(any_service, "b", "low")
    assert none["age_p50_seconds"] is none["age_p95_seconds"] is None


async def test_statistics_tell_what_came_of_tasks_within_the_last_hour(any_service: Service) -> None:
    for queue, waits, takes in (("a", 2, 10), ("a", 4, 20), ("b", 12, 60)):
        await any_service.submit(queue=queue)
        any_service.advance(waits)
        (task,) = await any_service.claim(queues=[queue])
        any_service.advance(takes)
        await any_service.settle(task, Completed())
    assert (await line(any_service, "a")) == {
        "depth": 0,
        "oldest_age_seconds": 0.0,
        "age_p50_seconds": None,
        "age_p95_seconds": None,
        "ended_last_hour": 2,
        "average_wait_seconds": 3.0,
        "average_duration_seconds": 15.0,
        "promotions_last_hour": 0,
        "recoveries_last_hour": 0,
    }
    both = await line(any_service)
    assert (both["ended_last_hour"], both["average_wait_seconds"], both["average_duration_seconds"]) == (3, 6.0, 30.0)
    low = await line(any_service, priority="low")
    assert (low["ended_last_hour"], low["average_wait_seconds"], low["average_duration_seconds"]) == (0, None, None)
    any_service.advance(3_600)
    assert (await line(any_service))["ended_last_hour"] == 0


async def test_statistics_tell_promotions_and_recoveries_within_the_last_hour(any_service: Service) -> None:
    await any_service.submit(priority="low", queue="a")
    any_service.advance(660)
    await any_service.claim(queues=["a"])
    any_service.advance(60)
    await any_service.engine.sweep()
    for queue, counts in (("a", (1, 1)), (None, (1, 1)), ("b", (0, 0))):
        low = await line(any_service, queue, "low")
        assert (low["promotions_last_hour"], low["recoveries_last_hour"]) == counts
    medium = await line(any_service, "a")
    assert (medium["promotions_last_hour"], medium["recoveries_last_hour"]) == (0, 0)


async def test_a_tenant_is_told_figures_of_the_queues_that_are_bound_to_it(any_service: Service) -> None:
    for queue, tenant in (("ours", "acme"), ("more", "acme"), ("theirs", "umbrella")):
        await any_service.engine.queues.change(queue, tenant=tenant)
        await any_service.submit(queue=queue, tenant=tenant)
        any_service.advance(100)
        (task,) = await any_service.claim(queues=[queue])
        await any_service.settle(task, Completed())
        await any_service.submit(queue=queue, tenant=tenant)
    keys = {
        name: (await Keyring(any_service.engine).create(name, [Role.READ], tenant=name)).text
        for name in ("acme", "umbrella", "nobody")
    }
    for name, ended, p95 in (("acme", 2, 200), ("umbrella", 1, 0)):
        any_service.client.headers["authorization"] = f"Bearer {keys[name]}"
        told = await line(any_service)
        assert (told["ended_last_hour"], told["average_wait_seconds"]) == (ended, 100.0)
        assert p95 <= told["age_p95_seconds"] <= p95 * 1.011
        assert "theirs" not in (await any_service.get("/api/v1/queue/stats"))["by_queue"] or name == "umbrella"
    any_service.client.headers["authorization"] = f"Bearer {keys['nobody']}"
    await any_service.get("/api/v1/queue/stats", 403)


class Counting(MemoryStore):
    """A store that counts stretches when it is let, and says how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.let = asyncio.Event()
        self.let.set()

    async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
        self.asked += 1
        await self.let.wait()
        return await super().count(stretches, most)


async def test_ages_are_counted_once_a_second_however_often_they_are_asked_for() -> None:
    store = Counting()
    async with Service(store) as service:
        for _ in range(2):
            await service.submit()
        service.advance(60)
        told = await asyncio.gather(*(line(service) for _ in range(20)))
        assert {each["age_p95_seconds"] for each in told} == {60.0}
        asked = store.asked
        assert (await line(service))["age_p95_seconds"] == 60.0 and store.asked == asked
        service.advance(1)
        assert (await line(service))["age_p95_seconds"] == 61.0 and store.asked == 2 * asked


async def test_ages_that_take_too_long_to_count_are_null_and_counted_in_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_depths, "_PATIENT", 0.05)
    store = Counting()
    async with Service(store) as service:
        for _ in range(2):
            await service.submit()
        service.advance(60)
        store.let.clear()
        told = await line(service)
        assert (told["depth"], told["age_p50_seconds"]) == (2, None)
        service.advance(5)
        store.let.set()
        while (told := await line(service))["age_p50_seconds"] is None:  # noqa: ASYNC110 - nothing tells that it is done
            await asyncio.sleep(0)
        # It took five seconds, so it is not done again for a hundred; what is over a minute old is not told.
        asked = store.asked
        service.advance(59)
        assert (await line(service))["age_p50_seconds"] is not None
        service.advance(2)
        assert (await line(service))["age_p50_seconds"] is None and store.asked == asked
        service.advance(40)
        assert (await line(service))["age_p50_seconds"] is not None and store.asked > asked


async def test_ages_that_cannot_be_counted_cost_no_statistics() -> None:
    class Broken(MemoryStore):
        async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
            raise StoreUnavailable("the store is away")

    async with Service(Broken()) as service:
        for _ in range(2):
            await service.submit()
        told = await line(service)
        assert (told["depth"], told["age_p50_seconds"]) == (2, None)
