"""The short way: what goes by directly is answered as what goes by ASGI is."""

from __future__ import annotations

import asyncio
import re

import httpx

from fairlead.server.app import build
from fairlead.server.http.response import Arrival
from tests.server.test_server import running, said_to
from tests.worker.building import eventually

TASK = b'{"task_type": "echo"}'
HEAD = (
    b"POST /api/v1/tasks HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    % len(TASK)
)
LAST = b"connection: close\r\n"


def answers_in(said: bytes) -> list[bytes]:
    """The status lines of the answers in what a server said."""
    return re.findall(rb"HTTP/1\.1 (\d+) ", said)


async def test_it_carries_the_same_headers_as_an_answer_by_asgi() -> None:
    async with running() as server:
        async with httpx.AsyncClient(base_url=server.url) as client:
            direct = await client.get("/api/v1/queue/stats")
        transport = httpx.ASGITransport(build(server.state))
        async with httpx.AsyncClient(transport=transport, base_url=server.url) as client:
            plain = await client.get("/api/v1/queue/stats")
    assert direct.content == plain.content
    assert {name: value for name, value in direct.headers.items() if name != "date"} == dict(plain.headers)
    assert "date" in direct.headers


async def test_a_body_in_pieces_is_waited_for() -> None:
    async with running() as server:
        said = await said_to(server, HEAD + LAST + b"\r\n", TASK[:5], TASK[5:])
        assert answers_in(said) == [b"201"]
        assert len(await server.state.engine.find()) == 1


async def test_requests_in_one_breath_are_answered_in_their_order() -> None:
    async with running() as server:
        known = b"GET /api/v1/tasks HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        said = await said_to(server, HEAD + b"\r\n" + TASK + known + HEAD + LAST + b"\r\n" + TASK)
        assert answers_in(said) == [b"201", b"200", b"201"]
        assert said.count(b"connection: close") == 1


async def test_a_head_alone_has_no_body() -> None:
    async with running() as server:
        said = await said_to(server, b"HEAD /api/v1/queue/stats HTTP/1.1\r\nhost: 127.0.0.1\r\n" + LAST + b"\r\n")
        head, _, body = said.partition(b"\r\n\r\n")
        assert re.search(rb"content-length: [1-9]", head) and body == b""


async def test_who_leaves_during_a_long_poll_is_noticed() -> None:
    async with running() as server, httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        worker = (await client.post("/internal/workers/register", json={})).json()["worker_id"]
        poll = asyncio.create_task(client.post(f"/internal/workers/{worker}/poll", json={"wait_seconds": 50}))
        await eventually(lambda: server.state.dispatcher.waiting == 1, "the poll")
        poll.cancel()
        await eventually(lambda: server.state.dispatcher.waiting == 0, "its end")


async def test_an_arrival_wakes_all_who_wait_and_whoever_comes_before_it_is_cleared() -> None:
    arrival = Arrival()
    waiting = [asyncio.create_task(arrival.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    arrival.set()
    arrival.clear()
    assert [type(each) for each in await asyncio.gather(*waiting, return_exceptions=True)] == [
        asyncio.CancelledError, type(None), type(None),
    ]  # fmt: skip
    arrival.set()
    await arrival.wait()
    arrival.clear()
    late = asyncio.create_task(arrival.wait())
    await asyncio.sleep(0)
    assert not late.done()
    arrival.set()
    await late
