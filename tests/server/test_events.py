"""What happens anywhere reaches the listeners of any server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.core.events import Completed, Failed
from fairlead.core.identity import WorkerId
from fairlead.core.instant import MINUTE
from fairlead.core.submission import Submission
from fairlead.core.task import Failure, Progress
from fairlead.core.tenancy import Role
from fairlead.engine.engine import Settlement, Submitted
from fairlead.server.live import broadcast
from fairlead.server.server import Binding, Server, open_server
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import open_store
from fairlead.storage.protocol import Store
from fairlead.storage.values import Beat
from fairlead.wire.text import parse_iso
from tests.servers.stores import Place

PATIENCE = 60.0


@contextlib.asynccontextmanager
async def serving(store: Store) -> AsyncIterator[Server]:
    engine = AdminEngine(store)
    server = await open_server(engine, Binding(port=0, grace_seconds=5), sweep=False)
    running = asyncio.create_task(server.run())
    try:
        yield server
    finally:
        server.leave()
        await running
        await engine.publisher.close()


@contextlib.asynccontextmanager
async def listening(server: Server, query: str = "", **options: Any) -> AsyncIterator[ClientConnection]:
    url = server.url.replace("http://", "ws://")
    async with connect(f"{url}/ws{query}", proxy=None, **options) as connection:
        yield connection


async def heard(connection: ClientConnection, *types: str) -> list[dict[str, Any]]:
    """The next messages of these types, one of each, in this order; what comes in between is passed over."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE):
        for wanted in types:
            while True:
                message: dict[str, Any] = json.loads(await connection.recv())
                if message["type"] == wanted:
                    found.append(message)
                    break
    return found


@pytest.fixture
async def stores(place: Place) -> AsyncIterator[tuple[Store, Store]]:
    """The same store, with a journal too, as two processes would open it."""
    first = await open_store(place.url, journal=place.journal)
    second = first if isinstance(first, MemoryStore) else await open_store(place.url, journal=place.journal)
    yield first, second
    for store in {first, second}:
        await store.close()


async def test_a_task_is_heard_of_from_its_submit_to_its_end_wherever_it_happens(stores: tuple[Store, Store]) -> None:
    elsewhere = AdminEngine(stores[1])
    async with serving(stores[0]) as server, listening(server) as connection:
        task = (await elsewhere.submit(Submission(type="mail", parameters=b'{"secret":1}'))).task
        (claimed,) = await elsewhere.claim(WorkerId("w-1"), ["default"], limit=1)
        assert claimed.status.lease is not None
        await elsewhere.heartbeat([Beat(task.id, claimed.status.lease.token, Progress(percent=40, message="on it"))])
        await elsewhere.settle(
            [Settlement(claimed, Failed(failure=Failure(type="Boom", message="oh"), retriable=False))]
        )
        await elsewhere.publisher.close()

        submitted, started, progress, failed = await heard(
            connection, "task.submitted", "task.started", "task.progress", "task.failed"
        )

    assert submitted["data"] == {
        "task_id": task.id, "task_type": "mail", "type": "mail", "queue": "default", "priority": "medium",
        "status": "queued", "reason": "submitted",
    }  # fmt: skip
    assert started["data"]["worker_id"] == "w-1"
    assert progress["data"]["progress"] == {"percent": 40.0, "message": "on it"}
    assert failed["data"]["error"] == {"type": "Boom", "message": "oh"}
    assert type(failed["data"]["duration_ms"]) is int and {"type": "mail"}.items() <= failed["data"].items()
    # By the store's clock, or by what a process takes for it, which may differ a little.
    moments = [parse_iso(event["timestamp"]) for event in (submitted, started, progress, failed)]
    assert max(moments) - min(moments) < MINUTE


