"""The worker protocol as it was first written: no leases are sent, and heartbeats do not say what runs.

The worker's id stands in for both. It keeps a task for as long as the worker lives, and it is no way around the fence:
what is said late, by another registration or of a task that was given twice is refused.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.task import State, Task
from fairlead.core.tenancy import Role
from fairlead.server.settings import ServerSettings
from fairlead.server.state import ServerState
from fairlead.storage.open import open_store
from tests.server.doors import Doors
from tests.server.serving import Service
from tests.server.workers import Hand
from tests.servers.stores import Place

LEASE = 30.0
BEAT = 10.0


@pytest.fixture
async def service(place: Place) -> AsyncIterator[Service]:
    """A server on an empty store of each kind, the journal too."""
    async with Service(await open_store(place.url, journal=place.journal)) as service:
        yield service


async def stored(service: Service, task: dict[str, Any]) -> Task:
    return await service.engine.get(task["task_id"])


async def say(worker: Hand, task: dict[str, Any], outcome: str = "completed", status: int = 200, **more: Any) -> Any:
    """Say how a task ended, without its lease."""
    return await worker.call("result", {"task_id": task["task_id"], "status": outcome, **more}, status)


async def beat(worker: Hand, **more: Any) -> Any:
    """A heartbeat that does not say what runs."""
    return await worker.call("heartbeat", {"current_load": 1, "status": "busy", **more})


async def test_a_task_is_kept_over_three_lease_lengths_and_ends(service: Service) -> None:
    submitted = await service.post(
        "/api/v1/tasks", {"type": "resize", "payload": {"n": 1}, "user_id": "kim", "priority": 4}, 201
    )
    worker = await Hand.hired(service, capabilities=[], capacity=1, host="host-1")
    task = await worker.take()
    assert task["task_id"] == submitted["task_id"]
    assert (task["parameters"], task["tenant"], task["priority"]) == ({"n": 1}, "kim", "critical")
    await worker.call("start", {"task_id": task["task_id"]})
    for _ in range(9):
        service.advance(BEAT)
        assert (await beat(worker, health={"cpu": 0.5}))["lost"] == []
        await service.engine.sweep()
        assert (await stored(service, task)).state is State.EXECUTING
    said = {"task_id": task["task_id"], "progress_percent": 90, "status_message": "nearly"}
    assert await worker.call("progress", said) == {"acknowledged": True, "cancel": False}
    answer = await say(worker, task, result={"width": 100}, execution_duration_seconds=90.5)
    assert answer == {"acknowledged": True, "task_id": task["task_id"], "status": "completed"}
    shown = await service.show(task["task_id"], include_history=True)
    assert (shown["status"], shown["result"], shown["attempts"]) == ("completed", {"width": 100}, 1)
    assert shown["state_history"] == shown["history"]
    assert [each["status"] for each in shown["state_history"]] == ["queued", "executing", "completed"]


async def test_without_a_heartbeat_the_task_is_taken_away_and_its_late_end_is_refused(service: Service) -> None:
    await service.submit()
    worker = await Hand.hired(service, capacity=1)
    task = await worker.take()
    service.advance(LEASE + 1)
    await service.engine.sweep()
    problem = await say(worker, task, status=409)
    assert problem["type"].endswith("#lease-lost")
    assert (await stored(service, task)).state is State.SCHEDULED


async def test_a_task_that_another_worker_has_by_now_is_not_the_first_ones_to_end(service: Service) -> None:
    await service.submit()
    first, second = await Hand.hired(service), await Hand.hired(service)
    task = await first.take()
    service.advance(LEASE + 1)
    await service.engine.sweep()
    service.advance(LEASE)
    await service.engine.sweep()
    again = await second.take()
    assert again["task_id"] == task["task_id"]
    await say(first, task, status=409)
    await beat(first)
    service.advance(BEAT)
    await beat(second)
    assert (await say(second, again))["status"] == "completed"


async def test_a_late_first_attempt_does_not_end_the_second_of_the_same_worker(service: Service) -> None:
    await service.submit()
    worker = await Hand.hired(service)
    await worker.take()
    service.advance(LEASE + 1)
    await service.engine.sweep()
    service.advance(LEASE)
    await service.engine.sweep()
    again = await worker.take()
    problem = await say(worker, again, status=409)
    assert "given the task before" in problem["detail"]
    assert "lease" in problem["remedy"]
    assert (await stored(service, again)).state is State.EXECUTING
    assert (await worker.result(again))["status"] == "completed"


async def test_an_end_that_is_said_again_is_acknowledged_again_and_another_one_is_not(service: Service) -> None:
    await service.submit()
    worker = await Hand.hired(service)
    task = await worker.take()
    first = await say(worker, task, result=[1])
    assert await say(worker, task, result=[1]) == first
    await say(worker, task, result=[2], status=409)
    assert (await stored(service, task)).status.result == b"[1]"


async def test_what_an_earlier_registration_was_given_is_not_the_next_ones(service: Service) -> None:
    await service.submit()
    worker = await Hand.hired(service, worker_id="w-1")
    task = await worker.take()
    reborn = await Hand.hired(service, worker_id="w-1")
    await say(reborn, task, status=409)
    await reborn.call("progress", {"task_id": task["task_id"], "progress_percent": 1}, 409)
    await reborn.call("start", {"task_id": task["task_id"]}, 409)
    for _ in range(4):
        service.advance(BEAT)
        await beat(reborn)
    await service.engine.sweep()
    assert (await stored(service, task)).state is State.SCHEDULED


async def test_a_task_whose_poll_was_never_answered_waits_for_its_timeout_and_not_for_ever(service: Service) -> None:
    submitted = await service.submit(timeout_seconds=60)
    worker = await Hand.hired(service)
    await worker.poll()
    for _ in range(8):
        service.advance(BEAT)
        await beat(worker)
        await service.engine.sweep()
    shown = await service.show(submitted["task_id"])
    assert (shown["assigned_worker_id"], shown["crash_count"]) == (None, 1)


async def test_nobody_speaks_for_a_worker_that_has_registered_with_no_server(service: Service) -> None:
    await service.engine.worker_records.register(WorkerId("worker-1"), queues=["default"], capacity=1)
    await service.submit()
    (task,) = await service.claim()
    await service.post("/internal/workers/worker-1/heartbeat")
    for path, more in (("start", {}), ("progress", {"percent": 1}), ("result", {"status": "completed"})):
        await service.post(f"/internal/workers/worker-1/{path}", {"task_id": task.id, **more}, 409)
    after = await service.engine.get(task.id)
    assert (after.state, after.status.beats) == (State.EXECUTING, 0)


async def test_a_heartbeat_tells_what_to_stop_without_being_told_what_runs(service: Service) -> None:
    await service.submit()
    worker = await Hand.hired(service)
    task = await worker.take()
    await service.delete(f"/api/v1/tasks/{task['task_id']}", 202, wait=0)
    assert (await beat(worker))["cancel"] == [task["task_id"]]
    assert (await beat(worker, renew=False))["cancel"] == [task["task_id"]]
    assert (await say(worker, task, "cancelled"))["status"] == "cancelled"


async def test_a_heartbeat_that_says_what_runs_renews_that_and_nothing_else(service: Service) -> None:
    await service.submit()
    worker = await Hand.hired(service)
    task = await worker.take()
    for _ in range(4):
        service.advance(BEAT)
        await worker.call("heartbeat", {"running": []})
    await service.engine.sweep()
    assert (await stored(service, task)).state is State.SCHEDULED


class Callers:
    """A server with keys, and a worker of each of two of them."""

    def __init__(self) -> None:
        self.doors = Doors()
        self.keys: dict[str, str] = {}

    async def key(self, name: str, **options: Any) -> str:
        made = await self.doors.key(Role.WORK, Role.SUBMIT, name=name, **options)
        self.keys[name] = made.text
        return made.text

    async def call(self, name: str, path: str, body: Any, status: int) -> Any:
        said = await self.doors.call("POST", path, key=self.keys[name], json=body)
        assert said.status == status, said
        return said.json

    async def hire(self, name: str, **wish: Any) -> str:
        return str((await self.call(name, "/internal/workers/register", wish, 201))["worker_id"])

    async def take(self, name: str, worker: str) -> str:
        (task,) = (await self.call(name, f"/internal/workers/{worker}/poll", {}, 200))["tasks"]
        return str(task["task_id"])


async def test_only_the_key_that_registered_a_worker_speaks_without_leases_for_it() -> None:
    callers = Callers()
    await callers.key("one")
    await callers.key("other")
    await callers.call("one", "/api/v1/tasks", {"type": "work"}, 201)
    worker, stranger = await callers.hire("one"), await callers.hire("other")
    task = {"task_id": await callers.take("one", worker)}
    done = {**task, "status": "completed"}
    for path, body in {"result": done, "progress": {**task, "percent": 1}, "start": task, "heartbeat": {}}.items():
        await callers.call("other", f"/internal/workers/{worker}/{path}", body, 403)
        await callers.call("other", f"/internal/workers/nobody-1/{path}", body, 404)
        if path != "heartbeat":
            await callers.call("other", f"/internal/workers/{stranger}/{path}", body, 409)
    await callers.call("one", f"/internal/workers/{worker}/result", done, 200)


async def test_a_tenants_worker_renews_and_ends_what_is_its_tenants_alone() -> None:
    callers = Callers()
    for tenant in ("acme", "umbrella"):
        await callers.key(tenant, tenant=tenant)
        await callers.doors.engine.queues.change(f"{tenant}-line", tenant=tenant)
        await callers.call(tenant, "/api/v1/tasks", {"type": "work", "queue": f"{tenant}-line"}, 201)
    workers = {tenant: await callers.hire(tenant, queues=[f"{tenant}-line"]) for tenant in ("acme", "umbrella")}
    taken = {tenant: TaskId(await callers.take(tenant, worker)) for tenant, worker in workers.items()}
    await callers.call("acme", f"/internal/workers/{workers['acme']}/heartbeat", {}, 200)
    beats = {tenant: (await callers.doors.engine.get(task)).status.beats for tenant, task in taken.items()}
    assert beats == {"acme": 1, "umbrella": 0}
    said = {"task_id": taken["umbrella"], "status": "completed"}
    await callers.call("acme", f"/internal/workers/{workers['acme']}/result", said, 409)
    await callers.call("acme", f"/internal/workers/{workers['umbrella']}/result", said, 404)
    assert (await callers.doors.engine.get(taken["umbrella"])).state is State.EXECUTING


async def test_of_several_results_those_without_a_lease_are_answered_by_themselves(in_memory: Service) -> None:
    for _ in range(3):
        await in_memory.submit()
    worker = await Hand.hired(in_memory, capacity=3)
    one, two, three = await worker.poll(3)
    results = [
        {"task_id": one["task_id"], "status": "completed"},
        {"task_id": two["task_id"], "lease": two["lease"], "status": "completed"},
    ]
    answer = await worker.call("result", {"results": results})
    assert [each["acknowledged"] for each in answer["results"]] == [True, True]
    gone = {"results": [{**results[0], "task_id": three["task_id"]}, {**results[1], "status": "failed"}]}
    answer = await in_memory.post("/internal/workers/nobody-1/result", gone)
    assert [each["acknowledged"] for each in answer["results"]] == [False, False]
    await in_memory.post("/internal/workers/nobody-1/result", {"results": gone["results"][:1]}, 404)


async def test_the_workers_that_do_not_say_what_they_run_share_one_listing(in_memory: Service) -> None:
    crew = [await Hand.hired(in_memory) for _ in range(20)]
    for worker in crew:
        await in_memory.submit()
        await worker.take()
    listed = in_memory.state.held.listings
    for worker in crew:
        await beat(worker)
    assert in_memory.state.held.listings == listed + 1
    assert [task.status.beats for task in await in_memory.engine.find()] == [1] * 20


async def test_a_crowd_of_tasks_is_renewed_however_many_pages_it_has(in_memory: Service) -> None:
    worker = await Hand.hired(in_memory, capacity=1_500)
    await in_memory.post("/api/v1/tasks/batch", [{"task_type": "work"}] * 1_000)
    await in_memory.post("/api/v1/tasks/batch", [{"task_type": "work"}] * 500)
    assert len(await worker.poll(1_000)) + len(await worker.poll(1_000)) == 1_500
    await beat(worker)
    assert {task.status.beats for task in await in_memory.engine.find(limit=2_000)} == {1}


async def test_a_server_gives_out_what_another_one_renews(service: Service) -> None:
    other = ServerState(service.engine, ServerSettings(rate_limit=0))
    await service.submit()
    worker = await Hand.hired(service)
    await beat(worker)
    task = await worker.take()
    for _ in range(4):
        service.advance(BEAT)
        present = next(each for each in await service.engine.worker_records.workers() if each.id == worker.id)
        held = await other.held.of(present.id, present.registration)
        assert [task_id for task_id, _ in held] == [task["task_id"]]
        await beat(worker)
    await service.engine.sweep()
    assert (await stored(service, task)).state is State.EXECUTING


async def test_an_error_in_the_first_protocols_words_is_kept(in_memory: Service) -> None:
    await in_memory.submit()
    worker = await Hand.hired(in_memory)
    task = await worker.take()
    error = {"code": "E42", "message": "no route", "retryable": False, "details": {"host": "mail", "tries": 3.0}}
    assert (await say(worker, task, "failed", error=error))["status"] == "failed"
    shown = (await in_memory.show(task["task_id"]))["error"]
    assert (shown["type"], shown["message"]) == ("E42", "no route")
    assert json.loads(shown["traceback"]) == {"host": "mail", "tries": 3.0}


@pytest.mark.parametrize(
    ("details", "kept"), [("line 1\nline 2", "line 1\nline 2"), (None, None), ([1], "[1]"), (7, "7")]
)
async def test_details_may_be_anything(in_memory: Service, details: Any, kept: str | None) -> None:
    await in_memory.submit()
    worker = await Hand.hired(in_memory)
    task = await worker.take()
    await say(worker, task, "failed", error={"message": "x", "retriable": False, "details": details})
    assert (await in_memory.show(task["task_id"]))["error"]["traceback"] == kept
