"""What a tenant who means harm would try, with a key that is bound to it: each is refused, and tells nothing."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fairlead.server
from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.core.events import Completed, Failed
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.schedule import Schedule
from fairlead.core.submission import Submission
from fairlead.core.task import State, Task
from fairlead.core.tenancy import Role
from fairlead.engine.events.types import EventType
from fairlead.server.auth.credentials import Principal
from fairlead.server.caller_view import View
from fairlead.server.routes.worker_results import seal
from fairlead.storage.memory import MemoryStore
from fairlead.wire.task_endpoints import place_of
from tests.server.serving import BOOM, NOBODY, Service


class Caller:
    """A service that is called with one key or another."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._ring = Keyring(service.engine)
        self.keys: dict[str, str] = {}
        self.ids: dict[str, str] = {}

    async def let_in(self, name: str, tenant: str | None = None) -> None:
        made = await self._ring.create(name, [Role.ADMIN], tenant=tenant)
        self.keys[name], self.ids[name] = made.text, made.key.id

    def use(self, name: str) -> Service:
        self.service.client.headers["authorization"] = f"Bearer {self.keys[name]}"
        return self.service

    async def bind(self, **tenants: str) -> None:
        for queue, tenant in tenants.items():
            await self.service.engine.queues.change(queue, tenant=tenant)

    async def register(self, status: int = 201, **wish: Any) -> Any:
        return await self.service.post("/internal/workers/register", wish, status)

    async def poll(self, worker: str, status: int = 200, capacity: int = 1) -> Any:
        return await self.service.post(f"/internal/workers/{worker}/poll", {"available_capacity": capacity}, status)


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    async with Service(MemoryStore()) as service:
        caller = Caller(service)
        await caller.let_in("acme", "acme")
        await caller.let_in("umbrella", "umbrella")
        await caller.let_in("any")
        caller.use("acme")
        yield caller


# Submits


async def test_a_submit_is_for_the_own_tenant(caller: Caller) -> None:
    service = caller.service
    for wish in ({}, {"tenant": "acme"}, {"tenant": None}):
        answer = await service.submit(**wish)
        assert (await service.show(answer["task_id"]))["tenant"] == "acme"
    problem = await service.submit(403, tenant="other")
    assert (problem["field"], problem["value"]) == ("tenant", "other")
    batch = await service.post("/api/v1/tasks/batch", [{"task_type": "a"}, {"task_type": "a", "tenant": "other"}], 207)
    assert [each["status"] for each in batch["results"]] == [201, 403]


async def test_a_submit_into_anothers_queue_is_refused_without_telling_whose_it_is(caller: Caller) -> None:
    await caller.bind(theirs="umbrella")
    problem = await caller.service.submit(422, queue="theirs")
    assert problem["field"] == "tenant"
    assert "umbrella" not in msgspec.json.encode(problem).decode()
    lines = b'{"task_type":"a","queue":"theirs"}\n{"task_type":"a"}\n'
    answer = await caller.service.client.post(
        "/api/v1/tasks/batch", content=lines, headers={"content-type": "application/x-ndjson"}
    )
    assert [msgspec.json.decode(line)["status"] for line in answer.content.splitlines()] == [422, 201]


async def test_tasks_of_others_are_not_there(caller: Caller) -> None:
    service = caller.use("any")
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
    service = caller.use("any")
    other = (await service.submit(tenant="other"))["task_id"]
    caller.use("acme")
    own = (await service.submit())["task_id"]
    refused = await service.submit(422, after=[own, other.upper()])
    assert refused["detail"].startswith(f"after names task {other}, which is not stored")
    unknown = await service.submit(422, after=[NOBODY])
    assert refused["detail"].replace(other, NOBODY) == unknown["detail"]
    tasks = [{"task_type": "a", "after": [other]}, {"task_type": "a", "after": [own]}, {"task_type": "a", "after": [0]}]
    batch = await service.post("/api/v1/tasks/batch", tasks, 207)
    assert [each["status"] for each in batch["results"]] == [422, 201, 422]


