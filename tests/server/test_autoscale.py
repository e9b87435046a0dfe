"""What a scaler is told, over HTTP, on the command line and in code."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from fairlead.admin.sweeper import Sweeper
from fairlead.client.engine import RemoteEngine
from fairlead.client.http.transport import Address, Reply
from fairlead.core.events import Completed
from fairlead.core.identity import WorkerId
from fairlead.core.instant import MINUTE, SECOND
from tests.engine.building import a_wish
from tests.server.serving import Service

AUTOSCALE = "/api/v1/autoscale"
NOTHING = {
    "queue": "default", "suggested_workers": 0, "backlog_seconds": None, "oldest_claimable_age_seconds": 0.0,
    "ready": 0, "executing": 0, "seconds_per_task": None, "tasks_per_second": 0.0, "workers": 0,
    "capacity_per_worker": 1.0,
}  # fmt: skip


class Straight:
    """The way to a server in this process."""

    address = Address("http://127.0.0.1:8080")

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        patience: float = 0.0,
    ) -> Reply:
        answer = await self._client.request(method, path, content=body, params=query)
        return Reply(answer.status_code, answer.content)

    async def close(self) -> None: ...


async def work(service: Service) -> None:
    """A worker with ten slots, that has lately run sixty tasks of two seconds; a hundred more wait for three."""
    worker_records = service.engine.worker_records
    await worker_records.register(WorkerId("worker-1"), queues=["default"], capacity=10)
    for _ in range(6):
        await service.engine.submit_many([a_wish() for _ in range(10)])
        tasks = await service.claim(10)
        service.advance(2)
        for task in tasks:
            await service.settle(task, Completed())
    await service.engine.submit_many([a_wish() for _ in range(100)])
    service.advance(3)
    await worker_records.beat(WorkerId("worker-1"), running=0)
    await Sweeper(service.engine).tidy()


async def test_an_empty_queue_wants_nobody(service: Service) -> None:
    assert await service.get(AUTOSCALE, queue="default") == NOTHING
    assert await service.get(AUTOSCALE) == NOTHING | {"queue": None}


async def test_work_that_waits_is_told_in_seconds_and_in_workers(service: Service) -> None:
    await work(service)
    told = await service.get(AUTOSCALE, queue="default", within_seconds=10)
    # 200 seconds of work within ten, beside the two slots that were in use over the last minute.
    assert told == {
        "queue": "default", "suggested_workers": 3, "backlog_seconds": 200.0, "oldest_claimable_age_seconds": 3.0,
        "ready": 100, "executing": 0, "seconds_per_task": 2.0, "tasks_per_second": 1.0, "workers": 1,
        "capacity_per_worker": 10.0,
    }  # fmt: skip
    assert (await service.get(AUTOSCALE, queue="default", within_seconds=10, capacity=1))["suggested_workers"] == 22
    assert (await service.get(AUTOSCALE, queue="other"))["suggested_workers"] == 0
    assert (await service.get(AUTOSCALE))["suggested_workers"] == 1
    service.advance(61)
    later = await service.get(AUTOSCALE, queue="default")
    assert (later["workers"], later["backlog_seconds"], later["suggested_workers"]) == (0, None, 1)


async def test_what_is_paused_is_not_claimable(service: Service) -> None:
    await work(service)
    await service.post("/api/v1/queues/default/pause")
    told = await service.get(AUTOSCALE, queue="default")
    assert (told["ready"], told["oldest_claimable_age_seconds"], told["suggested_workers"]) == (0, 0, 0)
    await service.post("/api/v1/queues/default/resume")
    await service.engine.queues.pause_type("send_mail")
    assert (await service.get(AUTOSCALE))["ready"] == 0


async def test_an_app_on_a_server_is_told_the_same(in_memory: Service) -> None:
    await work(in_memory)
    here = await in_memory.engine.autoscale("default", within=10 * SECOND, capacity=5)
    there = await RemoteEngine(Straight(in_memory.client)).autoscale("default", within=10 * SECOND, capacity=5)
    assert there.advice == here.advice
    assert (there.load.ready, there.load.oldest_age, there.load.ended) == (100, 3 * SECOND, 60)
    assert (await RemoteEngine(Straight(in_memory.client)).autoscale(within=MINUTE)).queue is None


async def test_what_makes_no_sense_is_refused(in_memory: Service) -> None:
    for query in ({"within_seconds": 0}, {"within_seconds": "nan"}, {"capacity": 0}, {"queue": "a b"}, {"queues": "a"}):
        await in_memory.get(AUTOSCALE, 422, **query)