async def test_a_worker_that_somebody_pauses_or_resumes_is_told_of(stores: tuple[Store, Store]) -> None:
    elsewhere = AdminEngine(stores[1])
    worker = WorkerId("w-1")
    async with serving(stores[0]) as server, listening(server, "?types=worker.*") as connection:
        await elsewhere.worker_records.register(worker, queues=["default"], capacity=4, name="mail")
        await elsewhere.workers.pause(worker)
        await elsewhere.workers.resume(worker)
        await elsewhere.publisher.close()

        joined, *told = await heard(connection, "worker.joined", "worker.paused", "worker.resumed")

    assert [event["data"] for event in told] == [joined["data"]] * 2
    assert (joined["data"]["worker_id"], joined["data"]["name"]) == ("w-1", "mail")


async def test_queue_depths_and_metrics_are_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "VITALS_INTERVAL", 0.05)
    store = MemoryStore()
    await AdminEngine(store).submit(Submission(type="mail", queue="post"))
    async with serving(store) as server, listening(server) as connection:
        depth, metrics = await heard(connection, "queue.depth", "system.metrics")
    assert depth["data"]["queues"]["post"] == {"critical": 0, "high": 0, "medium": 1, "low": 0}
    assert metrics["data"]["states"]["queued"] == 1
    assert metrics["data"]["workers"]["active"] == 0


async def test_a_listener_hears_only_what_it_asked_for_and_may_ask_anew() -> None:
    async with serving(MemoryStore()) as server, listening(server, "?types=task.completed&queue=b") as connection:
        engine = server.state.engine

        async def run(queue: str) -> str:
            task = (await engine.submit(Submission(type="mail", queue=queue))).task
            (claimed,) = await engine.claim(WorkerId("w"), [queue], limit=1)
            await engine.settle([Settlement(claimed, Completed())])
            return task.id

        await run("a")
        second = await run("b")
        (first_heard,) = await heard(connection, "task.completed")
        assert first_heard["data"]["task_id"] == second

        waiting = (await engine.submit(Submission(type="mail", queue="c"))).task
        await connection.send(json.dumps({"types": ["task.*"], "task_id": waiting.id}))
        (answer,) = await heard(connection, "subscribed")
        assert answer["data"]["task_id"] == waiting.id
        await run("b")
        await engine.cancel(waiting.id)
        (cancelled,) = await heard(connection, "task.cancelled")
        assert cancelled["data"]["task_id"] == waiting.id


@pytest.mark.parametrize(
    ("said", "words"),
    [("{", "not valid JSON"), ('{"types": ["task.started", "nonsense"]}', "nonsense"), ('{"colour": 1}', "colour")],
)
async def test_a_wish_that_cannot_be_met_is_answered_and_the_old_one_stays(said: str, words: str) -> None:
    async with serving(MemoryStore()) as server, listening(server) as connection:
        await connection.send(said)
        (error,) = await heard(connection, "error")
        assert words in error["data"]["detail"]
        await connection.send("ping")
        await heard(connection, "pong")
        await server.state.engine.submit(Submission(type="mail"))
        await heard(connection, "task.submitted")


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("?types=nonsense", {}, 422),
        ("?colour=red", {}, 422),
        ("", {"Origin": "https://elsewhere.example"}, 403),
        ("?task_id=nonsense", {}, 422),
    ],
)
async def test_who_asks_wrongly_or_from_elsewhere_is_refused(query: str, headers: dict[str, str], status: int) -> None:
    async with serving(MemoryStore()) as server:
        with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
            async with listening(server, query, additional_headers=headers):
                pass
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body or b"")["status"] == status


async def test_a_key_opens_the_socket_if_it_may_read_and_a_tenants_key_hears_of_its_own_tasks() -> None:
    store = MemoryStore()
    engine = AdminEngine(store)
    reader = (await Keyring(engine).create("reader", [Role.READ])).text
    worker = (await Keyring(engine).create("worker", [Role.WORK])).text
    tenant = (await Keyring(engine).create("tenant", [Role.READ], tenant="acme")).text
    own = (await engine.submit(Submission(type="mail", tenant="acme"))).task
    other = (await engine.submit(Submission(type="mail", tenant="umbrella"))).task

    async def outcome(key: str | None, query: str = "") -> int:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        try:
            async with listening(server, query, additional_headers=headers):
                return 101
        except websockets.exceptions.InvalidStatus as refused:
            return refused.response.status_code

    async with serving(store) as server:
        assert await outcome(None) == 401
        assert await outcome("fl_wrong_key") == 401
        assert await outcome(worker) == 403
        assert await outcome(reader) == 101
        assert await outcome(tenant) == 101
        assert await outcome(tenant, f"?task_id={other.id}") == 404
        assert await outcome(tenant, f"?task_id={own.id}") == 101


