"""A server on a real socket: its addresses, the heads of requests, proxies, and what it does beside serving."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import SECOND
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import State
from fairlead.core.tenancy import Role
from fairlead.server.server import Binding, Listeners, Server, open_server
from fairlead.server.settings import ServerSettings
from fairlead.storage.memory import MemoryStore


@contextlib.asynccontextmanager
async def running(
    engine: AdminEngine | None = None, settings: ServerSettings | None = None, **binding: Any
) -> AsyncIterator[Server]:
    """A server that runs in this process, on a port of its own."""
    server = await open_server(
        engine or AdminEngine(MemoryStore()), Binding(port=0, grace_seconds=5, **binding), settings
    )
    serving = asyncio.create_task(server.run())
    try:
        yield server
    finally:
        server.leave()
        await serving


async def said_to(server: Server, *parts: bytes) -> bytes:
    """Everything that the server says to someone who says this."""
    url = httpx.URL(server.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    for part in parts:
        writer.write(part)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


# Addresses


@pytest.mark.parametrize(
    ("binding", "said"),
    [
        ({"host": "no.such.host.invalid"}, "'no.such.host.invalid' is not known"),
        ({"host": "192.0.2.1"}, "'192.0.2.1' is not an address of this machine"),
        ({"cert": "none.pem"}, "none.pem for TLS does not exist"),
        ({"key": "none.pem"}, "of no use without a certificate"),
        ({"cert": __file__}, "must be PEM files"),
    ],
)
def test_where_it_cannot_listen_is_one_clear_line(binding: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        Listeners(Binding(port=0, **binding))  # type: ignore[arg-type]


def test_a_port_has_one_listener() -> None:
    first = Listeners(Binding(port=0))
    try:
        with pytest.raises(InvalidSettings, match=f"port {first.port} on 127.0.0.1 is in use"):
            Listeners(Binding(port=first.port))
    finally:
        first.close()


def test_all_addresses_of_a_name_share_a_port() -> None:
    listeners = Listeners(Binding(host="localhost", port=0))
    assert listeners.loopback and listeners.url == f"http://localhost:{listeners.port}"
    assert len({listener.getsockname()[1] for listener in listeners.sockets}) == 1
    listeners.close()
    everywhere = Listeners(Binding(host="0.0.0.0", port=0))
    assert not everywhere.loopback and everywhere.url.startswith("http://127.0.0.1:")
    everywhere.close()


async def test_a_refused_server_gives_its_port_back() -> None:
    with socket.create_server(("0.0.0.0", 0)) as free:
        port = free.getsockname()[1]
    engine = AdminEngine(MemoryStore())
    binding = Binding(host="0.0.0.0", port=port)
    for _ in range(2):
        with pytest.raises(InvalidSettings, match="needs an API key"):
            await open_server(engine, binding)
    await Keyring(engine).create("web", [Role.READ])
    (await open_server(engine, binding))._listeners.close()


# Heads


async def test_a_head_without_an_end_is_cut_off() -> None:
    async with running() as server:
        line = b"x-filler: " + b"x" * 8_000 + b"\r\n"
        answer = await said_to(server, b"GET /docs HTTP/1.1\r\nhost: 127.0.0.1\r\n", *[line] * 100)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431")


async def test_a_single_endless_header_is_cut_off() -> None:
    async with running() as server:
        parts = [b"GET /docs HTTP/1.1\r\nhost: 127.0.0.1\r\nx-filler: ", *[b"x" * 10_000] * 400]
        answer = await said_to(server, *parts)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431")


async def test_a_head_may_be_long_and_come_in_pieces() -> None:
    async with running() as server:
        parts = [
            b"GET /docs HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n",
            *[b"x-some: " + b"x" * 990 + b"\r\n"] * 30,
        ]
        assert (await said_to(server, *parts, b"\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_head_that_takes_for_ever_is_cut_off() -> None:
    async with running(settings=ServerSettings(head_seconds=0.05)) as server:
        answer = await said_to(server, b"GET /docs HTTP/1.1\r\nhost: 127")
        assert answer.startswith(b"HTTP/1.1 408")


async def test_what_is_not_http_gets_a_400() -> None:
    async with running() as server:
        assert (await said_to(server, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")).startswith(b"HTTP/1.1 400")


# Proxies


async def test_behind_a_proxy_it_knows_its_path() -> None:
    engine = AdminEngine(MemoryStore())
    key = (await Keyring(engine).create("web", [Role.ADMIN])).text
    async with running(engine, root_path="/fairlead") as server, httpx.AsyncClient() as client:
        assert server.url.endswith("/fairlead")
        root = server.url.removesuffix("/fairlead")
        answer = await client.post(f"{root}/api/v1/session", json={"key": key})
        assert answer.status_code == 201 and "Path=/fairlead;" in answer.headers["set-cookie"]


async def test_a_proxy_is_believed_only_if_it_is_trusted() -> None:
    engine = AdminEngine(MemoryStore())
    key = (await Keyring(engine).create("web", [Role.ADMIN])).text
    for trusted, secure in (("", False), ("127.0.0.1", True), ("10.0.0.1", False)):
        async with running(engine, trusted_proxies=trusted) as server, httpx.AsyncClient() as client:
            headers = {"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.9"}
            answer = await client.post(f"{server.url}/api/v1/session", json={"key": key}, headers=headers)
            assert ("; Secure" in answer.headers["set-cookie"]) is secure


# Beside serving


async def test_it_answers_alarms_for_workers_that_come_over_http() -> None:
    engine = AdminEngine(MemoryStore(), Settings(sweep_interval=SECOND // 100))
    ready = asyncio.Event()
    engine.observe(lambda occurrence: ready.set() if occurrence.happening == "ready" else None)
    submitted = await engine.submit(Submission(type="echo", parameters=b"{}", delay=SECOND // 50))
    assert submitted.task.state is State.SCHEDULED
    async with running(engine):
        await asyncio.wait_for(ready.wait(), 30)


async def test_a_server_that_leaves_before_it_has_begun_leaves() -> None:
    server = await open_server(AdminEngine(MemoryStore()), Binding(port=0))
    server.leave()
    await asyncio.wait_for(server.run(), 30)


async def test_an_idle_connection_does_not_hold_it_up(tmp_path: Path) -> None:
    async with running() as server:
        url = httpx.URL(server.url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
    assert await reader.read() == b""
    writer.close()
