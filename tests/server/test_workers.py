"""The worker protocol, every request and response of it, on every store."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.core.task import Reason
from tests.server.serving import NOBODY, Service
from tests.server.workers import Hand, held


async def test_a_worker_learns_its_id_and_how_often_to_call(service: Service) -> None:
    wish = {
        "capabilities": ["gpu"],
        "capacity": 4,
        "task_types": ["send_mail"],
        "queues": ["default", "mail"],
        "version": "1.2",
        "host": "host 1/ü",
    }
    answer = await service.post("/internal/workers/register", wish, 201)
    assert answer["worker_id"].startswith("host-1-")
    assert {key: value for key, value in answer.items() if key != "worker_id"} == {
        "poll_interval_ms": 1000,
        "heartbeat_interval_ms": 10_000,
        "lease_seconds": 30.0,
    }
    (present,) = await service.engine.presence.workers()
    assert (present.id, present.queues, present.capabilities, present.types, present.capacity) == (
        answer["worker_id"], ("default", "mail"), ("gpu",), ("send_mail",), 4,
    )  # fmt: skip


async def test_a_task_goes_to_a_worker_and_its_result_comes_back(service: Service) -> None:
    parameters = b'{"to": ["a@b.c"],  "n": 1.50, "big": 123456789012345678901234567890, "none": []}'
    submitted = await service.client.post(
        "/api/v1/tasks",
        content=b'{"task_type": "send_mail", "priority": "high", "timeout_seconds": 12.5, "trace_id": "00-1", "tags": '
        b'["t"], "required_capabilities": ["smtp"], "parameters": ' + parameters + b"}",
    )
    hand = await Hand.hired(service, capabilities=["smtp"], host="h")
    response = await service.client.post(
        f"/internal/workers/{hand.id}/poll",
        json={"capabilities": ["smtp"], "available_capacity": 3, "wait_seconds": 0},
    )
    assert parameters in response.content, "not byte for byte as it was submitted"
    (task,) = response.json()["tasks"]
    assert {key: task[key] for key in task if key not in ("lease", "parameters", "created_at")} == {
        "task_id": submitted.json()["task_id"],
        "task_type": "send_mail",
        "timeout_seconds": 12.5,
        "attempt": 1,
        "trace_id": "00-1",
        "traceparent": None,
        "queue": "default",
        "priority": "high",
        "required_capabilities": ["smtp"],
        "retry_count": 0,
        "max_retries": 5,
        "tenant": None,
        "tags": ["t"],
        "after": [],
    }
    shown = await service.show(task["task_id"])
    assert (shown["status"], shown["assigned_worker_id"]) == ("executing", hand.id)
    answer = await service.client.post(
        f"/internal/workers/{hand.id}/result",
        content=msgspec.json.encode({**held(task), "status": "completed"})[:-1] + b',"result": {"sent": 1.10}}',
    )
    assert answer.json() == {"acknowledged": True, "task_id": task["task_id"], "status": "completed"}
    whole = await service.client.get(f"/api/v1/tasks/{task['task_id']}")
    assert b'{"sent": 1.10}' in whole.content


async def test_a_worker_gets_the_best_tasks_and_never_more_than_it_can_take(service: Service) -> None:
    low = await service.submit(priority="low")
    critical = await service.submit(priority="critical")
    high = await service.submit(priority="high")
    await service.submit(task_type="other", priority="critical")
    await service.submit(queue="elsewhere", priority="critical")
    await service.submit(required_capabilities=["gpu"], priority="critical")
    hand = await Hand.hired(service, task_types=["send_mail"])
    assert [task["task_id"] for task in await hand.poll(2)] == [critical["task_id"], high["task_id"]]
    assert await hand.poll(0) == []
    assert [task["task_id"] for task in await hand.poll(10)] == [low["task_id"]]
    assert await hand.poll(10) == []


async def test_a_poll_may_name_what_the_worker_can_do_now(service: Service) -> None:
    await service.submit(required_capabilities=["gpu"])
    hand = await Hand.hired(service)
    assert await hand.poll() == []
    assert len(await hand.poll(capabilities=["gpu", "more"])) == 1


async def test_a_failure_is_told_and_the_task_tried_again(service: Service) -> None:
    hand = await Hand.hired(service)
    await service.submit()
    task = await hand.take()
    error = {"message": "no route", "type": "SmtpError", "retriable": True, "traceback": "at line 1"}
    answer = await hand.result(task, "failed", error=error)
    assert answer == {"acknowledged": True, "task_id": task["task_id"], "status": "scheduled"}
    shown = await service.show(task["task_id"])
    assert (shown["error"], shown["retry_count"]) == (
        {"type": "SmtpError", "message": "no route", "traceback": "at line 1"}, 1,
    )  # fmt: skip
    service.advance(60)
    await service.engine.sweep()
    again = await hand.take()
    assert (again["attempt"], again["retry_count"]) == (2, 1)
    answer = await hand.result(again, "failed", error={"message": "never", "retriable": False})
    assert answer["status"] == "failed"


@pytest.mark.parametrize(
    ("outcome", "more", "state", "reason"),
    [
        ("completed", {}, "completed", Reason.COMPLETED),
        ("failed", {}, "scheduled", Reason.FAILED),
        ("failed", {"retry_after_seconds": 0}, "queued", Reason.FAILED),
        ("timed_out", {}, "scheduled", Reason.TIMED_OUT),
        ("crashed", {"error": {"message": "segmentation fault"}}, "scheduled", Reason.CRASHED),
        ("handed_back", {}, "queued", Reason.HANDED_BACK),
        ("handed_back", {"retry_after_seconds": 5}, "scheduled", Reason.HANDED_BACK),
    ],
)
async def test_every_way_in_which_an_attempt_ends(
    in_memory: Service, outcome: str, more: dict[str, Any], state: str, reason: Reason
) -> None:
    hand = await Hand.hired(in_memory)
    await in_memory.submit()
    task = await hand.take()
    assert (await hand.result(task, outcome, **more))["status"] == state
    shown = await in_memory.show(task["task_id"])
    assert shown["reason"] == reason
    assert shown["retry_count"] == (0 if outcome in ("completed", "handed_back", "crashed") else 1)


async def test_the_same_result_twice_is_acknowledged_twice(service: Service) -> None:
    hand = await Hand.hired(service)
    await service.submit()
    task = await hand.take()
    first = await hand.result(task, result={"a": 1})
    assert await hand.result(task, result={"a": 1}) == first
    refused = await hand.result(task, "completed", 409, result={"a": 2})
    assert refused["type"].endswith("#lease-lost")


async def test_a_result_under_a_lost_lease_is_refused_and_says_so(service: Service) -> None:
    hand, other = await Hand.hired(service), await Hand.hired(service)
    await service.submit()
    task = await hand.take()
    service.advance(3600)
    await service.engine.sweep()
    service.advance(60)
    await service.engine.sweep()
    again = await other.take()
    refused = await hand.result(task, "completed", 409)
    assert (refused["type"], refused["status"], refused["field"]) == ("/docs#lease-lost", 409, "lease")
    assert task["task_id"] in refused["detail"] and "lost" in refused["detail"]
    assert (await hand.heartbeat(task))["lost"] == [task["task_id"]]
    assert (await hand.call("progress", {**held(task), "percent": 1}, 409))["type"].endswith("#lease-lost")
    assert (await other.result(again))["status"] == "completed"


async def test_many_results_are_answered_one_by_one(service: Service) -> None:
    hand = await Hand.hired(service)
    for _ in range(3):
        await service.submit()
    one, two, three = await hand.poll(3)
    await hand.result(three, "handed_back")
    results = [
        {**held(one), "status": "completed", "result": 1},
        {**held(two), "status": "failed", "error": {"message": "no"}},
        {**held(three), "status": "completed"},
        {"task_id": NOBODY, "lease": "1.a", "status": "completed"},
        {"task_id": "nonsense", "lease": "!", "status": "completed"},
    ]
    answer = await hand.call("result", {"results": results})
    assert answer["acknowledged"] is False
    assert [(one["acknowledged"], one.get("status")) for one in answer["results"]] == [
        (True, "completed"), (True, "scheduled"), (False, None), (False, None), (False, None),
    ]  # fmt: skip
    kinds = [one["problem"]["type"].rpartition("#")[2] for one in answer["results"][2:]]
    assert kinds == ["lease-lost", "lease-lost", "invalid-value"]
    assert (await hand.call("result", {"results": []})) == {"acknowledged": True, "results": []}


async def test_progress_is_shown_and_renews_the_lease(service: Service) -> None:
    hand = await Hand.hired(service)
    await service.submit()
    task = await hand.take()
    before = (await service.show(task["task_id"]))["lease_until"]
    service.advance(5)
    answer = await hand.call("progress", {**held(task), "percent": 40, "message": "half way"})
    assert answer == {"acknowledged": True, "cancel": False}
    shown = await service.show(task["task_id"])
    assert (shown["progress"]["percent"], shown["progress"]["message"]) == (40.0, "half way")
    assert shown["lease_until"] > before


async def test_a_heartbeat_renews_leases_and_tells_what_to_stop(service: Service) -> None:
    hand = await Hand.hired(service)
    for _ in range(3):
        await service.submit()
    kept, cancelled, lost = await hand.poll(3)
    await service.delete(f"/api/v1/tasks/{cancelled['task_id']}", 202, wait=0)
    await hand.result(lost, "handed_back")
    service.advance(5)
    looked = await hand.heartbeat(kept, cancelled, lost, renew=False)
    until = (await service.show(kept["task_id"]))["lease_until"]
    answer = await hand.heartbeat(kept, cancelled, lost, current_load=2, status="active")
    expected = {"cancel": [cancelled["task_id"]], "lost": [lost["task_id"]]}
    assert answer == {"acknowledged": True, "should_drain": False, **expected} == looked
    assert (await service.show(kept["task_id"]))["lease_until"] > until
    (present,) = await service.engine.presence.workers()
    assert present.running == 2
    assert (await hand.result(cancelled, "cancelled"))["status"] == "cancelled"


async def test_nonsense_is_lost_rather_than_a_fault(service: Service) -> None:
    hand = await Hand.hired(service)
    running = [{"task_id": task_id, "lease": lease} for task_id in ("x", NOBODY, "\x00") for lease in ("x", "1.\x00")]
    answer = await hand.call("heartbeat", {"running": running})
    assert set(answer["lost"]) == {"x", NOBODY, "\x00"}


async def test_a_worker_that_is_asked_to_drain_gets_no_more_and_hears_of_it(service: Service) -> None:
    hand = await Hand.hired(service)
    await service.submit()
    assert await hand.call("drain") == {"acknowledged": True}
    assert await hand.call("poll", {"available_capacity": 1}) == {"tasks": [], "should_drain": True}
    assert (await hand.heartbeat())["should_drain"] is True
    (present,) = await service.engine.presence.workers()
    assert present.state == "draining"


async def test_a_drain_that_an_operator_asks_for_reaches_the_worker(service: Service) -> None:
    hand = await Hand.hired(service)
    (present,) = await service.engine.presence.workers()
    await service.engine.presence.ask_drain(present.id)
    assert (await hand.heartbeat())["should_drain"] is True


async def test_a_worker_that_leaves_hands_back_what_it_holds(service: Service) -> None:
    hand, other = await Hand.hired(service), await Hand.hired(service)
    for _ in range(3):
        await service.submit()
    named, held_silently = await hand.poll(2)
    others = await other.take()
    answer = await hand.call("deregister", {"running": [held(named)]})
    assert answer["acknowledged"] and sorted(answer["handed_back"]) == sorted(
        [named["task_id"], held_silently["task_id"]]
    )
    shown = await service.show(named["task_id"])
    assert (shown["status"], shown["reason"], shown["retry_count"]) == ("queued", "handed_back", 0)
    assert (await service.show(others["task_id"]))["status"] == "executing"
    assert [present.id for present in await service.engine.presence.workers()] == [other.id]
    assert (await hand.poll_refused())["status"] == 404


@pytest.mark.parametrize("call", ["poll", "heartbeat", "drain", "deregister"])
async def test_an_unknown_worker_is_told_to_register_again(in_memory: Service, call: str) -> None:
    problem = await in_memory.post(f"/internal/workers/nobody-1/{call}", {}, 404)
    assert (problem["field"], problem["remedy"]) == ("worker_id", "register again")


async def test_a_worker_registers_again_under_its_id_and_keeps_its_leases(service: Service) -> None:
    hand = await Hand.hired(service)
    await service.submit()
    task = await hand.take()
    await service.engine.presence.leave((await service.engine.presence.workers())[0].id)
    # Another server may have removed it: what was read a moment ago still counts for a moment.
    service.hub.roster._known.clear()
    assert (await hand.poll_refused())["status"] == 404
    again = await Hand.hired(service, worker_id=hand.id)
    assert again.id == hand.id
    assert (await again.heartbeat(task))["lost"] == []
    assert (await again.result(task))["status"] == "completed"


async def test_the_lease_alone_counts_for_a_result(service: Service) -> None:
    hand = await Hand.hired(service)
    await service.submit()
    task = await hand.take()
    await service.engine.presence.leave((await service.engine.presence.workers())[0].id)
    service.hub.roster._known.clear()
    assert (await hand.result(task))["status"] == "completed"


@pytest.mark.parametrize(
    ("call", "body", "field"),
    [
        ("result", {}, "task_id"),
        ("result", {"task_id": NOBODY, "lease": "x"}, "status"),
        ("result", {"task_id": "x", "lease": "x", "status": "completed"}, "task_id"),
        ("result", {"task_id": NOBODY, "results": []}, "results"),
        ("result", {"task_id": NOBODY, "lease": "x", "status": "done"}, "status"),
        ("progress", {"task_id": NOBODY, "lease": "x", "percent": 101}, "percent"),
        ("poll", {"available_capacity": -1}, "available_capacity"),
        ("heartbeat", {"status": "dead"}, "status"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_field(
    in_memory: Service, call: str, body: dict[str, Any], field: str
) -> None:
    hand = await Hand.hired(in_memory)
    assert (await hand.call(call, body, 422))["field"] == field
