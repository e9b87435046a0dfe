"""Queues over HTTP: looked at, paused, changed and purged."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.core.identity import WorkerId
from fairlead.core.instant import SECOND
from fairlead.core.queues.order import Promote
from fairlead.core.queues.queue import QueueSettings
from fairlead.core.task import Priority
from fairlead.core.tenancy import Role
from fairlead.engine.events.types import EventType, QueueData, QueueEvent
from fairlead.wire.events import wanted_of
from tests.server.serving import NOBODY, Service

QUEUE = "/api/v1/queues/default"
NOTHING: dict[str, Any] = {
    "bound": None,
    "urgent_above": None,
    "listed_above": None,
    "order": None,
    "priority": None,
    "timeout_seconds": None,
    "max_retries": None,
    "max_crashes": None,
    "retry_policy": None,
    "running": None,
    "rate": None,
    "type_running": {},
    "type_rate": {},
    "key_running": None,
    "key_rate": None,
    "tenant": None,
    "fair": None,
    "weight": {},
    "default_weight": None,
}


async def patch(service: Service, body: Any, status: int = 200, path: str = QUEUE) -> Any:
    response = await service.client.patch(path, json=body)
    assert response.status_code == status, response.text
    return response.json()


async def test_a_queue_that_nobody_touched_has_nothing_of_its_own(service: Service) -> None:
    shown = await service.get(QUEUE)
    assert (shown["queue"], shown["paused"], shown["settings"]) == ("default", False, NOTHING)
    assert set(shown["states"].values()) == {0}
    assert await service.get("/api/v1/queues") == {"queues": [], "paused_types": []}


async def test_a_paused_queue_takes_tasks_and_gives_none_until_it_is_resumed(service: Service) -> None:
    assert (await service.post(f"{QUEUE}/pause"))["paused"]
    await service.submit()
    assert await service.claim() == []
    stats = await service.get("/api/v1/queue/stats")
    assert stats["by_queue"]["default"]["paused"]
    assert not (await service.post(f"{QUEUE}/resume"))["paused"]
    assert len(await service.claim()) == 1


async def test_metrics_say_what_is_paused(in_memory: Service) -> None:
    await in_memory.submit(queue="busy")
    await in_memory.post(f"{QUEUE}/pause")
    text = (await in_memory.client.get("/metrics")).text
    assert 'fairlead_queue_paused{queue="default"} 1\n' in text
    assert 'fairlead_queue_paused{queue="busy"} 0\n' in text


def test_who_wants_a_queues_events_hears_of_its_pause_and_of_no_others() -> None:
    mine = QueueEvent(EventType.QUEUE_PAUSED, 0, QueueData(queue="mine"))
    other = QueueEvent(EventType.QUEUE_PAUSED, 0, QueueData(queue="other"))
    held = QueueEvent(EventType.TYPE_PAUSED, 0, QueueData(task_type="slow"))
    for wanted, heard in (
        (wanted_of(), [mine, other, held]),
        (wanted_of(["queue.*"]), [mine, other]),
        (wanted_of(["task_type.paused"]), [held]),
        (wanted_of(queue="mine"), [mine]),
        (wanted_of(task_id=NOBODY), []),
    ):
        assert [event for event in (mine, other, held) if wanted.admits(event)] == heard


async def test_a_paused_task_type_is_listed_and_left_out(service: Service) -> None:
    await service.submit(task_type="slow")
    await service.submit(task_type="quick")
    path = "/api/v1/task-types/slow"
    assert await service.post(f"{path}/pause") == {"task_type": "slow", "paused": True}
    assert (await service.get("/api/v1/queues"))["paused_types"] == ["slow"]
    assert (await service.get("/api/v1/queue/stats"))["paused_types"] == ["slow"]
    assert [task.spec.type for task in await service.claim(5)] == ["quick"]
    assert await service.post(f"{path}/resume") == {"task_type": "slow", "paused": False}
    assert [task.spec.type for task in await service.claim(5)] == ["slow"]


async def test_a_queue_is_changed_field_by_field_and_null_goes_back(service: Service) -> None:
    order = {"policy": "promote", "low_seconds": 1.0, "medium_seconds": 2.0, "high_seconds": 3.0, "share": "all"}
    body = {"bound": 2, "order": order, "priority": "low", "timeout_seconds": 1.5, "max_retries": 7}
    changed = await patch(service, body)
    assert changed["settings"] == {**NOTHING, **body}
    assert await service.engine.queues.get("default") == QueueSettings(
        bound=2,
        order=Promote(low=SECOND, medium=2 * SECOND, high=3 * SECOND, share="all"),
        priority=Priority.LOW,
        timeout=1_500_000,
        max_retries=7,
    )
    submitted = await service.submit()
    assert submitted["priority"] == "low"
    assert (await service.show(submitted["task_id"]))["timeout_seconds"] == 1.5
    service.advance(1)
    assert (await service.show(submitted["task_id"]))["effective_priority"] == "medium"
    await service.submit()
    assert (await service.submit(429))["type"].endswith("queue-full")
    assert (await patch(service, {"bound": None}))["settings"] == {**NOTHING, **body, "bound": None}
    assert (await patch(service, dict.fromkeys(body)))["settings"] == NOTHING


async def test_a_server_that_only_shows_learns_of_an_order_from_elsewhere(service: Service) -> None:
    submitted = await service.submit(priority="low")
    elsewhere = AdminEngine(service.engine.store, clock=service.clock)
    await elsewhere.queues.change("default", order=Promote(low=SECOND))
    service.advance(1)
    assert (await service.show(submitted["task_id"]))["effective_priority"] == "medium"
    (listed,) = (await service.get("/api/v1/tasks"))["tasks"]
    assert listed["effective_priority"] == "medium"


@pytest.mark.parametrize(
    "order",
    [
        {"policy": "strict"},
        {"policy": "weighted", "critical": 5, "high": 4, "medium": 3, "low": 2},
        {
            "policy": "head_start",
            "critical_seconds": 4.0,
            "high_seconds": 3.0,
            "medium_seconds": 2.0,
            "low_seconds": 1.0,
        },
    ],
)
async def test_every_order_of_service_is_shown_as_it_was_said(in_memory: Service, order: dict[str, Any]) -> None:
    policy = {"initial_seconds": 3.0, "factor": 1.0, "max_seconds": 9.0, "jitter": 0.0}
    changed = await patch(in_memory, {"order": order, "retry_policy": policy, "max_crashes": 0})
    assert changed["settings"] == {**NOTHING, "order": order, "retry_policy": policy, "max_crashes": 0}


async def test_what_makes_no_sense_is_refused_and_changes_nothing(in_memory: Service) -> None:
    for body in (
        {"bound": -1},
        {"order": {"policy": "random"}},
        {"order": {"policy": "strict", "low_seconds": 3}},
        {"priority": "urgent"},
        {"timeout_seconds": 0},
        {"paused": True},
    ):
        assert "detail" in await patch(in_memory, body, 422)
    await patch(in_memory, {}, 404, "/api/v1/queues/not%20a%20name")
    await in_memory.post("/api/v1/task-types/not%20a%20name/pause", None, 404)
    assert await in_memory.engine.queues.all() == {}


async def test_a_purge_must_be_confirmed_and_removes_what_waits(service: Service) -> None:
    await service.submit()
    (running,) = await service.claim()
    await service.submit()
    await service.submit(delay_seconds=60)
    for body in ({}, {"confirm": "another"}):
        await service.post(f"{QUEUE}/purge", body, 422)
    answer = await service.post(f"{QUEUE}/purge", {"confirm": "default"})
    assert answer == {"queue": "default", "scheduled": 1, "queued": 1, "complete": True}
    assert await service.engine.get(running.id) == running


async def test_the_list_has_queues_with_tasks_and_queues_with_settings(service: Service) -> None:
    await service.submit(queue="busy")
    await patch(service, {"bound": 5}, path="/api/v1/queues/quiet")
    listed = (await service.get("/api/v1/queues"))["queues"]
    assert [(queue["queue"], queue["states"]["queued"], queue["settings"]["bound"]) for queue in listed] == [
        ("busy", 1, None),
        ("quiet", 0, 5),
    ]


async def test_a_key_that_is_bound_to_a_tenant_cannot_change_what_all_share(in_memory: Service) -> None:
    keyring = Keyring(in_memory.engine)
    bound = await keyring.create("acme", [Role.ADMIN], tenant="acme")
    in_memory.client.headers["authorization"] = f"Bearer {bound.text}"
    for path in (f"{QUEUE}/pause", f"{QUEUE}/resume", "/api/v1/task-types/slow/pause"):
        assert "all tenants" in (await in_memory.post(path, None, 403))["detail"]
    assert "all tenants" in (await in_memory.post(f"{QUEUE}/purge", {"confirm": "default"}, 403))["detail"]
    assert "all tenants" in (await patch(in_memory, {"bound": 1}, 403))["detail"]


async def test_a_worker_is_shown_with_its_tasks_and_drained(service: Service) -> None:
    await service.engine.worker_records.register(
        WorkerId("worker-1"), queues=["default"], capacity=3, capabilities=["gpu"], host="h", pid=7, version="1.2"
    )
    submitted = await service.submit()
    await service.claim()
    listed = (await service.get("/api/v1/workers"))["workers"]
    assert [(each["worker_id"], each["status"], each["host"], each["capabilities"]) for each in listed] == [
        ("worker-1", "active", "h", ["gpu"])
    ]
    whole = await service.get("/api/v1/workers/worker-1")
    assert [task["task_id"] for task in whole["running_tasks"]] == [submitted["task_id"]]
    assert not whole["drain_requested"]
    assert (await service.post("/api/v1/workers/worker-1/drain"))["worker_id"] == "worker-1"
    assert (await service.get("/api/v1/workers/worker-1"))["drain_requested"]
    assert await service.engine.worker_records.beat(WorkerId("worker-1"), running=1)


async def test_a_lost_worker_is_shown_with_what_became_of_its_tasks(service: Service) -> None:
    await service.engine.worker_records.register(WorkerId("worker-1"), queues=["default"], capacity=3)
    submitted = await service.submit()
    await service.claim()
    service.advance(60)
    await service.engine.sweep()
    whole = await service.get("/api/v1/workers/worker-1")
    assert (whole["status"], whole["running_tasks"], whole["lost_count"]) == ("dead", [], 1)
    (lost,) = whole["lost_tasks"]
    assert (lost["task_id"], lost["task"]["status"]) == (submitted["task_id"], "scheduled")
    assert lost["task"]["reason"] == "worker_lost"


async def test_an_unknown_worker_is_not_found(in_memory: Service) -> None:
    assert (await in_memory.get("/api/v1/workers/nobody", 404))["field"] == "worker_id"
    assert (await in_memory.post("/api/v1/workers/nobody/drain", None, 404))["field"] == "worker_id"


async def test_a_caller_sees_only_its_own_tenants_workers_and_their_own_tasks(in_memory: Service) -> None:
    await in_memory.engine.worker_records.register(WorkerId("worker-1"), queues=["default"], capacity=3, tenant="acme")
    await in_memory.engine.worker_records.register(WorkerId("worker-2"), queues=["default"], capacity=3)
    await in_memory.submit(tenant="acme")
    await in_memory.submit(tenant="other")
    await in_memory.claim(2)
    bound = await Keyring(in_memory.engine).create("acme", [Role.READ], tenant="acme")
    in_memory.client.headers["authorization"] = f"Bearer {bound.text}"
    whole = await in_memory.get("/api/v1/workers/worker-1")
    assert [task["tenant"] for task in whole["running_tasks"]] == ["acme"]
    assert [worker["worker_id"] for worker in (await in_memory.get("/api/v1/workers"))["workers"]] == ["worker-1"]
    await in_memory.get("/api/v1/workers/worker-2", 404)


async def test_limits_are_changed_and_hold_at_the_next_claim(service: Service) -> None:
    body = {"running": 3, "rate": "100/m", "key_running": 2, "key_rate": "5/s"}
    changed = await patch(service, {**body, "type_running": {"slow": 1}, "type_rate": {"slow": "1/s", "rare": "1/d"}})
    types = {"type_running": {"slow": 1}, "type_rate": {"slow": "1/s", "rare": "1/d"}}
    assert changed["settings"] == {**NOTHING, **body, **types}
    changed = await patch(service, {"type_running": {"slow": None, "quick": 2}, "rate": None, "key_rate": None})
    assert (changed["settings"]["type_running"], changed["settings"]["rate"]) == ({"quick": 2}, None)
    for _ in range(3):
        await service.submit(task_type="quick")
    assert len(await service.claim(5)) == 2
    shown = await service.get(QUEUE)
    assert shown["running"] == {"quick": 2}
    assert (await patch(service, {"type_running": None, "running": 2}))["settings"]["type_running"] == {}
    assert await service.claim(5) == []


async def test_tasks_that_share_a_concurrency_key_run_one_at_a_time(service: Service) -> None:
    first = await service.submit(concurrency_key="customer 7")
    await service.submit(concurrency_key="customer 7")
    assert (await service.show(first["task_id"]))["concurrency_key"] == "customer 7"
    assert [task.id for task in await service.claim(5)] == [first["task_id"]]


@pytest.mark.parametrize(
    "body",
    [{"rate": "fast"}, {"rate": "0/s"}, {"running": 0}, {"key_running": -1}, {"type_rate": {"a b": "1/s"}}],
)
async def test_limits_that_make_no_sense_are_refused(service: Service, body: dict[str, Any]) -> None:
    reply = await service.client.patch(QUEUE, json=body)
    assert reply.status_code == 422, reply.text
