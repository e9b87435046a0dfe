"""Schedules over HTTP: added, looked at, paused, run and removed, on every store."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.admin.keys.service import Keyring
from fairlead.admin.sweeper import Sweeper
from fairlead.core.schedule import Schedule
from fairlead.core.submission import Submission
from fairlead.core.tenancy import Role
from fairlead.server.settings import ServerSettings
from fairlead.storage.open import open_store
from tests.server.serving import Service

PATH = "/api/v1/schedules"


def a_request(**fields: Any) -> dict[str, Any]:
    return {"name": "report", "cron": "*/5 * * * *", "task": {"task_type": "make_report"}, **fields}


async def test_a_schedule_is_added_and_fires(service: Service) -> None:
    task = {
        "task_type": "make_report",
        "priority": "low",
        "parameters": {"big": 12345678901234567890},
        "required_capabilities": ["gpu"],
        "timeout_seconds": 60.0,
        "max_retries": 7,
        "max_crashes": 2,
        "retry_policy": {"initial_seconds": 2.0, "factor": 3.0, "max_seconds": 30.0, "jitter": 0.0},
        "retry_rules": [{"error": "ValueError", "reject": True}, {"error": "OSError", "max_retries": 9}],
        "queue": "reports",
        "tenant": "acme",
        "tags": ["eu"],
        "trace_id": "t",
        "concurrency_key": "k",
        "expires_seconds": 60.0,
        "retention": {"completed_seconds": 5.0},
        "fair_key": "f",
    }
    request = a_request(
        task=task,
        timezone="Europe/Berlin",
        missed="run_all",
        missed_cap=5,
        overlap="skip",
        jitter_seconds=0.0,
        start_at="2027-01-15T08:00:00Z",
        end_at="2028-01-01T00:00:00Z",
        paused=False,
    )
    added = await service.post(PATH, request, 201)
    assert added["task"] == task
    assert {name: added[name] for name in ("timezone", "missed", "missed_cap", "overlap", "paused")} == {
        name: request[name] for name in ("timezone", "missed", "missed_cap", "overlap", "paused")
    }
    assert (added["next_fire_at"], added["fired"]) == ("2027-01-15T08:05:00.000000Z", 0)
    assert await service.get(f"{PATH}/report") == added
    assert await service.get(PATH) == {"schedules": [added]}

    service.advance(300)
    await Sweeper(service.engine).once()
    after = await service.get(f"{PATH}/report")
    assert (after["last_fire_at"], after["fired"]) == (added["next_fire_at"], 1)
    fired = await service.show(after["last_task_id"])
    assert fired["parameters"] == task["parameters"]
    assert (fired["queue"], fired["tags"], fired["tenant"]) == ("reports", ["eu", "schedule:report"], "acme")


async def test_a_name_is_taken_once(service: Service) -> None:
    await service.post(PATH, a_request(), 201)
    problem = await service.post(PATH, a_request(), 409)
    assert (problem["type"], problem["field"]) == ("/docs#already-exists", "name")


async def test_put_adds_and_replaces(service: Service) -> None:
    fields = a_request()
    del fields["name"]
    put = service.client.put
    assert (await put(f"{PATH}/report", json=fields)).status_code == 201
    await service.post(f"{PATH}/report/pause")
    replaced = await put(f"{PATH}/report", json=fields | {"cron": "@daily"})
    assert replaced.status_code == 200
    assert (replaced.json()["cron"], replaced.json()["paused"]) == ("@daily", True)
    assert not (await put(f"{PATH}/report", json=fields | {"paused": False})).json()["paused"]


async def test_a_schedule_is_paused_resumed_run_previewed_and_removed(service: Service) -> None:
    await service.post(PATH, a_request(timezone="America/New_York"), 201)
    assert (await service.post(f"{PATH}/report/pause"))["paused"]
    created = await service.post(f"{PATH}/report/run", status=201)
    assert (created["task_type"], created["status"]) == ("make_report", "queued")
    assert not (await service.post(f"{PATH}/report/resume"))["paused"]
    preview = await service.get(f"{PATH}/report/preview", count=2)
    assert preview["fire_times"] == [
        {"at": "2027-01-15T08:05:00.000000Z", "local": "2027-01-15T03:05:00-05:00"},
        {"at": "2027-01-15T08:10:00.000000Z", "local": "2027-01-15T03:10:00-05:00"},
    ]
    assert (await service.delete(f"{PATH}/report"))["fired"] == 1
    for missing in (f"{PATH}/report", f"{PATH}/no such name", f"{PATH}/report/preview"):
        assert (await service.get(missing, 404))["type"] == "/docs#not-found"
    await service.delete(f"{PATH}/report", 404)
    for action in ("pause", "resume", "run"):
        await service.post(f"{PATH}/report/{action}", status=404)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"timezone": "Mars/Phobos"}, "timezone"),
        ({"missed": "sometimes"}, "missed"),
        ({"overlap": "sometimes"}, "overlap"),
        ({"name": "two words"}, "name"),
        ({"end_at": "2020-01-01T00:00:00Z"}, "end"),
        ({"task": {"task_type": "x y"}}, "task_type"),
        ({"task": {"task_type": "x", "run_at": "2030-01-01T00:00:00Z"}}, "task.run_at"),
    ],
)
async def test_what_is_wrong_is_named(in_memory: Service, fields: dict[str, Any], field: str) -> None:
    problem = await in_memory.post(PATH, a_request(**fields), 422)
    assert problem["field"] == field
    assert problem["remedy"]


async def test_a_tenant_sees_and_changes_its_own_schedules_only() -> None:
    async with Service(await open_store("memory://"), server=ServerSettings(rate_limit=0)) as service:
        await service.engine.schedules.add(_other_tenants())
        made = await Keyring(service.engine).create("acme", [Role.ADMIN], tenant="acme")
        service.client.headers["authorization"] = f"Bearer {made.text}"
        added = await service.post(PATH, a_request(), 201)
        assert added["task"]["tenant"] == "acme"
        assert [each["name"] for each in (await service.get(PATH))["schedules"]] == ["report"]
        await service.get(f"{PATH}/theirs", 404)
        await service.post(f"{PATH}/theirs/run", status=404)
        await service.delete(f"{PATH}/theirs", 404)
        fields = {"cron": "@daily", "task": {"task_type": "x"}}
        assert (await service.client.put(f"{PATH}/theirs", json=fields)).status_code == 409
        await service.post(PATH, a_request(name="third", task={"task_type": "x", "tenant": "other"}), 403)


def _other_tenants() -> Schedule:
    return Schedule(name="theirs", cron="@daily", submission=Submission(type="x", tenant="other"))
