"""Every endpoint, with every role, about what is a tenant's own, another's and nobody's.

Each request is one that takes effect: its ids are real, its leases hold, and the same request with a key that is bound
to no tenant does what it says. To the tenant's key what is another's is not there: it is not told, not changed, and its
id is answered as one that nothing has. An endpoint without a row here fails.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeAlias

import pytest

from fairlead.core.tenancy import Role
from fairlead.server.docs.pages import ENDPOINTS
from fairlead.server.endpoint import Served
from tests.server.doors import Said
from tests.server.tenants import ACME, FRESH, NOBODY, OWNERS, UMBRELLA, UNKNOWN, Things, Town, told


class Asked(NamedTuple):
    """A request."""

    path: str
    body: Any = None


class Row(NamedTuple):
    """What an endpoint is asked, and how it answers a key of acme about acme's things, umbrella's and nobody's."""

    ask: Callable[[Things, Things], Asked]
    """Of the caller's own things and of those that it asks about."""
    own: int = 200
    others: int = 404
    nobodys: int = 404
    unbound: int | None = None
    """How a key that is bound to no tenant is answered about umbrella's things; as the own if not said."""
    shared_name: bool = False
    """Whether all owners share the name, so that it can be told that one is taken."""


def about(path: str, body: Callable[[Things], Any] | None = None) -> Callable[[Things, Things], Asked]:
    """A request that names what it asks about in its path, and in its body."""
    return lambda own, things: Asked(path.format_map(_fields(things)), None if body is None else body(things))


def of_own_worker(what: str, body: Callable[[Things], Any]) -> Callable[[Things, Things], Asked]:
    """A request of the caller's own worker, about tasks and leases of whomever."""
    return lambda own, things: Asked(f"/internal/workers/{own.worker}/{what}", body(things))


def _fields(things: Things) -> dict[str, Any]:
    return {name: getattr(things, name) for name in things.__struct_fields__}


def listing(path: str) -> Row:
    """All are answered; what they are told is looked at for what is not theirs."""
    return Row(about(path), 200, 200, 200)


def everybodys(path: str, body: Callable[[Things], Any] | None = None, unbound: int = 200) -> Row:
    """What concerns all tenants is refused to each of them."""
    return Row(about(path, body), 403, 403, 403, unbound)


def public(path: str, body: Callable[[Things], Any] | None = None, status: int = 200) -> Row:
    """What is for everybody."""
    return Row(about(path, body), status, status, status, status)


def task_of(things: Things) -> dict[str, Any]:
    return {"task_type": things.type, "queue": things.queue, "tenant": things.tenant}


def schedule_of(things: Things) -> dict[str, Any]:
    return {"cron": "@hourly", "task": {"task_type": things.type, "queue": things.queue, "tenant": things.tenant}}


def held(things: Things) -> dict[str, Any]:
    return {"task_id": things.executing, "lease": things.lease}


TASK = "/api/v1/tasks/{queued}"
OPERATION = "/api/v1/operations/{operation}"
SCHEDULE = "/api/v1/schedules/{schedule}"
QUEUE = "/api/v1/queues/{queue}"
TYPE = "/api/v1/task-types/{type}"
RECORD = "/api/v1/quarantine/schedule/{record}"
WORKER = "/internal/workers/{worker}"