async def test_what_somebody_else_made_an_own_task_wait_for_is_a_number(caller: Caller) -> None:
    service = caller.use("any")
    await caller.bind(mine="acme")
    other = (await service.submit(tenant="other"))["task_id"]
    own = (await service.submit(tenant="acme", queue="mine", after=[other]))["task_id"]
    caller.use("acme")
    assert (await service.show(own))["after"] == []
    explained = await service.get(f"/api/v1/tasks/{own}/explain")
    assert explained["causes"][0]["code"] == "dependent"
    assert "waits for 1 other task to end" in explained["summary"]
    assert other not in msgspec.json.encode(explained).decode()
    (task,) = await service.claim()
    await service.settle(task, Completed())
    worker = (await caller.register(queues=["mine"]))["worker_id"]
    (leased,) = (await caller.poll(worker))["tasks"]
    assert (leased["task_id"], leased["after"]) == (own, [])


async def test_what_an_own_task_died_of_does_not_name_anothers(caller: Caller) -> None:
    service = caller.use("any")
    other = (await service.submit(tenant="other"))["task_id"]
    own = (await service.submit(tenant="acme", queue="mine", after=[other]))["task_id"]
    await service.delete(f"/api/v1/tasks/{other}")
    assert (await service.show(own))["error"]["message"].startswith(f"task {other}, which this one waited for")
    caller.use("acme")
    shown = await service.show(own, include_history=True)
    assert shown["error"]["message"].startswith("task of another tenant, which this one waited for")
    asked = {"action": "replay", "query": "state:cancelled", "dry_run": True}
    for answer in (
        shown,
        await service.get("/api/v1/tasks"),
        await service.get(f"/api/v1/tasks/{own}/explain"),
        await service.post("/api/v1/operations", asked),
    ):
        told = msgspec.json.encode(answer).decode()
        assert own in told and other not in told


async def test_a_warning_names_no_queue_of_others(caller: Caller) -> None:
    await caller.bind(theirs="umbrella")
    caller.use("umbrella")
    await caller.register(queues=["theirs"])
    await caller.service.engine.worker_records.register(WorkerId("free-1"), queues=["elsewhere", "other"], capacity=1)
    caller.use("acme")
    told = await caller.service.submit(queue="mine")
    assert [each["code"] for each in told["warnings"]] == ["queue_unserved"]
    told_to_all = msgspec.json.encode(told).decode()
    assert not any(name in told_to_all for name in ("theirs", "elsewhere", "free-1", "umbrella"))
    explained = msgspec.json.encode(await caller.service.get(f"/api/v1/tasks/{told['task_id']}/explain")).decode()
    assert not any(name in explained for name in ("theirs", "elsewhere", "free-1", "umbrella"))


async def test_what_nobody_could_run_is_told_of_own_queues_only(caller: Caller) -> None:
    await caller.bind(mine="acme", theirs="umbrella")
    caller.use("umbrella")
    await caller.register(queues=["theirs"], task_types=["mail"])
    await caller.service.submit(queue="theirs", task_type="secret_render")
    caller.use("acme")
    await caller.service.submit(queue="mine")
    told = await caller.service.get("/api/v1/queue/stats")
    assert [each["reason"] for each in told["by_queue"]["mine"]["unserved"]] == ["queue_unserved"]
    metrics = (await caller.service.client.get("/metrics")).text
    assert 'fairlead_unserved_tasks{queue="mine",type="any",reason="queue_unserved"} 1' in metrics
    for shown in (msgspec.json.encode(told).decode(), metrics):
        assert "theirs" not in shown and "secret_render" not in shown


async def test_who_could_take_an_own_task_is_counted_and_named_only_if_it_is_an_own_worker(caller: Caller) -> None:
    await caller.bind(mine="acme")
    await caller.service.engine.worker_records.register(WorkerId("free-1"), queues=["mine", "elsewhere"], capacity=1)
    worker = (await caller.register(queues=["mine"]))["worker_id"]
    own = (await caller.service.submit(queue="mine"))["task_id"]
    forecast = (await caller.service.get(f"/api/v1/tasks/{own}/explain"))["forecast"]
    assert (forecast["workers"], forecast["worker_ids"]) == (2, [worker])
    assert "elsewhere" not in msgspec.json.encode(forecast).decode()


async def test_many_submits_at_once_are_told_of_doubts_each_by_its_own_tenant(caller: Caller) -> None:
    from fairlead.server.submit import store_all

    await caller.service.engine.worker_records.register(WorkerId("w"), queues=["hidden"], capacity=1)
    callers = [Principal("a", frozenset({Role.SUBMIT}), tenant="acme"), Principal("b", frozenset({Role.SUBMIT}))]
    said = await store_all(caller.service.state, [Submission(type="a"), Submission(type="a")], callers)
    told = ["hidden" in msgspec.json.encode(each).decode() for each in said if not isinstance(each, Exception)]
    assert told == [False, True]


