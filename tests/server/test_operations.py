"""Queries, groups of dead letters and operations over HTTP, on every store."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.core.settings import Settings
from fairlead.core.tenancy import Role
from fairlead.storage.memory import MemoryStore
from tests.engine.stocking import a_dead_letter, stock
from tests.server.doors import HOST, Doors, _scope
from tests.server.serving import Service

TASKS = "/api/v1/tasks"
GROUPS = "/api/v1/dlq/groups"
OPERATIONS = "/api/v1/operations"


def ids(page: Any) -> list[str]:
    return [task["task_id"] for task in page["tasks"]]


async def work(service: Service, operation_id: str) -> Any:
    """Have the server's own process work on an operation until it stops."""
    while True:
        shown = await service.get(f"{OPERATIONS}/{operation_id}")
        if shown["status"] not in ("pending", "running"):
            return shown
        await service.engine.operations.operator.once()
        service.advance(0.1)


async def test_tasks_are_listed_by_a_query_in_pages(service: Service) -> None:
    tasks = await stock(service.engine.store, [a_dead_letter(n, queue="a" if n % 2 else "b") for n in range(7)])

    page = await service.get(TASKS, q="state:dead_letter params.user_id:>1 -queue:b", limit=2)
    assert ids(page) == [tasks[5].id, tasks[3].id]
    assert page["next_cursor"] is None
    first = await service.get(TASKS, q="error:unknown", limit=4, order="oldest")
    rest = await service.get(TASKS, q="error:unknown", limit=4, order="oldest", cursor=first["next_cursor"])
    assert ids(first) + ids(rest) == [task.id for task in tasks]
    assert ids(await service.get(TASKS, q="params.user_id:1,2", queue="a")) == [tasks[1].id]
    assert ids(await service.get("/api/v1/dlq", q='"user 3"', task_type="send_mail")) == [tasks[3].id]


@pytest.mark.parametrize("path", [TASKS, "/api/v1/dlq", GROUPS])
async def test_a_mistake_in_a_query_gets_carets_under_it(in_memory: Service, path: str) -> None:
    problem = await in_memory.get(path, 400, q="queue:a sate:failed")

    assert problem["type"] == "/docs#invalid-query"
    assert (problem["field"], problem["position"]) == ("q", 8)
    assert problem["pointer"] == "queue:a sate:failed\n        ^^^^"
    assert "did you mean state?" in problem["detail"]


async def test_dead_letters_are_grouped_by_error(service: Service) -> None:
    tasks = await stock(service.engine.store, [*(a_dead_letter(n) for n in range(3)), a_dead_letter(type="resize")])

    grouped = await service.get(GROUPS)

    assert (grouped["total"], grouped["complete"]) == (4, True)
    assert [(each["task_type"], each["count"], each["alert"]) for each in grouped["types"]] == [
        ("send_mail", 3, False),
        ("resize", 1, False),
    ]
    group = grouped["groups"][0]
    assert (group["pattern"], group["count"]) == ("user <n> is unknown", 3)
    assert group["task_id"] in [task.id for task in tasks[:3]]
    found = await service.get(TASKS, q=f"fingerprint:{group['fingerprint']} type:send_mail")
    assert sorted(ids(found)) == [task.id for task in tasks[:3]]
    assert (await service.get(GROUPS, task_type="resize"))["total"] == 1


async def test_too_many_dead_letters_of_a_type_are_an_alert() -> None:
    async with Service(MemoryStore(), Settings(dead_letter_alert=2)) as service:
        await stock(service.engine.store, [a_dead_letter(n) for n in range(2)])
        (kind,) = (await service.get(GROUPS))["types"]
    assert (kind["alert_at"], kind["alert"]) == (2, True)


async def test_an_operation_is_tried_dry_then_done_over_what_was_seen(service: Service) -> None:
    await stock(service.engine.store, [a_dead_letter(n) for n in range(12)])
    wish: dict[str, Any] = {"action": "replay", "query": "state:dead_letter  params.user_id:>=2"}

    seen = await service.post(OPERATIONS, {**wish, "dry_run": True})
    assert (seen["count"], len(seen["sample"])) == (10, 10)
    assert (await service.get(OPERATIONS))["operations"] == []
    wish |= {"as_of": seen["as_of"], "expected": 10, "new_priority": "low", "rate": 100.0}
    begun = await service.post(OPERATIONS, wish, 201)
    assert (begun["status"], begun["expected"], begun["who"]) == ("pending", 10, "anybody")
    ended = await work(service, begun["operation_id"])
    assert (ended["status"], ended["done"], ended["query"]) == ("done", 10, "state:dead_letter params.user_id:>=2")
    assert len(ids(await service.get(TASKS, q="state:queued priority:low"))) == 10
    assert [each["operation_id"] for each in (await service.get(OPERATIONS))["operations"]] == [begun["operation_id"]]