async def test_a_tenant_hears_over_a_socket_of_its_own_whatever_it_asks_for_and_also_of_what_it_missed() -> None:
    store = MemoryStore()
    engine = AdminEngine(store)
    key = (await Keyring(engine).create("tenant", [Role.READ], tenant="acme")).text
    headers = {"Authorization": f"Bearer {key}"}

    async def happen() -> tuple[str, str]:
        other = await engine.submit(Submission(type="secret", queue="theirs", tenant="umbrella"))
        own = await engine.submit(Submission(type="mail", tenant="acme"))
        return other.task.id, own.task.id

    other = ""
    async with serving(store) as server:
        async with listening(server, additional_headers=headers) as connection:
            for wish in ({}, {"types": ["task.*"]}, {"queue": "default"}):
                await connection.send(json.dumps(wish))
                await heard(connection, "subscribed")
                other, own = await happen()
                (told,) = await heard(connection, "task.submitted")
                assert told["data"]["task_id"] == own
            for task_id in (other, "01a1de8543e98af180df27e580779234"):
                await connection.send(json.dumps({"task_id": task_id}))
                (error,) = await heard(connection, "error")
                assert (error["data"]["status"], task_id in error["data"]["detail"]) == (404, True)
        async with listening(server, "?last_event_id=0", additional_headers=headers) as connection:
            told_again = await heard(connection, *["task.submitted"] * 3)
        assert {each["data"]["tenant"] for each in told_again} == {"acme"}


async def test_a_tenant_is_told_of_the_depths_of_its_own_queues_and_of_none_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broadcast, "VITALS_INTERVAL", 0.05)
    store = MemoryStore()
    engine = AdminEngine(store)
    await engine.queues.change("mine", tenant="acme")
    for queue, tenant in (("mine", None), ("shared", "acme"), ("shared", None), ("shared", "umbrella")):
        await engine.submit(Submission(type="mail", queue=queue, tenant=tenant))
    await engine.worker_records.register(WorkerId("free-1"), queues=["mine", "shared"], capacity=5)
    ring = Keyring(engine)
    acme, umbrella, anybody = [
        {"Authorization": f"Bearer {(await ring.create('k', [Role.READ], tenant=tenant)).text}"}
        for tenant in ("acme", "umbrella", None)
    ]
    async with (
        serving(store) as server,
        listening(server, "?types=queue.depth,task.submitted", additional_headers=umbrella) as nothing,
        listening(server, additional_headers=acme) as own,
        listening(server, additional_headers=anybody) as all_of_it,
    ):
        depth, metrics = await heard(own, "queue.depth", "system.metrics")
        assert list(depth["data"]["queues"]) == ["mine"]
        assert (metrics["data"]["states"]["queued"], metrics["data"]["workers"]["active"]) == (1, 0)
        (depth,) = await heard(all_of_it, "queue.depth")
        assert set(depth["data"]["queues"]) == {"mine", "shared"}
        await server.state.engine.submit(Submission(type="mail", tenant="umbrella"))
        async with asyncio.timeout(PATIENCE):
            assert json.loads(await nothing.recv())["type"] == "task.submitted"


