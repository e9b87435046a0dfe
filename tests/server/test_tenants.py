"""A key that is bound to a tenant submits, sees and changes that tenant's tasks only."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fairlead.core.events import Failed
from fairlead.engine.keys import Keyring, Role
from fairlead.storage.memory import MemoryStore
from tests.server.serving import BOOM, Service


class Caller:
    """A service that is called with one key or another."""

    def __init__(self, service: Service, keys: dict[str, str]) -> None:
        self.service = service
        self._keys = keys

    def use(self, name: str) -> None:
        self.service.client.headers["authorization"] = f"Bearer {self._keys[name]}"


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    async with Service(MemoryStore()) as service:
        ring = Keyring(service.engine)
        keys = {
            "acme": (await ring.create("acme", [Role.ADMIN], tenant="acme")).text,
            "any": (await ring.create("any", [Role.ADMIN])).text,
        }
        caller = Caller(service, keys)
        caller.use("acme")
        yield caller


async def test_a_submit_is_for_the_own_tenant(caller: Caller) -> None:
    service = caller.service
    for wish in ({}, {"tenant": "acme"}, {"tenant": None}):
        answer = await service.submit(**wish)
        assert (await service.show(answer["task_id"]))["tenant"] == "acme"
    problem = await service.submit(403, tenant="other")
    assert (problem["field"], problem["value"]) == ("tenant", "other")
    batch = await service.post("/api/v1/tasks/batch", [{"task_type": "a"}, {"task_type": "a", "tenant": "other"}], 207)
    assert [each["status"] for each in batch["results"]] == [201, 403]


async def test_tasks_of_others_are_not_there(caller: Caller) -> None:
    service = caller.service
    caller.use("any")
    other = await service.ended(Failed(failure=BOOM), tenant="other", max_retries=0)
    await service.submit(tenant="other", idempotency_key="k")
    caller.use("acme")
    own = (await service.submit())["task_id"]
    await service.get(f"/api/v1/tasks/{other}", 404)
    await service.delete(f"/api/v1/tasks/{other}", 404)
    await service.post(f"/api/v1/dlq/{other}/replay", status=404)
    await service.delete(f"/api/v1/dlq/{other}", 404)
    assert (await service.submit(403, idempotency_key="k"))["field"] == "idempotency_key"
    assert [task["task_id"] for task in (await service.get("/api/v1/tasks"))["tasks"]] == [own]
    assert (await service.get("/api/v1/dlq"))["tasks"] == []
    await service.delete(f"/api/v1/tasks/{own}")


async def test_tasks_of_others_cannot_be_waited_for(caller: Caller) -> None:
    service = caller.service
    caller.use("any")
    other = (await service.submit(tenant="other"))["task_id"]
    caller.use("acme")
    own = (await service.submit())["task_id"]
    refused = await service.submit(422, after=[own, other.upper()])
    assert refused["detail"].startswith(f"after names task {other}, which is not stored")
    tasks = [{"task_type": "a", "after": [other]}, {"task_type": "a", "after": [own]}, {"task_type": "a", "after": [0]}]
    batch = await service.post("/api/v1/tasks/batch", tasks, 207)
    assert [each["status"] for each in batch["results"]] == [422, 201, 422]