ROWS: Final[dict[str, Row]] = {
    "POST /api/v1/tasks": Row(about("/api/v1/tasks", task_of), 201, 403, 201),
    "GET /api/v1/tasks": listing("/api/v1/tasks?queue={queue}"),
    "GET /api/v1/tasks/{task_id}": Row(about(TASK)),
    "GET /api/v1/tasks/{task_id}/explain": Row(about(TASK + "/explain")),
    "DELETE /api/v1/tasks/{task_id}": Row(about(TASK)),
    "POST /api/v1/tasks/batch": Row(about("/api/v1/tasks/batch", lambda things: [task_of(things)]), 200, 207, 200),
    "GET /api/v1/dlq": listing("/api/v1/dlq?queue={queue}"),
    "GET /api/v1/dlq/groups": listing("/api/v1/dlq/groups?q=queue:{queue}"),
    "POST /api/v1/dlq/{task_id}/replay": Row(about("/api/v1/dlq/{dead}/replay")),
    "DELETE /api/v1/dlq/{task_id}": Row(about("/api/v1/dlq/{dead}")),
    "POST /api/v1/operations": Row(
        about("/api/v1/operations", lambda things: {"action": "cancel", "query": f"queue:{things.queue}"}),
        201,
        201,
        201,
    ),
    "GET /api/v1/operations": listing("/api/v1/operations"),
    "GET /api/v1/operations/{operation_id}": Row(about(OPERATION)),
    "POST /api/v1/operations/{operation_id}/pause": Row(about(OPERATION + "/pause")),
    "POST /api/v1/operations/{operation_id}/resume": Row(about(OPERATION + "/resume")),
    "POST /api/v1/operations/{operation_id}/cancel": Row(about(OPERATION + "/cancel")),
    "GET /api/v1/schedules": listing("/api/v1/schedules"),
    "POST /api/v1/schedules": Row(
        about("/api/v1/schedules", lambda things: {"name": FRESH, **schedule_of(things)}),
        201,
        403,
        201,
    ),
    "GET /api/v1/schedules/{schedule}": Row(about(SCHEDULE)),
    "PUT /api/v1/schedules/{schedule}": Row(
        lambda own, things: Asked(f"/api/v1/schedules/{things.schedule}", schedule_of(own)),
        200,
        409,
        409,
        shared_name=True,
    ),
    "DELETE /api/v1/schedules/{schedule}": Row(about(SCHEDULE)),
    "POST /api/v1/schedules/{schedule}/pause": Row(about(SCHEDULE + "/pause")),
    "POST /api/v1/schedules/{schedule}/resume": Row(about(SCHEDULE + "/resume")),
    "POST /api/v1/schedules/{schedule}/run": Row(about(SCHEDULE + "/run"), 201),
    "GET /api/v1/schedules/{schedule}/preview": Row(about(SCHEDULE + "/preview")),
    "GET /api/v1/queues": listing("/api/v1/queues"),
    "GET /api/v1/queues/{queue}": Row(about(QUEUE), 200, 403, 403),
    "PATCH /api/v1/queues/{queue}": everybodys(QUEUE, lambda things: {"bound": 7}),
    "POST /api/v1/queues/{queue}/pause": everybodys(QUEUE + "/pause"),
    "POST /api/v1/queues/{queue}/resume": everybodys(QUEUE + "/resume"),
    "POST /api/v1/queues/{queue}/purge": everybodys(QUEUE + "/purge", lambda things: {"confirm": things.queue}),
    "POST /api/v1/task-types/{task_type}/pause": everybodys(TYPE + "/pause"),
    "POST /api/v1/task-types/{task_type}/resume": everybodys(TYPE + "/resume"),
    "GET /api/v1/task-types": public("/api/v1/task-types"),
    "PUT /api/v1/task-types": Row(
        about(
            "/api/v1/task-types",
            lambda things: {
                "types": [{"options": {"task_type": things.type, "tenant": things.tenant, "max_retries": 7}}]
            },
        ),
        200,
        403,
        200,
    ),
    "GET /api/v1/task-types/{task_type}": Row(about(TYPE)),
    "DELETE /api/v1/task-types/{task_type}": Row(about(TYPE)),
    "GET /api/v1/tenants": listing("/api/v1/tenants"),
    "GET /api/v1/circuits": everybodys("/api/v1/circuits"),
    "GET /api/v1/task-types/{task_type}/circuit": everybodys(TYPE + "/circuit"),
    "PUT /api/v1/task-types/{task_type}/circuit": everybodys(TYPE + "/circuit", lambda things: {"failure_ratio": 0.9}),
    "DELETE /api/v1/task-types/{task_type}/circuit": everybodys(TYPE + "/circuit"),
    "POST /api/v1/task-types/{task_type}/circuit/open": everybodys(TYPE + "/circuit/open"),
    "POST /api/v1/task-types/{task_type}/circuit/close": everybodys(TYPE + "/circuit/close"),
    "GET /api/v1/workers": listing("/api/v1/workers"),
    "GET /api/v1/workers/{worker_id}": Row(about("/api/v1/workers/{worker}")),
    "POST /api/v1/workers/{worker_id}/drain": Row(about("/api/v1/workers/{worker}/drain")),
    "POST /api/v1/workers/{worker_id}/pause": Row(about("/api/v1/workers/{worker}/pause")),
    "POST /api/v1/workers/{worker_id}/resume": Row(about("/api/v1/workers/{worker}/resume")),
    "POST /api/v1/workers/{worker_id}/forget": Row(about("/api/v1/workers/{lost}/forget")),
    "GET /api/v1/queue/stats": Row(about("/api/v1/queue/stats?queue={queue}"), 200, 403, 403),
    "GET /api/v1/queue/history": everybodys("/api/v1/queue/history"),
    "GET /api/v1/autoscale": Row(about("/api/v1/autoscale?queue={queue}"), 200, 403, 403),
    "GET /api/v1/quarantine": everybodys("/api/v1/quarantine"),
    "GET /api/v1/quarantine/{kind}/{name}": everybodys(RECORD),
    "POST /api/v1/quarantine/{kind}/{name}/restore": everybodys(
        RECORD + "/restore", lambda things: {"parts": things.parts}
    ),
    "DELETE /api/v1/quarantine/{kind}/{name}": everybodys(RECORD),
    "GET /api/v1/doctor": everybodys("/api/v1/doctor"),
    "GET /healthz": public("/healthz"),
    "GET /readyz": public("/readyz", status=503),
    "GET /metrics": listing("/metrics"),
    "POST /internal/workers/register": Row(
        lambda own, things: Asked(
            "/internal/workers/register", {"worker_id": things.worker, "queues": [own.queue], "capacity": 9}
        ),
        201,
        403,
        403,
        unbound=403,
        shared_name=True,
    ),
    "POST /internal/workers/{worker_id}/poll": Row(about(WORKER + "/poll", lambda things: {}), unbound=403),
    "POST /internal/workers/{worker_id}/start": Row(of_own_worker("start", held), 200, 409, 409),
    "POST /internal/workers/{worker_id}/progress": Row(
        of_own_worker("progress", lambda things: {**held(things), "percent": 40}), 200, 409, 409
    ),
    "POST /internal/workers/{worker_id}/result": Row(
        of_own_worker("result", lambda things: {**held(things), "status": "completed"}), 200, 409, 409, unbound=409
    ),
    "POST /internal/workers/{worker_id}/heartbeat": Row(
        of_own_worker("heartbeat", lambda things: {"running": [held(things)]}), 200, 200, 200
    ),
    "PUT /internal/workers/{worker_id}/schedules": Row(
        about(WORKER + "/schedules", lambda things: {"schedules": []}), unbound=403
    ),
    "POST /internal/workers/{worker_id}/drain": Row(about(WORKER + "/drain"), unbound=403),
    "POST /internal/workers/{worker_id}/deregister": Row(
        about(WORKER + "/deregister", lambda things: {"running": [held(things)]}), unbound=403
    ),
    "POST /api/v1/session": public("/api/v1/session", lambda things: {"key": "fl_none_none"}, 401),
    "GET /api/v1/session": public("/api/v1/session"),
    "DELETE /api/v1/session": public("/api/v1/session", status=204),
    "GET /api/v1/events": Row(about("/api/v1/events?task_id={queued}")),
    "GET /openapi.json": public("/openapi.json"),
    "GET /docs": public("/docs"),
    "GET /docs.css": public("/docs.css"),
}

