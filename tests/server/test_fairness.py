"""Queues that fair keys share, over HTTP: settings, fair keys, and what a bound key may not choose."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.core.tenancy import Role
from tests.server.doors import Doors


@pytest.fixture
async def doors() -> Doors:
    doors = Doors()
    assert (
        await doors.call("PATCH", "/api/v1/queues/default", json={"fair": "tenant", "weight": {"a=b": 3}})
    ).status == 200
    return doors


async def submit(doors: Doors, key: str | None = None, **wish: Any) -> Any:
    return await doors.call("POST", "/api/v1/tasks", key=key, json={"task_type": "echo", **wish})


async def test_settings_are_shown_as_they_were_said(doors: Doors) -> None:
    shown = (await doors.call("GET", "/api/v1/queues/default")).json["settings"]
    assert (shown["fair"], shown["weight"], shown["default_weight"]) == ("tenant", {"a=b": 3}, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"fair": "tenants"}, {"fair": ""}, {"fair": "tag:"}, {"fair": 3}, {"weight": {"acme": 0}}, {"weight": {"": 1}},
        {"weight": {"acme": "3"}}, {"weight": {"acme": 101}}, {"weight": 3}, {"default_weight": 1e9},
    ],
)  # fmt: skip
async def test_what_makes_no_sense_is_refused(doors: Doors, wrong: dict[str, object]) -> None:
    said = await doors.call("PATCH", "/api/v1/queues/default", json=wrong)
    assert said.status in (400, 422)
    assert said.json["detail"]


async def test_a_task_tells_whose_turns_it_takes(doors: Doors) -> None:
    own = (await submit(doors, tenant="acme")).json["task_id"]
    chosen = (await submit(doors, tenant="acme", fair_key="other")).json["task_id"]
    none = (await submit(doors)).json["task_id"]
    shown = [(await doors.call("GET", f"/api/v1/tasks/{task_id}")).json for task_id in (own, chosen, none)]
    assert [(task["fair_key"], task["turn"]) for task in shown] == [("acme", 5_040), ("other", 5_040), (None, 0)]


async def test_a_bound_key_takes_the_turns_of_its_tenant_and_chooses_no_others(doors: Doors) -> None:
    key = (await doors.key(Role.SUBMIT, Role.READ, tenant="acme")).text
    task_id = (await submit(doors, key)).json["task_id"]
    assert (await doors.call("GET", f"/api/v1/tasks/{task_id}", key=key)).json["fair_key"] == "acme"
    said = await submit(doors, key, fair_key="made up")
    assert (said.status, said.json["field"]) == (403, "fair_key")
    tasks = [{"task_type": "echo", "fair_key": "x"}, {"task_type": "echo"}]
    batch = await doors.call("POST", "/api/v1/tasks/batch", key=key, json={"tasks": tasks})
    assert [each["status"] for each in batch.json["results"]] == [403, 201]


@pytest.mark.parametrize("fair", ["type", "tag:customer", "parameter:account"])
async def test_a_bound_key_is_refused_where_it_could_make_up_keys_otherwise(doors: Doors, fair: str) -> None:
    await doors.call("PATCH", "/api/v1/queues/free", json={"fair": fair})
    key = (await doors.key(Role.ADMIN, name="a", tenant="acme")).text
    said = await submit(doors, key, queue="free", tags=["customer:9"])
    assert said.status == 403
    assert f"shared by {fair}" in said.json["detail"]
    free = (await doors.key(Role.SUBMIT, name="b")).text
    assert (await submit(doors, free, queue="free", tags=["customer:9"])).status == 201


async def test_nor_by_a_schedule(doors: Doors) -> None:
    key = (await doors.key(Role.ADMIN, name="a", tenant="acme")).text
    task = {"task_type": "echo", "fair_key": "made up"}
    wish = {"name": "s", "cron": "* * * * *", "task": task}
    made = await doors.call("POST", "/api/v1/schedules", key=key, json=wish)
    assert (made.status, made.json["field"]) == (403, "fair_key")


async def test_nor_by_what_its_workers_publish_of_a_type(doors: Doors) -> None:
    types = {"types": [{"options": {"task_type": "echo", "fair_key": "made up", "max_retries": 7}}]}
    bound = (await doors.key(Role.WORK, tenant="acme", name="a")).text
    free = (await doors.key(Role.ADMIN, name="b")).text
    assert (await doors.call("PUT", "/api/v1/task-types", key=bound, json=types)).status == 200
    task_id = (await submit(doors, free, tenant="acme")).json["task_id"]
    shown = (await doors.call("GET", f"/api/v1/tasks/{task_id}", key=free)).json
    assert (shown["fair_key"], shown["max_retries"]) == ("acme", 7)
    assert (await doors.call("PUT", "/api/v1/task-types", key=free, json=types)).status == 200
    task_id = (await submit(doors, free, tenant="umbrella")).json["task_id"]
    assert (await doors.call("GET", f"/api/v1/tasks/{task_id}", key=free)).json["fair_key"] == "made up"


async def test_a_schedule_of_before_is_refused_and_says_why(doors: Doors) -> None:
    bound = (await doors.key(Role.ADMIN, name="a", tenant="acme")).text
    free = (await doors.key(Role.ADMIN, name="b")).text
    wish = {"name": "s", "cron": "* * * * *", "task": {"task_type": "echo", "queue": "free", "fair_key": "made up"}}
    assert (await doors.call("POST", "/api/v1/schedules", key=bound, json=wish)).status == 201
    await doors.call("PATCH", "/api/v1/queues/free", key=free, json={"fair": "tenant"})
    said = await doors.call("POST", "/api/v1/schedules/s/run", key=bound)
    assert said.status == 422
    assert said.json["detail"].startswith("the task of schedule 's' is refused: a key that is bound to a tenant")
