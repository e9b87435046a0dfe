"""Submitting, showing and cancelling tasks over HTTP, on every store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import StoreUnavailable
from fairlead.core.events import CancelConfirmed, Completed, Failed
from fairlead.core.retry import Backoff
from fairlead.core.settings import Settings
from fairlead.core.task import Progress
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Beat
from tests.server.serving import BOOM, NOBODY, Service

NOON = "2027-01-15T08:00:00.000000Z"
"""What the manual clock says at first."""


async def test_a_submit_is_answered_with_the_task(service: Service) -> None:
    answer = await service.submit(priority="high")
    task_id, _ = answer.pop("task_id"), answer.pop("warnings")
    assert answer == {
        "task_type": "send_mail",
        "status": "queued",
        "priority": "high",
        "queue": "default",
        "queue_position": 1,
        "created_at": NOON,
        "existing": False,
    }
    assert (await service.show(task_id))["status"] == "queued"


async def test_a_submit_takes_every_field(service: Service) -> None:
    answer = await service.submit(
        task_type="render",
        priority="normal",
        parameters={"path": "a.png", "size": 12345678901234567890},
        required_capabilities=["gpu", "eu"],
        timeout_seconds=1.5,
        max_retries=7,
        retry_policy={"initial_seconds": 2, "factor": 3, "max_seconds": 60, "jitter": 0},
        queue="video",
        delay_seconds=60,
        idempotency_key="k 1",
        tenant="acme",
        tags=["a", "b"],
        trace_id="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        concurrency_key="customer 7",
        fair_key="acme 7",
        expires_seconds=30,
        retention={"completed_seconds": 5},
    )
    assert (answer["status"], answer["queue_position"]) == ("scheduled", None)
    shown = await service.show(answer["task_id"], include_history=True)
    assert shown.pop("state_history") == shown["history"]
    assert shown.pop("expires_at") == shown["run_at"].replace(":01:00.", ":01:30.")
    assert shown.pop("turn", 0) == 0
    assert shown == {
        "fair_key": None,
        "expires_seconds": 30.0,
        "retention": {"completed_seconds": 5.0},
        "task_id": answer["task_id"],
        "task_type": "render",
        "queue": "video",
        "status": "scheduled",
        "reason": "submitted",
        "priority": "medium",
        "effective_priority": "medium",
        "required_capabilities": ["eu", "gpu"],
        "tags": ["a", "b"],
        "created_at": NOON,
        "run_at": "2027-01-15T08:01:00.000000Z",
        "queued_at": None,
        "started_at": None,
        "completed_at": None,
        "attempts": 0,
        "retry_count": 0,
        "max_retries": 7,
        "retry_policy": {"initial_seconds": 2.0, "factor": 3.0, "max_seconds": 60.0, "jitter": 0.0},
        "retry_rules": [],
        "crash_count": 0,
        "max_crashes": 3,
        "timeout_seconds": 1.5,
        "assigned_worker_id": None,
        "lease_until": None,
        "cancel_requested": False,
        "idempotency_key": "k 1",
        "tenant": "acme",
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "concurrency_key": "customer 7",
        "pending": 0,
        "unmet": 0,
        "after": [],
        "on_failure": None,
        "progress": None,
        "error": None,
        "parameters": {"path": "a.png", "size": 12345678901234567890},
        "result": None,
        "history": [
            {
                "at": NOON,
                "status": "scheduled",
                "reason": "submitted",
                "attempt": 0,
                "worker_id": None,
                "error": None,
            }
        ],
    }
    (task,) = await service.engine.store.get([answer["task_id"]])
    assert task is not None and task.spec.backoff == Backoff(
        initial=2_000_000, factor=3.0, ceiling=60_000_000, jitter=0.0
    )


async def test_a_task_may_be_due_at_a_moment(service: Service) -> None:
    later = await service.submit(run_at="2027-01-15T10:00:00+01:00")
    assert (await service.show(later["task_id"]))["run_at"] == "2027-01-15T09:00:00.000000Z"
    assert (await service.submit(run_at="2020-01-01T00:00:00Z"))["status"] == "queued"


async def test_a_known_idempotency_key_is_answered_with_the_first_task(service: Service) -> None:
    first = await service.submit(idempotency_key="k", parameters={"n": 1})
    again = await service.submit(200, idempotency_key="k", parameters={"n": 2})
    assert (again["task_id"], again["existing"]) == (first["task_id"], True)
    assert (await service.show(first["task_id"]))["parameters"] == {"n": 1}


async def test_parameters_and_results_keep_their_bytes(service: Service) -> None:
    written = b'{"b": 1.50, "a": [ ], "n": 123456789012345678901234567890}'
    body = b'{"task_type": "echo", "parameters": ' + written + b"}"
    answer = await service.client.post(
        "/api/v1/tasks", content=body, headers={"content-type": "application/json; charset=utf-8"}
    )
    assert answer.status_code == 201
    (task,) = await service.claim()
    assert task.spec.parameters == written
    await service.settle(task, Completed(result=written))
    shown = (await service.client.get(f"/api/v1/tasks/{task.id}")).content
    assert shown.count(written) == 2


async def test_the_position_counts_what_is_served_before(service: Service) -> None:
    places = [
        (await service.submit(priority=priority, queue=queue))["queue_position"]
        for priority, queue in (
            ("low", "a"),
            ("high", "a"),
            ("low", "a"),
            ("high", "a"),
            ("critical", "a"),
            ("low", "b"),
        )
    ]
    assert places == [1, 1, 3, 2, 1, 1]
    await service.claim(5, ["a"])
    service.advance(10)
    assert (await service.submit(priority="low", queue="a"))["queue_position"] == 1


async def test_the_position_is_counted_no_more_than_once_a_second() -> None:
    class Counting(MemoryStore):
        tallies = 0

        async def tally(self) -> Any:
            self.tallies += 1
            return await super().tally()

    store = Counting()
    async with Service(store) as service:
        for _ in range(3):
            await asyncio.gather(*(service.submit() for _ in range(20)))
            service.advance(0.4)
        assert store.tallies == 1
        assert (await service.submit())["queue_position"] == 61


async def test_a_submit_goes_on_when_the_tasks_cannot_be_counted() -> None:
    class Uncountable(MemoryStore):
        async def tally(self) -> Any:
            raise StoreUnavailable("too slow today; try again")

    async with Service(Uncountable()) as service:
        assert (await service.submit())["queue_position"] is None
        await service.get("/api/v1/queue/stats", 503)


async def test_a_task_is_shown_through_its_life(service: Service) -> None:
    task_id = (await service.submit(max_retries=1))["task_id"]
    service.advance(5)
    (task,) = await service.claim()
    assert task.status.lease is not None
    progress = Progress(percent=40, message="almost half")
    await service.engine.heartbeat([Beat(task.id, task.status.lease.token, progress)])
    shown = await service.show(task_id)
    assert (shown["status"], shown["assigned_worker_id"], shown["attempts"]) == ("executing", "worker-1", 1)
    assert shown["started_at"] == "2027-01-15T08:00:05.000000Z" and shown["completed_at"] is None
    assert shown["progress"] == {"percent": 40.0, "message": "almost half", "at": "2027-01-15T08:00:05.000000Z"}
    assert "history" not in shown
    await service.settle(task, Failed(failure=BOOM, after=0))
    shown = await service.show(task_id)
    assert (shown["status"], shown["reason"], shown["retry_count"]) == ("queued", "failed", 1)
    (task,) = await service.claim()
    service.advance(1)
    await service.settle(task, Failed(failure=BOOM))
    shown = await service.show(task_id, include_history="true")
    assert shown["error"] == {
        "type": "Boom",
        "message": "it went boom",
        "traceback": BOOM.traceback,
        "retriable": True,
    }
    told = [(each["status"], each["reason"], each["attempt"], each["worker_id"]) for each in shown["history"]]
    assert told == [
        ("queued", "submitted", 0, None),
        ("executing", "claimed", 1, "worker-1"),
        ("queued", "failed", 1, "worker-1"),
        ("executing", "claimed", 2, "worker-1"),
        ("dead_letter", "retries_used_up", 2, "worker-1"),
    ]
    assert shown["history"][-1]["error"] == {"type": "Boom", "message": "it went boom"}
    assert shown["completed_at"] == shown["history"][-1]["at"] == "2027-01-15T08:00:06.000000Z"


async def test_a_completed_task_has_its_result(service: Service) -> None:
    task_id = await service.ended(Completed(result=b'{"sent": true}'))
    shown = await service.show(task_id)
    assert (shown["status"], shown["result"], shown["error"]) == ("completed", {"sent": True}, None)


async def test_the_effective_priority_follows_from_the_wait(service: Service) -> None:
    task_id = (await service.submit(priority="low"))["task_id"]
    seen = []
    for minutes in (0, 10, 20, 30):
        service.advance(60 * minutes)
        shown = await service.show(task_id)
        seen.append((shown["priority"], shown["effective_priority"]))
    assert seen == [("low", "low"), ("low", "medium"), ("low", "high"), ("low", "critical")]
    (task,) = await service.claim()
    service.advance(5)
    await service.settle(task, Completed())
    assert (await service.show(task_id))["effective_priority"] == "critical"


@pytest.mark.parametrize("wrong", [NOBODY, "nonsense", "%00", "..%2f", "0" * 5_000, "é"])
async def test_an_unknown_task_is_not_found(service: Service, wrong: str) -> None:
    for method, path in (("GET", ""), ("DELETE", "")):
        answer = await service.client.request(method, f"/api/v1/tasks/{wrong}{path}")
        assert answer.status_code == 404, answer.text
        assert answer.json()["status"] == 404 and answer.headers["content-type"] == "application/problem+json"


async def test_an_id_may_be_written_as_people_do(service: Service) -> None:
    task_id = (await service.submit())["task_id"]
    assert (await service.show(f"{task_id[:8]}-{task_id[8:]}".upper()))["task_id"] == task_id


async def test_a_wait_ends_with_the_task(service: Service) -> None:
    task_id = (await service.submit())["task_id"]
    (task,) = await service.claim()
    waiting = [asyncio.create_task(service.show(task_id, wait=30)) for _ in range(50)]
    await asyncio.sleep(0)
    await service.settle(task, Completed(result=b"42"))
    for shown in await asyncio.gather(*waiting):
        assert (shown["status"], shown["result"]) == ("completed", 42)
    assert (await service.show(task_id, wait=30))["status"] == "completed", "an ended task is not waited for"


async def test_a_wait_sees_an_end_in_another_process(service: Service) -> None:
    task_id = (await service.submit())["task_id"]
    waiting = asyncio.create_task(service.show(task_id, wait=30))
    other = AdminEngine(service.engine.store, Settings(), clock=service.clock)
    await other.cancel(task_id)
    assert (await waiting)["status"] == "cancelled"


async def test_a_wait_is_bounded_and_ends_when_the_server_stops(service: Service) -> None:
    task_id = (await service.submit())["task_id"]
    assert (await service.show(task_id, wait=0.01))["status"] == "queued"
    waiting = asyncio.create_task(service.show(task_id, wait=1e300))
    await asyncio.sleep(0)
    service.state.stopping.set()
    assert (await waiting)["status"] == "queued"


async def test_a_waiting_task_is_cancelled_at_once(service: Service) -> None:
    task_id = (await service.submit())["task_id"]
    answer = await service.delete(f"/api/v1/tasks/{task_id}")
    assert (answer["task_id"], answer["status"], answer["was_executing"]) == (task_id, "cancelled", False)
    problem = await service.delete(f"/api/v1/tasks/{task_id}", 409)
    assert problem["type"] == "/docs#wrong-state" and problem["field"] == "task_id"


async def test_the_worker_of_an_executing_task_is_asked_to_stop_it(service: Service) -> None:
    task_id = (await service.submit())["task_id"]
    (task,) = await service.claim()
    answer = await service.delete(f"/api/v1/tasks/{task_id}", 202, wait=0)
    assert (answer["task_id"], answer["status"], answer["was_executing"]) == (task_id, "cancel_requested", True)
    assert (await service.show(task_id))["cancel_requested"] is True
    cancelling = asyncio.create_task(service.delete(f"/api/v1/tasks/{task_id}", wait=30))
    while not service.state.endings._waiting:  # noqa: ASYNC110 - nothing tells that somebody waits
        await asyncio.sleep(0)
    await service.settle(task, CancelConfirmed())
    answer = await cancelling
    assert (answer["task_id"], answer["status"], answer["was_executing"]) == (task_id, "cancelled", True)


async def test_a_task_that_completes_before_its_worker_hears_is_not_called_cancelled(service: Service) -> None:
    task_id = (await service.submit())["task_id"]
    (task,) = await service.claim()
    await service.delete(f"/api/v1/tasks/{task_id}", 202, wait=0)
    await service.settle(task, Completed())
    assert (await service.show(task_id))["status"] == "completed"
    await service.delete(f"/api/v1/tasks/{task_id}", 409)


async def test_a_full_queue_says_when_to_come_back() -> None:
    async with Service(MemoryStore(), Settings(queue_bound=1)) as service:
        await service.submit()
        refused = await service.client.post("/api/v1/tasks", json={"task_type": "x"})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["field"] == "queue"