MORE_ROWS: Final[dict[str, Row]] = {
    "POST /api/v1/tasks?estimate=true": Row(about("/api/v1/tasks?estimate=true", task_of), 201, 403, 201),
    "GET /api/v1/tasks?q": listing("/api/v1/tasks?q=queue:{queue}"),
    "GET /api/v1/tasks/{task_id}?wait": Row(about(TASK + "?wait=1&include_history=true")),
    "DELETE /api/v1/tasks/{task_id}?executing": Row(about("/api/v1/tasks/{executing}?wait=1"), own=202),
    "POST /api/v1/workers/{worker_id}/forget?alive": Row(about("/api/v1/workers/{worker}/forget"), own=409),
    "GET /api/v1/workers/{worker_id}?lost": Row(about("/api/v1/workers/{lost}")),
    "GET /api/v1/queue/stats?all": Row(about("/api/v1/queue/stats"), 200, 200, 200),
}
"""What else endpoints are asked that reaches other code; behind the question mark is how."""

CHANGING: Final = ("POST", "PUT", "PATCH", "DELETE")
IDLE: Final = ("/resume", "/close", "/start", "/{worker_id}/schedules")
"""What finds things as it would leave them; a worker that declares no schedules changes none."""


def named(endpoint: Served[Any, Any]) -> str:
    return f"{endpoint.method} {endpoint.path}"


def case_of(row: str) -> Any:
    """A row, and the endpoint that it is about."""
    (endpoint,) = [endpoint for endpoint in ENDPOINTS if named(endpoint) == row.partition("?")[0]]
    return pytest.param(endpoint, (ROWS | MORE_ROWS)[row], id=row)


CASES: Final = [case_of(row) for row in (*ROWS, *MORE_ROWS)]
GUARDED: Final = [case for case in CASES if case.values[0].role is not None]


Builder: TypeAlias = Callable[[Role], Awaitable[Town]]


