"""Lists, dead letters and stats over HTTP, on every store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlead.core.events import Completed, Failed
from fairlead.core.identity import WorkerId
from fairlead.server.routes.tasks import MOST_PARAMETERS
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import open_store
from tests.server.serving import BOOM, NOBODY, Service
from tests.servers.redis import RedisServer

TASKS = "/api/v1/tasks"
DLQ = "/api/v1/dlq"


def ids(page: Any) -> list[str]:
    return [task["task_id"] for task in page["tasks"]]


async def test_a_list_goes_on_from_page_to_page(service: Service) -> None:
    submitted = []
    for _ in range(5):
        submitted.append((await service.submit())["task_id"])
        service.advance(1)
    for order, expected in (("newest", submitted[::-1]), ("oldest", submitted)):
        seen: list[str] = []
        query: dict[str, Any] = {"limit": 2, "order": order}
        while True:
            page = await service.get(TASKS, **query)
            seen += ids(page)
            if page["next_cursor"] is None:
                break
            assert len(page["tasks"]) == 2
            query["cursor"] = page["next_cursor"]
        assert seen == expected
    assert ids(await service.get(TASKS)) == submitted[::-1]


async def test_a_list_is_brief(service: Service) -> None:
    await service.ended(Failed(failure=BOOM), max_retries=0, parameters={"large": "x" * 1_000})
    (task,) = (await service.get(TASKS))["tasks"]
    assert task["error"] == {"type": "Boom", "message": "it went boom", "traceback": None, "retriable": True}
    assert not {"parameters", "result", "history"} & task.keys()


async def test_a_list_tells_what_tasks_were_submitted_with_if_asked(service: Service) -> None:
    first = (await service.submit())["task_id"]
    rules = [{"error": "ValueError", "reject": True}]
    await service.submit(parameters={"a": 1}, after=[first], retry_rules=rules, retry_policy={"initial_seconds": 9})
    (task, _) = (await service.get(TASKS, include_parameters="true"))["tasks"]
    assert (task["parameters"], task["after"], task["retry_rules"]) == ({"a": 1}, [first], rules)
    assert task["retry_policy"]["initial_seconds"] == 9
    assert not {"result", "history"} & task.keys()
    whole = await service.show(task["task_id"])
    assert {name: whole[name] for name in task} == task


async def test_a_page_of_large_parameters_ends_early(service: Service) -> None:
    size = 250_000
    submitted = [(await service.submit(parameters={"large": "x" * size}))["task_id"] for _ in range(40)]
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 1_000, "order": "oldest", "include_parameters": "true"}
    for expected in (MOST_PARAMETERS // size + 1, 40):
        page = await service.get(TASKS, **query)
        seen += ids(page)
        assert len(seen) == expected
        query["cursor"] = page["next_cursor"]
    assert (query["cursor"], seen) == (None, submitted)
    assert len(ids(await service.get(TASKS, limit=1_000))) == 40


async def test_a_list_is_narrowed_by_every_filter(service: Service) -> None:
    one = (await service.submit(queue="a", tags=["x"], priority="high"))["task_id"]
    service.advance(60)
    two = (await service.submit(queue="b", task_type="render", delay_seconds=5))["task_id"]
    three = (await service.submit(queue="c"))["task_id"]
    await service.claim(1, ["c"])
    for query, expected in (
        ({"queue": "a"}, [one]),
        ({"tag": "x"}, [one]),
        ({"priority": "high"}, [one]),
        ({"task_type": "render"}, [two]),
        ({"status": "scheduled"}, [two]),
        ({"status": "queued,scheduled"}, [two, one]),
        ({"worker": "worker-1"}, [three]),
        ({"created_from": "2027-01-15T08:01:00Z"}, [three, two]),
        ({"created_before": "2027-01-15T09:01:00+01:00"}, [one]),
        ({"queue": "a", "status": "executing"}, []),
        ({"worker": "nobody"}, []),
    ):
        assert ids(await service.get(TASKS, **query)) == expected, query


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"status": "done"}, "status"),
        ({"status": ""}, "status"),
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"order": "random"}, "order"),
        ({"priority": "hgih"}, "priority"),
        ({"cursor": "x"}, "cursor"),
        ({"cursor": "bgAAAAAAAAAAAAAAAAAAAAA"}, "cursor"),
        ({"cursor": "é"}, "cursor"),
        ({"queue": "a b"}, "queue"),
        ({"queue": "\0"}, "queue"),
        ({"tag": "\0"}, "tag"),
        ({"worker": "\0"}, "worker"),
        ({"worker": ""}, "worker"),
        ({"created_from": "yesterday"}, "created_from"),
        ({"created_from": "2027-01-15T08:00:00"}, "created_from"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_a_filter_that_makes_no_sense_is_named(service: Service, query: dict[str, Any], field: str) -> None:
    problem = await service.get(TASKS, 422, **query)
    assert problem["field"] == field and problem["remedy"], problem


async def test_a_cursor_is_of_one_order(service: Service) -> None:
    for _ in range(2):
        await service.submit()
    cursor = (await service.get(TASKS, limit=1))["next_cursor"]
    problem = await service.get(TASKS, 422, limit=1, order="oldest", cursor=cursor)
    assert (problem["field"], problem["value"]) == ("cursor", cursor)


async def test_dead_letters_are_listed_replayed_and_discarded(service: Service) -> None:
    dead = await service.ended(Failed(failure=BOOM), max_retries=0, task_type="a")
    other = await service.ended(Failed(failure=BOOM), max_retries=0, task_type="b")
    await service.ended(Completed())
    assert ids(await service.get(DLQ)) == [other, dead]
    (letter,) = (await service.get(DLQ, task_type="a", queue="default"))["tasks"]
    assert (letter["task_id"], letter["attempts"], letter["reason"]) == (dead, 1, "retries_used_up")
    assert letter["error"]["message"] == "it went boom"
    assert ids(await service.get(DLQ, queue="elsewhere")) == []
    page = await service.get(DLQ, limit=1)
    assert ids(await service.get(DLQ, limit=1, cursor=page["next_cursor"])) == [dead]

    replayed = await service.post(f"{DLQ}/{dead}/replay", {"reset_retry_count": True, "new_priority": "critical"})
    assert (replayed["task_id"], replayed["status"], replayed["reason"]) == (dead, "queued", "replayed")
    assert (replayed["priority"], replayed["retry_count"]) == ("critical", 0)
    discarded = await service.delete(f"{DLQ}/{other}")
    assert (discarded["task_id"], discarded["status"]) == (other, "dead_letter")
    await service.get(f"{TASKS}/{other}", 404)
    assert ids(await service.get(DLQ)) == []


async def test_a_replay_may_keep_the_retries_it_has_used(service: Service) -> None:
    task_id = (await service.submit(max_retries=1))["task_id"]
    for _ in range(2):
        (task,) = await service.claim()
        await service.settle(task, Failed(failure=BOOM, after=0))
    replayed = await service.post(f"{DLQ}/{task_id}/replay", {"reset_retry_count": False})
    assert replayed["retry_count"] == 1


async def test_a_replay_needs_no_body(service: Service) -> None:
    dead = await service.ended(Failed(failure=BOOM), max_retries=0)
    answer = await service.client.post(f"{DLQ}/{dead}/replay")
    assert (answer.status_code, answer.json()["status"]) == (200, "queued")


async def test_only_what_is_dead_is_replayed_or_discarded(service: Service) -> None:
    queued = (await service.submit(queue="other"))["task_id"]
    completed = await service.ended(Completed())
    for task_id in (queued, completed):
        assert (await service.post(f"{DLQ}/{task_id}/replay", status=409))["type"] == "/docs#wrong-state"
        assert (await service.delete(f"{DLQ}/{task_id}", 409))["field"] == "task_id"
    for missing in (NOBODY, "nonsense"):
        await service.post(f"{DLQ}/{missing}/replay", status=404)
        await service.delete(f"{DLQ}/{missing}", 404)
    problem = await service.post(f"{DLQ}/{queued}/replay", {"new_priority": "urgent"}, 422)
    assert (problem["field"], problem["value"]) == ("new_priority", "urgent")
    assert "critical, high" in problem["remedy"]


async def test_stats_are_summed_over_queues(service: Service) -> None:
    await service.submit(priority="high", queue="a")
    service.advance(5)
    await service.submit(priority="high", queue="b")
    await service.submit(priority="low", queue="b", delay_seconds=60)
    await service.engine.worker_records.register(WorkerId("worker-1"), queues=["a"], capacity=4)
    stats = await service.get("/api/v1/queue/stats")
    assert {name: (each["depth"], each["oldest_age_seconds"]) for name, each in stats["queues"].items()} == {
        "critical": (0, 0.0),
        "high": (2, 5.0),
        "medium": (0, 0.0),
        "low": (0, 0.0),
    }
    assert stats["workers"] == {
        "active": 1, "paused": 0, "draining": 0, "dead": 0, "total_capacity": 4, "used_capacity": 0, "slots": {}
    }  # fmt: skip
    assert stats["throughput"] == {"completed_last_minute": 0, "failed_last_minute": 0}
    assert (stats["states"]["queued"], stats["states"]["scheduled"]) == (2, 1)
    assert stats["by_queue"]["b"]["types"] == {"send_mail": 1}
    one = await service.get("/api/v1/queue/stats", queue="a")
    assert one["queues"]["high"]["depth"] == 1 and list(one["by_queue"]) == ["a"]
    none = await service.get("/api/v1/queue/stats", queue="empty")
    assert none["queues"]["high"]["depth"] == 0 and sum(none["states"].values()) == 0


async def test_throughput_is_what_ended_lately(service: Service) -> None:
    await service.ended(Completed())
    await service.ended(Failed(failure=BOOM), max_retries=0)
    await service.engine.worker_records.report()
    stats = await service.get("/api/v1/queue/stats")
    assert stats["throughput"] == {"completed_last_minute": 1, "failed_last_minute": 1}


async def test_a_server_is_alive_and_ready(service: Service) -> None:
    for path in ("/healthz", "/readyz"):
        assert (await service.get(path))["status"] == "ok"
    service.state.stopping.set()
    assert "shutting down" in (await service.get("/readyz", 503))["detail"]
    await service.get("/healthz")


async def test_a_server_without_its_store_is_alive_but_not_ready() -> None:
    redis = RedisServer().start()
    try:
        async with Service(await open_store(redis.url())) as service:
            await service.get("/readyz")
            redis.halt()
            problem = await service.get("/readyz", 503)
            assert problem["type"] == "/docs#store-unavailable" and problem["detail"]
            await service.get("/healthz")
            assert (await service.submit(503))["status"] == 503
    finally:
        redis.stop()


async def test_metrics_are_what_prometheus_reads(service: Service) -> None:
    await service.submit(priority="high")
    service.advance(3)
    answer = await service.client.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain; version=")
    assert 'fairlead_queue_depth{queue="default",priority="high"} 1\n' in answer.text
    assert 'fairlead_queue_oldest_age_seconds{queue="default",priority="high"} 3\n' in answer.text


async def test_stats_that_are_asked_for_together_are_counted_once() -> None:
    class Counting(MemoryStore):
        tallies = 0

        async def tally(self) -> Any:
            self.tallies += 1
            await asyncio.sleep(0)
            return await super().tally()

    store = Counting()
    async with Service(store) as service:
        await asyncio.gather(*(service.get("/api/v1/queue/stats") for _ in range(20)))
    assert store.tallies == 1