# Searches and lists


async def test_no_search_term_leads_to_tasks_of_others(caller: Caller) -> None:
    service = caller.use("any")
    other = (await service.submit(tenant="umbrella", tags=["t"], parameters={"secret": "x"}))["task_id"]
    caller.use("acme")
    for q in ("tenant:umbrella", "-tenant:acme", "tenant:*", f"id:{other}", "queue:default", "tag:t", "secret", "*"):
        assert (await service.get("/api/v1/tasks", q=q))["tasks"] == [], q
        preview = await service.post("/api/v1/operations", {"action": "cancel", "query": q, "dry_run": True})
        assert (preview["count"], preview["sample"]) == (0, []), q
    for query in ({"queue": "default"}, {"tag": "t"}, {"status": "queued"}, {"order": "oldest"}):
        assert (await service.get("/api/v1/tasks", **query)) == {"tasks": [], "next_cursor": None}


async def test_a_tenant_whose_name_looks_like_a_pattern_is_one_tenant(caller: Caller) -> None:
    await caller.let_in("star", "a*")
    service = caller.use("any")
    for tenant in ("acme", "a", "A*"):
        await service.submit(tenant=tenant)
    caller.use("star")
    assert (await service.get("/api/v1/tasks"))["tasks"] == []
    assert (await service.get("/api/v1/dlq/groups"))["total"] == 0


async def test_a_cursor_does_not_carry_the_id_of_anothers_task_and_misses_none_of_the_own(caller: Caller) -> None:
    engine, service = caller.service.engine, caller.service
    own: list[str] = []
    others: set[str] = set()
    for _ in range(12):
        made = await engine.submit_many([Submission(type="a", tenant="umbrella")] * 1_000)
        others |= {each.task.id for each in made if not isinstance(each, Exception)}
        caller.service.advance(1)
        own.append((await service.submit())["task_id"])
    for order in ("newest", "oldest"):
        found: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = await service.get("/api/v1/tasks", order=order, limit=5, **cursor)
            found += [task["task_id"] for task in page["tasks"]]
            if page["next_cursor"] is None:
                break
            assert place_of(page["next_cursor"], order) not in others
            cursor = {"cursor": page["next_cursor"]}
        assert found == (own if order == "oldest" else own[::-1])


# Workers


async def test_a_worker_of_a_tenant_serves_queues_that_are_bound_to_it_and_no_other(caller: Caller) -> None:
    await caller.bind(mine="acme", theirs="umbrella")
    for queue in ("theirs", "shared", "missing"):
        problem = await caller.register(403, queues=["mine", queue])
        assert f"`fairlead queues set {queue} --tenant acme`" in problem["remedy"]
        assert problem["detail"].replace(queue, "mine").startswith("the queue 'mine' is not bound to the tenant")
    worker = (await caller.register(queues=["mine"]))["worker_id"]
    own = (await caller.service.submit(queue="mine"))["task_id"]
    assert [task["task_id"] for task in (await caller.poll(worker))["tasks"]] == [own]
    await caller.service.engine.queues.change("mine", tenant=None)
    assert (await caller.poll(worker, 403))["field"] == "queue"


async def test_a_poll_that_waits_takes_nothing_from_a_queue_that_is_unbound_meanwhile(caller: Caller) -> None:
    await caller.bind(mine="acme")
    worker = (await caller.register(queues=["mine"]))["worker_id"]
    polling = asyncio.create_task(
        caller.service.client.post(f"/internal/workers/{worker}/poll", json={"wait_seconds": 5.0})
    )
    while not caller.service.state.dispatcher.waiting:  # noqa: ASYNC110 - nothing tells of a poll that waits
        await asyncio.sleep(0)
    await caller.service.engine.queues.change("mine", tenant=None)
    task = (await caller.service.engine.submit(Submission(type="a", queue="mine", tenant="umbrella"))).task
    caller.service.state.stopping.set()
    assert (await polling).json()["tasks"] == []
    assert (await caller.service.engine.get(task.id)).state is State.QUEUED