@pytest.fixture
async def build() -> AsyncIterator[Builder]:
    """Builds towns, and closes their engines in the end."""
    async with contextlib.AsyncExitStack() as stack:

        async def build(role: Role) -> Town:
            town = await Town.build(role)
            stack.push_async_callback(town.engine.close)
            return town

        yield build


def expected(row: Row, owner: str) -> int:
    return {ACME: row.own, UMBRELLA: row.others, NOBODY: row.nobodys}[owner]


def test_every_endpoint_has_a_row_and_every_row_an_endpoint() -> None:
    assert {named(endpoint) for endpoint in ENDPOINTS} == set(ROWS)


@pytest.mark.parametrize(("endpoint", "row"), CASES)
async def test_to_a_tenant_what_is_not_its_own_is_not_there(
    build: Builder, endpoint: Served[Any, Any], row: Row
) -> None:
    for role in Role:
        allowed = endpoint.role in (None, role) or role is Role.ADMIN
        for owner in OWNERS:
            town = await build(role)
            asked = row.ask(town.things[ACME], town.things[owner])
            before = [await town.standing(other) for other in (UMBRELLA, NOBODY)]
            said = await town.call(ACME, role, endpoint.method, *asked)
            await work_off(town)
            after = [await town.standing(other) for other in (UMBRELLA, NOBODY)]
            case = f"{role} about what is {owner}'s: {said.status} {said.body[:500]!r}"
            assert said.status == (expected(row, owner) if allowed else 403), case
            assert before == after, case
            assert told(said.body, f"{asked}", town.secrets(UMBRELLA, NOBODY)) == [], case


@pytest.mark.parametrize(("endpoint", "row"), GUARDED)
async def test_the_name_of_anothers_is_answered_as_one_that_nothing_has(
    build: Builder, endpoint: Served[Any, Any], row: Row
) -> None:
    if row.shared_name:
        return
    assert endpoint.role is not None
    answers: list[tuple[int, Any]] = []
    for things in (UMBRELLA, NOBODY, None):
        if things == NOBODY and row.nobodys != row.others:
            continue
        town = await build(endpoint.role)
        asked_about = UNKNOWN if things is None else town.things[things]
        said = await town.call(ACME, endpoint.role, endpoint.method, *row.ask(town.things[ACME], asked_about))
        answers.append((said.status, shape(said, asked_about)))
    assert all(answer == answers[0] for answer in answers), answers


@pytest.mark.parametrize(("endpoint", "row"), GUARDED)
async def test_the_same_request_takes_effect_for_who_is_bound_to_no_tenant(
    build: Builder, endpoint: Served[Any, Any], row: Row
) -> None:
    assert endpoint.role is not None
    town = await build(endpoint.role)
    asked = row.ask(town.things[NOBODY], town.things[UMBRELLA])
    before = await town.standing(UMBRELLA)
    said = await town.call(NOBODY, endpoint.role, endpoint.method, *asked)
    await work_off(town)
    assert said.status == (row.own if row.unbound is None else row.unbound), said.body
    if endpoint.method not in CHANGING:
        assert said.status == 200
    elif said.status < 300 and not endpoint.path.endswith(IDLE):
        assert await town.standing(UMBRELLA) != before


@pytest.mark.parametrize(("endpoint", "row"), GUARDED)
async def test_a_tenants_own_request_takes_effect(build: Builder, endpoint: Served[Any, Any], row: Row) -> None:
    assert endpoint.role is not None
    town = await build(endpoint.role)
    own = town.things[ACME]
    before = await town.standing(ACME)
    said = await town.call(ACME, endpoint.role, endpoint.method, *row.ask(own, own))
    await work_off(town)
    changes = endpoint.method in CHANGING and not endpoint.path.endswith(IDLE) and said.status < 300
    assert (await town.standing(ACME) != before) == changes


async def work_off(town: Town) -> None:
    """Do what an operation is to do that was begun just now."""
    before = {things.operation for things in town.things.values()}
    for operation in await town.engine.operations.all():
        if operation.id not in before:
            await town.engine.operations.step(operation.id)


def shape(said: Said, things: Things) -> Any:
    """What is said, without the names that the caller has given, and without ids."""
    text = said.body.decode()
    for name in sorted(things.names, key=len, reverse=True):
        text = text.replace(name, "…")
    text = re.sub(r"\b[0-9a-f]{16}(?:[0-9a-f]{16})?\b", "…", text)
    # What has waited for a moment may have waited for two.
    text = re.sub(r"(oldest_age_seconds\{[^}]*\}) [0-9.e-]+", r"\1 …", text)
    try:
        return json.loads(text)
    except ValueError:
        return text
