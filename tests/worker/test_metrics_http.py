"""A worker's metrics, on a port of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from fairlead.core.errors import InvalidSettings
from fairlead.engine.metrics.collector import Metrics
from fairlead.worker.metrics_http import listen
from tests.engine.counting import Read


@pytest.fixture
async def port() -> AsyncIterator[int]:
    metrics = Metrics()
    metrics.employ(lambda: 0.5)
    server = await listen(metrics, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def test_it_shows_the_metrics_and_nothing_else(port: int) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        answer = await client.get("/metrics?x=1")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert Read(answer.text).value("fairlead_worker_capacity_used_ratio") == 0.5
        assert (await client.head("/metrics")).text == ""
        assert (await client.get("/")).status_code == 404
        assert (await client.post("/metrics", content=b"x")).status_code == 405


@pytest.mark.parametrize("request_", [b"", b"nonsense\r\n\r\n", b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 10_000])
async def test_nonsense_is_answered_or_hung_up_on(port: int, request_: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_)
    writer.write_eof()
    try:
        answer = await reader.read()
    except ConnectionResetError:
        answer = b""
    assert not answer or answer.startswith(b"HTTP/1.1 404")
    writer.close()
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"http://127.0.0.1:{port}/metrics")).status_code == 200


async def test_a_port_that_is_taken_is_refused_by_name(port: int) -> None:
    with pytest.raises(InvalidSettings, match=rf"metrics cannot be shown at 127\.0\.0\.1:{port}: .*metrics_port"):
        await listen(Metrics(), "127.0.0.1", port)
