"""The way to a server: connections are kept and not mixed up, and what goes wrong is a store out of reach."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fairlead.client.http.connections import _Stream
from fairlead.client.http.open import open_transport
from fairlead.client.http.transport import Address, Broken, Reply, Transport
from fairlead.core.errors import InvalidSettings, StoreUnavailable
from fairlead.engine.runtime.inline import run_inline
from tests.client.scripted import Asked, Scripted, said
from tests.worker.building import PATIENCE
from tests.worker.builtin.servers import make_certificate, silent_port

T = TypeVar("T")


class Caller:
    """A transport of either kind, asked from synchronous code."""

    def __init__(self, *, blocking: bool) -> None:
        self._blocking = blocking
        self._runner = asyncio.Runner()
        self._opened: list[Transport] = []

    def open(self, url: str, key: str | None = None) -> Transport:
        async def opened() -> Transport:
            return open_transport(Address(url, key), blocking=self._blocking)

        self._opened.append(self.run(opened()))
        return self._opened[-1]

    def run(self, asking: Awaitable[T]) -> T:
        async def asked() -> T:
            return await asking

        return run_inline(asked()) if self._blocking else self._runner.run(asked())

    def close(self) -> None:
        for transport in self._opened:
            self.run(transport.close())
        self._runner.close()


@pytest.fixture(params=[True, False], ids=["blocking", "streaming"])
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    caller = Caller(blocking=request.param)
    yield caller
    caller.close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def wait_for_farewell(transport: Any) -> None:
    """Until the news has come that the server has ended the one connection that there is."""
    (connection,) = transport._idle._connections
    deadline = time.monotonic() + PATIENCE
    while connection.is_alive():
        assert time.monotonic() < deadline


def echo(asked: Asked) -> bytes:
    return said(asked.body)


def test_requests_go_in_one_piece_each_over_one_connection(caller: Caller) -> None:
    with Scripted(echo) as server:
        transport = caller.open(f"{server.url}/at/a/path/", "key")
        for number in range(3):
            assert caller.run(transport.ask("POST", "/x", b"%d" % number)) == Reply(200, b"%d" % number)
        assert len(server.connections) == 1
        assert [piece[-1:] for piece in server.pieces] == [b"0", b"1", b"2"]
        asked = server.requests[0]
        assert asked.line == "POST /at/a/path/x HTTP/1.1"
        assert (asked.headers["host"], asked.headers["authorization"]) == (f"127.0.0.1:{server.port}", "Bearer key")


def test_a_large_body_and_a_large_reply_arrive(caller: Caller) -> None:
    with Scripted(echo) as server:
        body = b"x" * 5_000_000
        assert caller.run(caller.open(server.url).ask("POST", "/x", body)) == Reply(200, body)


@pytest.mark.parametrize("farewell", [said(b"1", "Connection: close"), said(b"1") + b"what nobody asked for"])
def test_a_connection_that_cannot_go_on_is_not_used_again(caller: Caller, farewell: bytes) -> None:
    with Scripted(lambda asked: farewell) as server:
        transport = caller.open(server.url)
        for _ in range(2):
            assert caller.run(transport.ask("GET", "/x")).body == b"1"
        assert len(server.connections) == 2


def test_a_connection_that_the_server_has_ended_is_not_used_again(caller: Caller) -> None:
    with Scripted(echo) as server:
        transport = caller.open(server.url)
        caller.run(transport.ask("GET", "/x"))
        server.hang_up()
        wait_for_farewell(transport)
        assert caller.run(transport.ask("GET", "/x")).status == 200
        assert len(server.connections) == 2


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n", b"not HTTP\r\n\r\n"])
def test_a_server_that_hangs_up_has_not_answered(caller: Caller, answer: bytes) -> None:
    told: list[bytes] = []

    def once(asked: Asked) -> bytes:
        told.append(answer)
        server.connections[0].sendall(answer)
        return b""

    with Scripted(once) as server:
        with pytest.raises(StoreUnavailable, match="does not answer"):
            caller.run(caller.open(server.url).ask("POST", "/x", b"{}"))
        # Whether it did what it was asked is not known, so it is not asked again.
        assert len(told) == 1


def test_a_silent_server_is_not_waited_for_for_ever(caller: Caller) -> None:
    with silent_port() as port, pytest.raises(StoreUnavailable, match="does not answer"):
        caller.run(caller.open(f"http://127.0.0.1:{port}").ask("GET", "/x", patience=0.05))


@pytest.mark.parametrize("url", ["http://a..b", f"http://{'a' * 70}.invalid", "http://127.0.0.1:9"])
def test_a_host_that_is_none_is_a_server_out_of_reach(caller: Caller, url: str) -> None:
    with pytest.raises(StoreUnavailable, match="does not answer"):
        caller.run(caller.open(url).ask("GET", "/x"))


def test_what_was_closed_says_so(caller: Caller) -> None:
    with Scripted(echo) as server:
        transport = caller.open(server.url)
        caller.run(transport.ask("GET", "/x"))
        caller.run(transport.close())
        with pytest.raises(StoreUnavailable, match="was closed"):
            caller.run(transport.ask("GET", "/x"))


def test_a_server_under_tls_is_trusted_as_the_environment_says(
    caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path)
    with Scripted(echo, certificate.server) as server:
        with pytest.raises(StoreUnavailable, match="certificate"):
            caller.run(caller.open(server.url).ask("GET", "/x"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        transport = caller.open(server.url)
        for _ in range(2):
            assert caller.run(transport.ask("POST", "/x", b"1")) == Reply(200, b"1")
        assert len(server.connections) == 1


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_proxy_that_the_environment_names_is_used(caller: Caller, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # HTTP_PROXY is not believed where it could be a header of a request to a CGI program.
    monkeypatch.delenv("REQUEST_METHOD", raising=False)
    with Scripted(echo) as proxy, Scripted(echo) as server:
        monkeypatch.setenv(name, proxy.url)
        assert caller.run(caller.open("http://queue.invalid").ask("POST", "/x", b"1")) == Reply(200, b"1")
        assert proxy.requests[0].line == "POST http://queue.invalid/x HTTP/1.1"
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert caller.run(caller.open(server.url).ask("POST", "/x", b"2")) == Reply(200, b"2")
        assert (len(proxy.requests), len(server.requests)) == (1, 1)


@pytest.mark.parametrize("key", ["two words", "secret\n", "secret\r\nevil: 1", "schlüssel"])
def test_a_key_that_is_none_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        open_transport(Address("http://host", key), blocking=True)
    assert "secret" not in str(refused.value)


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="port"):
        open_transport(Address("http://host:99999"), blocking=True)


def test_threads_share_a_transport_and_have_their_own_answers() -> None:
    with Scripted(echo) as server, ThreadPoolExecutor(8) as threads:
        transport = open_transport(Address(server.url), blocking=True)
        bodies = [b"%d" % number for number in range(400)]
        replies = threads.map(lambda body: run_inline(transport.ask("POST", "/x", body)), bodies)
        assert [reply.body for reply in replies] == bodies
        assert len(server.connections) <= 8
        run_inline(transport.close())


async def test_coroutines_share_a_transport_and_have_their_own_answers() -> None:
    with Scripted(echo) as server:
        transport = open_transport(Address(server.url), blocking=False)
        bodies = [b"%d" % number for number in range(300)]
        replies = await asyncio.gather(*(transport.ask("POST", "/x", body) for body in bodies))
        assert [reply.body for reply in replies] == bodies
        assert len(server.connections) <= 100
        await transport.close()


async def test_who_is_cancelled_leaves_no_answer_to_others() -> None:
    held, go = threading.Event(), threading.Event()

    def hold(asked: Asked) -> bytes:
        if asked.body == b"held":
            held.set()
            go.wait(PATIENCE)
        return said(asked.body)

    with Scripted(hold) as server:
        transport = open_transport(Address(server.url), blocking=False)
        asking = asyncio.create_task(transport.ask("POST", "/x", b"held"))
        await asyncio.to_thread(held.wait, PATIENCE)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        go.set()
        assert (await transport.ask("POST", "/x", b"other")).body == b"other"
        await transport.close()


async def test_closing_ends_what_is_under_way() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport = open_transport(Address(f"http://127.0.0.1:{listener.getsockname()[1]}"), blocking=False)
        asking = asyncio.create_task(transport.ask("GET", "/x"))
        connection, _ = await asyncio.to_thread(listener.accept)
        await asyncio.to_thread(connection.recv, 100)
        await transport.close()
        with pytest.raises(StoreUnavailable):
            await asking
        connection.close()


class Slow(asyncio.Transport):
    """A connection on which a request is still being sent."""

    unsent = 100
    aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.aborted = True


async def test_patience_is_with_silence_and_not_with_the_whole() -> None:
    stream = _Stream()
    with socket.socket() as unused:
        transport = Slow({"socket": unused})
        stream.connection_made(transport)
    asking = asyncio.create_task(stream.ask(b"a request", 1_000))
    await asyncio.sleep(0)

    def look_after(seconds: float) -> None:
        stream._moved -= seconds
        stream._look()

    look_after(900)
    transport.unsent = 50
    look_after(200)
    stream.data_received(said(b"slowly")[:-1])
    look_after(900)
    await asyncio.sleep(0)
    assert not asking.done()
    look_after(200)
    assert transport.aborted
    with pytest.raises(Broken, match="1000 s"):
        await asking