async def test_a_canary_is_resumed_paused_and_cancelled(in_memory: Service) -> None:
    await stock(in_memory.engine.store, [a_dead_letter(n) for n in range(1_500)])
    wish = {"action": "discard", "query": "state:dead_letter", "canary": 3}
    begun = await in_memory.post(OPERATIONS, wish, 201)
    path = f"{OPERATIONS}/{begun['operation_id']}"

    waiting = await work(in_memory, begun["operation_id"])
    assert (waiting["status"], waiting["done"]) == ("paused", 3)
    assert (await in_memory.post(f"{path}/resume"))["status"] == "pending"
    await in_memory.engine.operations.operator.once()
    assert (await in_memory.post(f"{path}/pause"))["note"] == "anybody paused it"
    ended = await in_memory.post(f"{path}/cancel")
    assert (ended["status"], ended["done"]) == ("cancelled", 503)
    problem = await in_memory.post(f"{path}/resume", status=409)
    assert problem["type"] == "/docs#operation-refused"


async def test_what_makes_no_sense_is_refused(in_memory: Service) -> None:
    await stock(in_memory.engine.store, [a_dead_letter()])
    for wish, status, kind in (
        ({"action": "replay", "query": "sate:x"}, 400, "invalid-query"),
        ({"action": "replay", "query": ""}, 409, "operation-refused"),
        ({"action": "replay", "query": "state:dead_letter", "expected": 5}, 409, "operation-refused"),
        ({"action": "explode", "query": "state:dead_letter"}, 422, "invalid-value"),
        ({"action": "replay", "query": "state:dead_letter", "rate": 0}, 422, "invalid-value"),
    ):
        assert (await in_memory.post(OPERATIONS, wish, status))["type"] == f"/docs#{kind}"
    assert (await in_memory.get(f"{OPERATIONS}/nobody", 404))["field"] == "operation_id"


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("as_of", ["0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00"])
async def test_a_moment_that_cannot_be_shown_is_refused_and_not_kept(
    in_memory: Service, as_of: str, dry_run: bool
) -> None:
    body = {"action": "cancel", "query": "type:work", "as_of": as_of, "dry_run": dry_run}

    problem = await in_memory.post(OPERATIONS, body, 422)

    assert problem["field"] == "as_of" and "use a moment of the years 1970 to 2255" in problem["detail"]
    assert (await in_memory.get(OPERATIONS))["operations"] == []


async def test_a_key_of_a_tenant_sees_and_touches_its_own_only() -> None:
    doors = Doors()
    store = doors.state.engine.store
    await stock(store, [a_dead_letter(n, tenant="acme" if n % 2 else "other") for n in range(6)])
    acme = (await doors.key(Role.ADMIN, tenant="acme")).text
    other = (await doors.key(Role.ADMIN, tenant="other")).text

    assert (await doors.call("GET", GROUPS, key=acme)).json["total"] == 3
    asked = _scope("http", TASKS, {"host": HOST, "authorization": f"Bearer {acme}"})
    listed = (await doors.ask(asked | {"method": "GET", "scheme": "http", "query_string": b"q=tenant:other"})).json
    assert listed["tasks"] == []
    listed = (await doors.ask(asked | {"method": "GET", "scheme": "http", "query_string": b"q=error:unknown"})).json
    assert {task["tenant"] for task in listed["tasks"]} == {"acme"}
    wish = {"action": "discard", "query": "state:dead_letter"}
    begun = (await doors.call("POST", OPERATIONS, key=acme, json=wish)).json
    assert begun["expected"] == 3
    assert (await doors.call("GET", f"{OPERATIONS}/{begun['operation_id']}", key=other)).status == 404
    assert (await doors.call("GET", OPERATIONS, key=other)).json["operations"] == []
    await doors.state.engine.operations.operator.once()
    assert (await doors.call("GET", f"{OPERATIONS}/{begun['operation_id']}", key=acme)).json["done"] == 3
    assert (await doors.call("GET", GROUPS, key=other)).json["total"] == 3
