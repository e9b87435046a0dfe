"""Over HTTP, a worker that somebody paused is given nothing, whatever it says, and stands in nobody's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.core.identity import WorkerId
from fairlead.core.submission import Submission
from fairlead.core.task import State, Task
from fairlead.storage.open import open_store
from tests.server.serving import Service
from tests.server.test_dispatch import ANY, Line
from tests.server.workers import Hand
from tests.servers.stores import Place


@pytest.fixture
async def service(place: Place) -> AsyncIterator[Service]:
    """A server on an empty store of each kind, the journal too."""
    async with Service(await open_store(place.url, journal=place.journal)) as service:
        yield service


async def pause(service: Service, hand: Hand, how: str = "pause") -> None:
    shown = await service.post(f"/api/v1/workers/{hand.id}/{how}")
    assert (shown["status"], shown["paused"]) == ("active", how == "pause")


async def test_a_paused_worker_is_given_nothing_until_it_is_resumed(service: Service) -> None:
    hand, other = await Hand.hired(service), await Hand.hired(service)
    await service.submit()
    await pause(service, hand)
    answer = await hand.call("poll", {})
    assert (answer["tasks"], answer["paused"], answer["should_drain"]) == ([], True, False)
    await pause(service, hand, "resume")
    assert (await other.call("poll", {"available_capacity": 0}))["paused"] is False
    assert len(await hand.poll()) == 1


async def test_it_finishes_what_it_has(service: Service) -> None:
    hand = await Hand.hired(service)
    await service.submit()
    task = await hand.take()
    await pause(service, hand)
    noted = await hand.heartbeat(task)
    assert (noted["paused"], noted["should_drain"], noted["lost"], noted["cancel"]) == (True, False, [], [])
    assert (await hand.result(task))["status"] == "completed"


@pytest.mark.parametrize("said", [{"status": "active"}, {"status": "draining"}, {}], ids=repr)
async def test_nothing_that_it_says_undoes_the_pause(service: Service, said: dict[str, str]) -> None:
    hand = await Hand.hired(service)
    await service.submit()
    await pause(service, hand)
    for _ in range(2):
        assert (await hand.heartbeat(**said))["paused"]
    await service.post("/internal/workers/register", {"worker_id": hand.id}, 201)
    assert await hand.poll() == []
    assert (await service.get(f"/api/v1/workers/{hand.id}"))["paused"]


async def test_a_paused_worker_can_be_drained_and_hears_of_both(service: Service) -> None:
    hand = await Hand.hired(service)
    await pause(service, hand)
    await service.post(f"/api/v1/workers/{hand.id}/drain")
    noted = await hand.heartbeat()
    assert (noted["paused"], noted["should_drain"]) == (True, True)
    assert (await hand.call("poll", {}))["should_drain"]
    assert (await service.get(f"/api/v1/workers/{hand.id}"))["status"] == "draining"
    await hand.call("deregister", {})
    await service.get(f"/api/v1/workers/{hand.id}", 404)


async def test_a_worker_that_nobody_knows_cannot_be_paused(service: Service) -> None:
    for how in ("pause", "resume"):
        assert "nobody" in (await service.post(f"/api/v1/workers/nobody/{how}", None, 404))["detail"]


async def test_a_long_poll_of_a_paused_worker_gets_a_task_once_it_is_resumed(service: Service) -> None:
    service.state.dispatcher._recheck = 0.01
    hand = await Hand.hired(service)
    await pause(service, hand)
    task = await service.submit()
    polling = asyncio.create_task(hand.poll(wait_seconds=60))
    for _ in range(5):
        assert (await hand.heartbeat())["paused"]
    assert not polling.done() and service.state.dispatcher.waiting == 0
    await pause(service, hand, "resume")
    assert [each["task_id"] for each in await polling] == [task["task_id"]]


async def test_it_is_counted_and_shown_in_the_metrics(service: Service) -> None:
    hand = await Hand.hired(service)
    await pause(service, hand)
    assert (await service.get("/api/v1/queue/stats"))["workers"]["paused"] == 1
    text = (await service.client.get("/metrics")).text
    assert 'fairlead_workers{status="paused"} 1' in text
    assert 'fairlead_workers{status="active"} 0' in text


async def tasks_of(line: Line, number: int) -> list[Task]:
    return await asyncio.wait_for(asyncio.shield(line.polls[number]), 60)


async def test_a_worker_that_is_paused_while_it_waits_does_not_keep_a_task_from_those_behind_it() -> None:
    line = Line()
    for number in range(3):
        await line.engine.worker_records.register(WorkerId(f"worker-{number}"), queues=["default"], capacity=1)
        await line.wait()
    await line.engine.worker_records.pause(WorkerId("worker-0"))
    task = await line.submit()
    assert [each.id for each in await tasks_of(line, 1)] == [task.id]
    await line.until(lambda: line.dispatcher.waiting == 1)
    assert not line.polls[0].done()
    line.stopping.set()
    await asyncio.gather(*line.polls)


async def test_a_paused_poll_ends_when_the_server_stops_and_when_its_caller_has_gone() -> None:
    line = Line()
    for number in range(2):
        await line.engine.worker_records.register(WorkerId(f"worker-{number}"), queues=["default"], capacity=1)
        await line.engine.worker_records.pause(WorkerId(f"worker-{number}"))
    await line.engine.submit(Submission(type="work"))
    gone: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    first = asyncio.create_task(line.dispatcher.poll(WorkerId("worker-0"), ANY, 1, 60.0, gone))
    second = asyncio.create_task(line.dispatcher.poll(WorkerId("worker-1"), ANY, 1, 60.0, asyncio.Future()))
    gone.set_result(None)
    assert await first == []
    line.stopping.set()
    assert await second == []
    assert (await line.engine.stats()).states[State.QUEUED] == 1
