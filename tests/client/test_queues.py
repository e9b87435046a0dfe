"""Queues and workers over the API: the same calls as on a store, from asynchronous and synchronous code."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from fairlead.admin.queues.api import RemoteQueues
from fairlead.core.errors import BindingRefused, InvalidTask, WorkerNotFound
from fairlead.core.identity import WorkerId
from fairlead.core.instant import SECOND
from fairlead.core.queues.order import HeadStart
from fairlead.core.queues.queue import PurgeCount, QueueSettings
from fairlead.core.retry import Backoff
from fairlead.core.submission import Submission
from fairlead.core.task import Priority, State
from fairlead.server.routes import queues as server_queues
from tests.client.serving import Port


async def test_a_queue_is_paused_changed_and_reset(port: Port) -> None:
    app = port.app()
    assert (await app.queues.pause("mail")).paused
    changed = await app.queues.change(
        "mail",
        bound=3,
        order=HeadStart(high=7 * SECOND),
        priority="high",
        timeout=2.5,
        max_retries=1,
        max_crashes=0,
        backoff=Backoff(initial=SECOND, jitter=0.5),
    )
    assert changed == await port.engine.queues.get("mail") == await app.queues.get("mail")
    assert (changed.paused, changed.priority, changed.timeout) == (True, Priority.HIGH, 2_500_000)
    assert await app.queues.all() == {"mail": changed}
    assert await app.queues.reset("mail") == QueueSettings(paused=True)
    assert await app.queues.resume("mail") == QueueSettings()
    assert await app.queues.all() == {}
    await app.queues.pause_type("slow")
    assert await app.queues.paused_types() == ["slow"] == await port.engine.queues.paused_types()
    assert (await (await app.connection().engine()).stats()).paused_types == ("slow",)
    await app.queues.resume_type("slow")
    assert await app.queues.paused_types() == []
    with pytest.raises(InvalidTask):
        await app.queues.pause("not a name")


async def test_a_queue_is_bound_to_a_tenant_and_stays_so_through_a_reset(port: Port) -> None:
    app = port.app()

    @app.task(queue="mail")
    async def send() -> None: ...

    @app.task(queue="mail", tenant="umbrella")
    async def spam() -> None: ...

    assert (await app.queues.change("mail", tenant="acme", bound=9)).tenant == "acme"
    handle = await send.submit()
    assert (await port.engine.get(handle.id)).spec.tenant == "acme"
    with pytest.raises(InvalidTask, match="which is bound to another tenant"):
        await spam.submit()
    with pytest.raises(BindingRefused, match="while it holds tasks of tenant 'acme'"):
        await app.queues.change("mail", tenant="umbrella")
    assert await app.queues.reset("mail") == QueueSettings(tenant="acme") == await port.engine.queues.get("mail")
    assert await app.queues.change("mail", tenant=None) == QueueSettings()


async def test_a_purge_takes_as_many_requests_as_it_needs(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_queues, "PURGE_LIMIT", 4)
    await port.engine.submit_many([Submission(type="work") for _ in range(10)])
    queues = (await port.app().connection().engine()).queues
    assert isinstance(queues, RemoteQueues)
    assert await queues.purge("default", 3) == PurgeCount(queued=4, complete=False)
    assert await queues.purge("default") == PurgeCount(queued=6)


async def test_workers_are_shown_and_drained(port: Port) -> None:
    app, worker = port.app(), WorkerId("host 1")
    joined = await port.engine.worker_records.register(
        worker, queues=["default"], capacity=3, types=["work"], host="h", pid=7, version="1"
    )
    # What sweeps go by is told to nobody over HTTP.
    assert await app.workers.all() == [replace(joined, lease=0, heartbeat=0)]
    await port.engine.submit(Submission(type="work"))
    (task,) = await port.engine.claim(worker, ["default"], limit=1)
    assert [each.id for each in (await app.workers.get(worker)).running] == [task.id]
    assert (await app.workers.drain(worker)).id == worker
    assert (await app.workers.get(worker)).drain_asked
    await port.engine.lost_tasks.note([task], port.engine.clock.now())
    (lost,) = (await app.workers.get(worker)).lost
    assert lost.task is not None
    assert (lost.id, lost.task.state) == (task.id, State.EXECUTING)
    with pytest.raises(WorkerNotFound):
        await app.workers.get("nobody")


async def test_the_same_from_synchronous_code(port: Port) -> None:
    app = port.app()
    await port.engine.worker_records.register(WorkerId("one"), queues=["default"], capacity=1)

    def operate() -> None:
        assert app.queues.pause_sync("mail").paused
        assert app.queues.change_sync("mail", timeout=None, bound=0).bound == 0
        assert app.queues.get_sync("mail") == app.queues.all_sync()["mail"]
        assert app.queues.reset_sync("mail") == QueueSettings(paused=True)
        assert app.queues.resume_sync("mail") == QueueSettings()
        assert app.queues.purge_sync("mail").total == 0
        app.queues.pause_type_sync("slow")
        assert app.queues.paused_types_sync() == ["slow"]
        app.queues.resume_type_sync("slow")
        assert [worker.id for worker in app.workers.all_sync()] == ["one"]
        assert app.workers.pause_sync("one").paused and app.workers.all_sync()[0].paused
        assert not app.workers.resume_sync("one").paused
        assert app.workers.drain_sync("one").id == app.workers.get_sync("one").worker.id

    await asyncio.to_thread(operate)