async def test_a_slow_listener_is_dropped_with_a_reason_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "BACKLOG", 3)
    store = MemoryStore()
    async with serving(store) as server, listening(server) as slow:
        state = server.state
        ((listener,),) = state.broadcast._listeners.values()
        # As if its connection took nothing: what waits is never taken.
        monkeypatch.setattr(listener, "take", asyncio.Future)
        await slow.send("ping")
        await heard(slow, "pong")
        await state.engine.submit_many([Submission(type="mail") for _ in range(10)])
        async with asyncio.timeout(PATIENCE):
            await slow.wait_closed()
        assert slow.close_code == 1013
        assert "too slow" in (slow.close_reason or "")
        assert len(state.broadcast._listeners) == 0


async def test_a_server_that_stops_says_so() -> None:
    async with serving(MemoryStore()) as server, listening(server) as connection:
        server.leave()
        async with asyncio.timeout(PATIENCE):
            await connection.wait_closed()
        assert connection.close_code in (1001, 1012)


async def test_nothing_is_read_or_published_when_nobody_listens() -> None:
    async with serving(MemoryStore()) as server:
        async with listening(server):
            assert server.state.broadcast._duties
        async with asyncio.timeout(PATIENCE):
            while server.state.broadcast._duties:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


# Server-sent events


async def events(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, str]]:
    """Events, field by field."""
    event: dict[str, str] = {}
    async for line in lines:
        if not line:
            if "data" in event:
                yield event
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value


@contextlib.asynccontextmanager
async def streaming(server: Server, path: str, **headers: str) -> AsyncIterator[AsyncIterator[dict[str, str]]]:
    async with (
        httpx.AsyncClient(timeout=PATIENCE) as client,
        client.stream("GET", f"{server.url}{path}", headers=headers) as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        yield events(response.aiter_lines())


async def test_the_stream_replays_what_was_missed_and_goes_on_without_gap_or_repetition(
    stores: tuple[Store, Store],
) -> None:
    path = "/api/v1/events?types=task.submitted"
    async with serving(stores[0]) as server, serving(stores[1]) as other:
        engine = server.state.engine
        async with streaming(server, path) as stream:
            first = (await engine.submit(Submission(type="mail"))).task
            told = await anext(stream)
            assert (told["event"], json.loads(told["data"])["data"]["task_id"]) == ("task.submitted", first.id)
        missed = [(await engine.submit(Submission(type="mail"))).task.id for _ in range(5)]

        # Another server, as behind a load balancer.
        found: list[str] = []
        async with streaming(other, path, **{"Last-Event-ID": told["id"]}) as stream:
            later = [(await engine.submit(Submission(type="mail"))).task.id for _ in range(5)]
            async with asyncio.timeout(PATIENCE):
                async for one in stream:
                    found.append(json.loads(one["data"])["data"]["task_id"])
                    if len(found) == 10:
                        break
        assert found == missed + later


async def test_a_long_replay_is_told_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "_PAGE", 7)
    store = MemoryStore()
    async with serving(store) as server:
        engine = server.state.engine
        await engine.feed.want()
        start = await engine.feed.end()
        answers = await engine.submit_many([Submission(type="mail")] * 50)
        ids = [answer.task.id for answer in answers if isinstance(answer, Submitted)]
        async with streaming(server, f"/api/v1/events?types=task.*&last_event_id={start}") as stream:
            found = [json.loads((await anext(stream))["data"])["data"]["task_id"] for _ in range(50)]
    assert found == ids


async def test_the_stream_shows_that_it_is_alive_and_ends_when_the_server_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.server.routes.events.KEEPALIVE", 0.02)
    async with serving(MemoryStore()) as server, httpx.AsyncClient(timeout=PATIENCE) as client:
        async with client.stream("GET", f"{server.url}/api/v1/events?types=task.failed") as response:
            async for line in response.aiter_lines():
                if line == ": alive":
                    server.leave()
        assert "alive" in line or line == ""


async def test_a_stream_of_the_wrong_wish_is_refused() -> None:
    async with serving(MemoryStore()) as server, httpx.AsyncClient(timeout=PATIENCE) as client:
        response = await client.get(f"{server.url}/api/v1/events?types=nonsense")
    assert response.status_code == 422
    assert response.json()["field"] == "types"