async def test_a_worker_id_belongs_to_the_key_that_registered_it(caller: Caller) -> None:
    await caller.bind(mine="acme", theirs="umbrella")
    await caller.let_in("second", "acme")
    theirs = (await caller.register(queues=["mine"], worker_id="w-1"))["worker_id"]
    own = (await caller.service.submit(queue="mine"))["task_id"]
    (leased,) = (await caller.poll(theirs))["tasks"]
    said = {"task_id": own, "lease": leased["lease"]}
    calls: dict[str, Any] = {
        "poll": {},
        "heartbeat": {"running": [said]},
        "drain": {},
        "deregister": {"running": [said]},
    }
    for name, status, queue in (("second", 403, "mine"), ("any", 403, "mine"), ("umbrella", 404, "theirs")):
        caller.use(name)
        assert (await caller.register(403, queues=[queue], worker_id="w-1"))["field"] == "worker_id"
        for what, body in calls.items():
            problem = await caller.service.post(f"/internal/workers/w-1/{what}", body, status)
            assert problem["field"] == "worker_id", what
            if status == 404:
                unknown = await caller.service.post(f"/internal/workers/w-2/{what}", body, 404)
                assert unknown["detail"].replace("w-2", "w-1") == problem["detail"]
        await caller.service.post("/internal/workers/w-1/result", {**said, "status": "completed"}, 409)
        await caller.service.post("/internal/workers/w-1/progress", {**said, "percent": 1}, 409)
    await caller.service.post("/internal/workers/nobody/result", {**said, "status": "completed"}, 409)
    caller.use("second")
    mine = (await caller.register(queues=["mine"]))["worker_id"]
    await caller.service.post(f"/internal/workers/{mine}/result", {**said, "status": "completed"}, 409)
    left = await caller.service.post(f"/internal/workers/{mine}/deregister", {"running": [said]})
    assert left["handed_back"] == []
    caller.use("acme")
    assert (await caller.register(queues=["mine"], worker_id="w-1"))["worker_id"] == "w-1"
    await caller.service.post("/internal/workers/w-1/result", {**said, "status": "completed"})


async def test_a_worker_that_an_older_server_registered_registers_again_and_keeps_its_leases(caller: Caller) -> None:
    await caller.bind(mine="acme")
    engine = caller.service.engine
    await engine.worker_records.register(WorkerId("old-1"), queues=["mine"], capacity=1)
    await caller.service.submit(queue="mine")
    (task,) = await engine.claim(WorkerId("old-1"), ["mine"], limit=1)
    said = {"task_id": task.id, "lease": seal(task)}
    assert (await caller.poll("old-1", 404))["remedy"] == "register again"
    await caller.service.post("/internal/workers/old-1/progress", {**said, "percent": 1})
    await caller.register(queues=["mine"], worker_id="old-1")
    await caller.poll("old-1")
    await caller.service.post("/internal/workers/old-1/result", {**said, "status": "completed"})


async def test_a_worker_that_uses_the_store_itself_is_no_keys(caller: Caller) -> None:
    await caller.bind(mine="acme")
    await caller.service.engine.worker_records.register(WorkerId("direct-1"), queues=["mine"], capacity=1, pid=7)
    await caller.register(403, queues=["mine"], worker_id="direct-1")
    await caller.poll("direct-1", 404)
    await caller.service.post("/api/v1/workers/direct-1/drain", status=404)
    caller.use("any")
    await caller.poll("direct-1", 403)
    await caller.service.post("/api/v1/workers/direct-1/drain")


async def test_a_stolen_lease_settles_and_renews_nothing_for_another_tenant(caller: Caller) -> None:
    await caller.bind(mine="acme", theirs="umbrella")
    caller.use("umbrella")
    theirs = (await caller.register(queues=["theirs"]))["worker_id"]
    task_id = (await caller.service.submit(queue="theirs"))["task_id"]
    (leased,) = (await caller.poll(theirs))["tasks"]
    before = await caller.service.engine.get(TaskId(task_id))
    caller.use("acme")
    worker = (await caller.register(queues=["mine"]))["worker_id"]
    for task in (task_id, NOBODY):
        said = {"task_id": task, "lease": leased["lease"]}
        for status in ("completed", "failed", "handed_back", "timed_out", "crashed", "cancelled"):
            body = (
                {**said, "status": status, "error": {"message": "x"}}
                if status == "failed"
                else {**said, "status": status}
            )
            problem = await caller.service.post(f"/internal/workers/{worker}/result", body, 409)
            assert problem["detail"].startswith(f"the lease on task {task} is lost")
        many = await caller.service.post(
            f"/internal/workers/{worker}/result", {"results": [{**said, "status": "completed"}]}
        )
        assert [each["acknowledged"] for each in many["results"]] == [False]
        await caller.service.post(f"/internal/workers/{worker}/progress", {**said, "percent": 50}, 409)
        beaten = await caller.service.post(f"/internal/workers/{worker}/heartbeat", {"running": [said]})
        assert beaten["lost"] == [task]
        looked = await caller.service.post(f"/internal/workers/{worker}/heartbeat", {"running": [said], "renew": False})
        assert looked["lost"] == [task]
    running = [{"task_id": task_id, "lease": leased["lease"]}]
    left = await caller.service.post(f"/internal/workers/{worker}/deregister", {"running": running})
    assert left["handed_back"] == []
    assert await caller.service.engine.get(TaskId(task_id)) == before


