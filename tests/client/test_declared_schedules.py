"""What a worker over HTTP may declare with the roles work and submit: schedules of what it runs itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import httpx
import pytest

from fairlead import Fairlead
from fairlead.admin.keys.service import Keyring
from fairlead.core.schedule import Schedule
from fairlead.core.submission import Submission
from fairlead.core.tenancy import Role
from tests.client.serving import Port


async def app_with(port: Port, roles: Iterable[Role], tenant: str | None = None) -> Fairlead:
    return port.app((await Keyring(port.engine).create(f"key-{tenant}", list(roles), tenant=tenant)).text)


def declaring(app: Fairlead, **options: Any) -> None:
    @app.cron("@daily")
    @app.task(**options)
    async def report() -> None: ...


async def declared(port: Port) -> list[tuple[str, str, str]]:
    return [
        (entry.name, entry.schedule.submission.queue, entry.schedule.cron)
        for entry in await port.engine.schedules.all()
    ]


async def test_work_and_submit_are_enough(port: Port) -> None:
    app = await app_with(port, [Role.WORK, Role.SUBMIT])
    declaring(app, queue="reports", priority="high")
    for _ in range(2):
        await (await app.worker(queues=["reports"], keeper_process=False)).close()
        (entry,) = await port.engine.schedules.all()
        assert (entry.name, entry.schedule.submission.queue) == ("report", "reports")
        assert entry.schedule == next(iter(app._declared_schedules.values()))


@pytest.mark.parametrize(
    ("roles", "queues", "message"),
    [
        ([Role.WORK], ["reports"], "this key has no role for that; use a key that has the role submit as well"),
        ([Role.WORK, Role.SUBMIT], ["default"], "schedule report submits to queue reports, which worker"),
    ],
)
async def test_without_them_the_worker_works_and_says_what_is_missing(
    port: Port, caplog: pytest.LogCaptureFixture, roles: list[Role], queues: list[str], message: str
) -> None:
    app = await app_with(port, roles)
    declaring(app, queue="reports")
    await (await app.worker(queues=queues, keeper_process=False)).close()
    assert await declared(port) == []
    assert message in caplog.text


async def test_a_schedule_of_something_else_is_not_replaced(port: Port, caplog: pytest.LogCaptureFixture) -> None:
    other = Schedule(name="report", cron="@hourly", submission=Submission(type="other", queue="reports"))
    await port.engine.schedules.add(other)
    app = await app_with(port, [Role.WORK, Role.SUBMIT])
    declaring(app, queue="reports")
    await (await app.worker(queues=["reports"], keeper_process=False)).close()
    assert await declared(port) == [("report", "reports", "@hourly")]
    assert "schedule report submits other, for which worker" in caplog.text


async def test_a_type_that_the_worker_has_no_handler_for_is_refused(port: Port) -> None:
    key = (await Keyring(port.engine).create("w", [Role.WORK, Role.SUBMIT])).text
    async with httpx.AsyncClient(base_url=port.url, headers={"authorization": f"Bearer {key}"}) as client:
        said = {"queues": ["default"], "capacity": 1, "task_types": ["mine"]}
        worker = (await client.post("/internal/workers/register", json=said)).json()["worker_id"]
        for task_type, status in (("mine", 200), ("theirs", 403)):
            schedule = {"name": task_type, "cron": "@daily", "task": {"task_type": task_type}}
            answer = await client.put(f"/internal/workers/{worker}/schedules", json={"schedules": [schedule]})
            assert answer.status_code == status, answer.text
        nobody = await client.put("/internal/workers/nobody/schedules", json={"schedules": []})
        assert nobody.status_code == 404
    assert [name for name, _, _ in await declared(port)] == ["mine"]


async def bind(port: Port, queue: str, tenant: str) -> None:
    """Bind a queue, and wait until the server knows: a look that was under way may have seen the time before."""
    await port.engine.queues.change(queue, tenant=tenant)
    cache, looks = port.engine.queue_cache, 0
    while looks < 2 or cache.tenants.get(queue) != tenant:
        cache.expire()
        await cache.refresh()
        looks += 1


async def test_a_worker_of_a_tenant_declares_for_its_tenant(port: Port, caplog: pytest.LogCaptureFixture) -> None:
    await bind(port, "mine", "acme")
    app = await app_with(port, [Role.WORK, Role.SUBMIT], "acme")
    declaring(app, queue="mine")
    await (await app.worker(queues=["mine"], keeper_process=False)).close()
    (entry,) = await port.engine.schedules.all()
    assert entry.schedule.submission.tenant == "acme"
    await bind(port, "theirs", "evil")
    evil = await app_with(port, [Role.WORK, Role.SUBMIT], "evil")
    declaring(evil, queue="theirs")
    await (await evil.worker(queues=["theirs"], keeper_process=False)).close()
    assert await declared(port) == [("report", "mine", "@daily")]
    assert "the schedules report are not stored" in caplog.text