# Tasks that a moment too soon


async def test_a_foreign_task_is_returned_unseen_and_costs_nothing(
    caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    late = AdminEngine(caller.service.engine.store, clock=caller.service.clock)
    await late.submit(Submission(type="warm", queue="elsewhere"))
    await caller.bind(mine="acme")
    # Its process has yet to learn that the queue is bound.
    foreign = [(await late.submit(Submission(type="a", queue="mine", tenant=who))).task for who in ("umbrella", None)]
    assert [task.spec.tenant for task in foreign] == ["umbrella", None]
    caller.service.advance(1)
    own = [(await caller.service.submit(queue="mine"))["task_id"] for _ in range(2)]
    worker = (await caller.register(queues=["mine"], capacity=4))["worker_id"]

    assert [task["task_id"] for task in (await caller.poll(worker))["tasks"]] == own[:1]
    assert [task["task_id"] for task in (await caller.poll(worker, capacity=4))["tasks"]] == own[1:]

    for before in foreign:
        after = await caller.service.engine.get(before.id)
        spent = (after.status.attempts, after.status.retries, after.status.crashes, after.status.history)
        assert (after.state, spent) == (State.QUEUED, (0, 0, 0, ()))
        assert (after.status.ready_at, after.status.reason) == (before.status.ready_at, before.status.reason)
        assert (after.status.lease, after.status.started_at, after.status.alarm) == (None, None, None)
        assert (
            sum(f"task {before.id} in queue mine does not belong to the tenant" in line for line in caplog.messages)
            == 1
        )
    caller.use("any")
    metrics = (await caller.service.client.get("/metrics")).text
    assert [line for line in metrics.splitlines() if line.startswith("fairlead_foreign")] == [
        "fairlead_foreign_tasks_total 4"
    ]
    claimed = await caller.service.claim(9, ["mine"])
    assert [task.id for task in claimed] == [task.id for task in foreign]


async def test_a_foreign_task_that_is_cancelled_while_it_is_returned_is_cancelled() -> None:
    store = _CancellingStore()
    engine = AdminEngine(store)
    store.engine = AdminEngine(store)
    late = AdminEngine(store)
    await late.submit(Submission(type="warm", queue="elsewhere"))
    await engine.queues.change("mine", tenant="acme")
    foreign = (await late.submit(Submission(type="a", queue="mine", tenant="umbrella"))).task
    assert await engine.claim(WorkerId("w"), ["mine"], limit=1, tenant="acme") == []
    assert (await engine.get(foreign.id)).state is State.CANCELLED


class _CancellingStore(MemoryStore):
    """A store in which somebody cancels each task at the moment in which it was claimed."""

    engine: AdminEngine | None = None

    async def claim(self, claim: Any) -> list[Task]:
        tasks = await super().claim(claim)
        if self.engine is not None:
            for task in tasks:
                await self.engine.cancel(task.id)
        return tasks


# Schedules, counts and events


async def test_a_schedule_belongs_to_the_tenant_of_its_task_or_of_its_queue(caller: Caller) -> None:
    await caller.bind(mine="acme")
    for name, queue, tenant in (("a", "mine", None), ("b", "shared", None), ("c", "shared", "umbrella")):
        await caller.service.engine.schedules.add(
            Schedule(name=name, cron="@daily", submission=Submission(type="x", queue=queue, tenant=tenant))
        )
    listed = await caller.service.get("/api/v1/schedules")
    assert [each["name"] for each in listed["schedules"]] == ["a"]
    ran = await caller.service.post("/api/v1/schedules/a/run", status=201)
    assert (await caller.service.show(ran["task_id"]))["tenant"] == "acme"


async def test_counts_are_of_queues_that_are_bound_to_the_tenant(caller: Caller) -> None:
    service = caller.service
    for path in ("/api/v1/queue/stats", "/api/v1/autoscale", "/metrics", "/api/v1/queues"):
        problem = (await service.client.get(path)).json()
        assert (problem["status"], "--tenant acme" in problem["remedy"]) == (403, True)
    await caller.bind(mine="acme", theirs="umbrella")
    await service.submit(queue="mine", task_type="quick")
    await service.submit()
    caller.use("any")
    await service.submit(queue="theirs", tenant="umbrella", task_type="slow")
    await service.post("/api/v1/task-types/slow/pause")
    await service.post("/api/v1/task-types/quick/pause")
    caller.use("acme")
    stats = await service.get("/api/v1/queue/stats")
    assert (list(stats["by_queue"]), stats["states"]["queued"], stats["paused_types"]) == (["mine"], 1, ["quick"])
    listed = await service.get("/api/v1/queues")
    assert ([each["queue"] for each in listed["queues"]], listed["paused_types"]) == (["mine"], ["quick"])
    assert (await service.get("/api/v1/autoscale"))["queue"] is None
    for queue in ("theirs", "default", "missing"):
        for path in ("/api/v1/queue/stats", "/api/v1/autoscale"):
            assert (await service.get(path, 403, queue=queue))["value"] == queue
    service.advance(1)
    text = (await service.client.get("/metrics")).text
    assert 'fairlead_queue_depth{queue="mine",priority="medium"} 1\n' in text
    assert not any(word in text for word in ("theirs", "default", "fairlead_tasks_submitted_total", "slow"))


async def test_events_are_of_the_tenants_own_tasks_workers_and_queues(caller: Caller) -> None:
    engine = caller.service.engine
    await caller.bind(mine="acme", theirs="umbrella")
    view = View(caller.service.state, Principal("acme", frozenset({Role.READ}), tenant="acme"))
    heard: list[Any] = []
    async with view.listen(await view.wanted((), None, None)) as listening:
        other = (await engine.submit(Submission(type="secret", tenant="umbrella"))).task
        await engine.submit(Submission(type="secret"))
        await engine.worker_records.register(WorkerId("theirs-1"), queues=["theirs"], capacity=1, tenant="umbrella")
        await engine.queues.pause("theirs")
        await engine.queues.pause("shared")
        await engine.queues.pause_type("secret")
        await engine.worker_records.register(WorkerId("mine-1"), queues=["mine"], capacity=1, tenant="acme")
        await engine.queues.pause("mine")
        last = (await engine.submit(Submission(type="own", queue="mine"))).task
        while not any(each.type == EventType.SUBMITTED for each in heard):
            heard += await listening.take()
        said = b"".join(each.json for each in heard)
        kinds = {each.type for each in heard} - {"queue.depth", "system.metrics"}
        assert kinds == {EventType.JOINED, EventType.QUEUE_PAUSED, EventType.SUBMITTED}
        assert last.id.encode() in said
        assert not any(word.encode() in said for word in (other.id, "secret", "theirs", "umbrella", "shared"))
        for wanted in ((("task.*",), None, None), ((), "theirs", None), (("queue.depth",), None, None)):
            await view.listen_to(listening, await view.wanted(*wanted))
            assert listening.wanted.tenant == "acme"


# The door


def test_nothing_but_the_view_leads_an_endpoint_to_everything() -> None:
    """What is behind a view, or a tenant's engine, is read by nobody but itself."""
    folder = Path(fairlead.server.__file__).parent
    reached = [
        f"{path.name}:{node.lineno}"
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in ("_state", "_engine", "_store")
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]
    assert reached == []


async def test_the_way_to_everything_refuses_who_is_bound_to_a_tenant(caller: Caller) -> None:
    from fairlead.core.errors import Forbidden

    view = View(caller.service.state, Principal("acme", frozenset(Role), tenant="acme"))
    with pytest.raises(Forbidden, match="this concerns all tenants"):
        _ = view.state
    assert View(caller.service.state, Principal("any", frozenset(Role))).state is caller.service.state
