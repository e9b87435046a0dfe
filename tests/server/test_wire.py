"""The wire guard: what it lets pass and what not, on both ways, and how long and how often one may hold on to it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import ssl
import subprocess
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import uvloop

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.core.tenancy import Role
from fairlead.server.http import connection
from fairlead.server.http.connection import Connection, Socket
from fairlead.server.http.connections import Peers, allow_files, open_files
from fairlead.server.server import Server
from fairlead.server.settings import ServerSettings
from fairlead.storage.memory import MemoryStore
from tests.server.probes import CHUNKED, CHUNKS, HOST, JSON, LAST, LENGTH, REFUSED, TAKEN, TASK, request, submit
from tests.server.test_server import running
from tests.server.test_submit_batcher import Held
from tests.worker.building import eventually

PATIENCE: Final = 60.0
"""Only bounds a failure."""

ELSEWHERE: Final = "192.0.2.1"
"""A proxy that is trusted and nowhere: a server that has one answers everything the ordinary way."""

LIST: Final = b"GET /api/v1/tasks HTTP/1.1"
EVENTS: Final = b"GET /api/v1/events HTTP/1.1"
UPGRADE: Final = (
    b"connection: upgrade",
    b"upgrade: websocket",
    b"sec-websocket-version: 13",
    b"sec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==",
)


@pytest.fixture(params=["the short ways", "the plain way"], autouse=True)
def relayed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether servers find that uvicorn has other parts than those that the short ways build upon."""
    plain: bool = request.param == "the plain way"
    if plain:
        monkeypatch.setattr(connection, "rehearse", refused)
    return plain


def refused() -> None:
    raise RuntimeError("uvicorn is another one today")


class Caller:
    """A connection to a server, of which bytes are written and read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.said = b""

    async def write(self, *parts: bytes) -> bool:
        """Say something; false if the other side has hung up."""
        try:
            for part in parts:
                self.writer.write(part)
                await self.writer.drain()
        except ConnectionError:
            return False
        return not self.reader.at_eof()

    async def until(self, words: bytes) -> bytes:
        """What is answered up to these words."""
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readuntil(words)

    async def rest(self) -> bytes:
        """All that is answered until the other side hangs up."""
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                while piece := await self.reader.read(65_536):
                    self.said += piece
        return self.said


@contextlib.asynccontextmanager
async def calling(server: Server) -> AsyncIterator[Caller]:
    url = httpx.URL(server.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()


async def answer_to(server: Server, *parts: bytes) -> bytes:
    """Everything that is answered to these bytes."""
    async with calling(server) as caller:
        await caller.write(*parts)
        return await caller.rest()


def statuses(said: bytes) -> tuple[int, ...]:
    return tuple(int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", said) if status != b"100")


def problems(said: bytes) -> list[bytes]:
    return re.findall(rb'"type":"/docs#([^"]+)"', said)


def connections(server: Server) -> list[Any]:
    return list(server._uvicorn.server_state.connections)


def guarded(server: Server) -> list[Any]:
    """The same as the guard has them, whatever is behind it."""
    return list(server._peers._peer_of)


# What passes


async def test_both_ways_take_and_refuse_the_same_requests_and_nothing_is_smuggled() -> None:
    wanted = TAKEN | REFUSED
    answered: dict[str, tuple[int, ...]] = {}
    ordinary: dict[str, tuple[int, ...]] = {}
    reasons: dict[str, tuple[list[bytes], list[bytes]]] = {}
    async with running() as short, running(trusted_proxies=ELSEWHERE) as other:
        for name, (raw, _) in wanted.items():
            here, there = await asyncio.gather(answer_to(short, raw), answer_to(other, raw))
            answered[name], ordinary[name] = statuses(here), statuses(there)
            reasons[name] = problems(here), problems(there)
        stored = [task.spec.type for task in await short.state.engine.find(limit=1_000)]
    assert answered == {name: expected for name, (_, expected) in wanted.items()}
    assert ordinary == answered
    assert {name: here for name, (here, _) in reasons.items()} == {name: there for name, (_, there) in reasons.items()}
    # Every refusal says why, and what is stored is what was answered.
    assert [name for name in REFUSED if len(reasons[name][0]) != sum(status >= 400 for status in answered[name])] == []
    assert stored == ["echo"] * sum(expected.count(201) for _, expected in wanted.values())


def test_there_are_enough_of_them() -> None:
    assert len(TAKEN) + len(REFUSED) >= 60


async def test_pieces_of_any_size_are_read_as_the_whole_is() -> None:
    async with running() as server:
        for name in (
            "plain",
            "chunked",
            "many chunks",
            "absolute form",
            "a trailer",
            "two hosts",
            "garbage behind two",
        ):
            raw, expected = (TAKEN | REFUSED)[name]
            async with calling(server) as caller:
                for byte in raw:
                    caller.writer.write(bytes((byte,)))
                    # Each byte is read by itself, as far as the kernel lets it.
                    await asyncio.sleep(0)
                assert statuses(await caller.rest()) == expected, name


async def test_a_head_that_is_too_large_is_refused_though_its_pieces_are_not() -> None:
    raw = submit(b"x-name: " + b"x" * 33_000)
    half = len(raw) // 2
    async with running() as server, calling(server) as caller:
        await caller.write(raw[:half])
        await eventually(lambda: any(each._in_head for each in guarded(server)))
        await caller.write(raw[half:])
        assert statuses(await caller.rest()) == (431,)


async def test_the_key_of_a_trailer_opens_nothing_and_that_of_the_head_counts() -> None:
    engine = AdminEngine(MemoryStore())
    key = (await Keyring(engine).create("web", [Role.ADMIN])).text.encode()
    shown = b"authorization: Bearer " + key
    async with running(engine) as server:
        trailing = request(HOST, JSON, CHUNKED, LAST, body=CHUNKS[:-2] + shown + b"\r\n\r\n")
        assert statuses(await answer_to(server, trailing)) in ((400,), (401,))
        assert statuses(await answer_to(server, submit(shown, b"authorization: Bearer fl_none_none"))) == (400,)
        assert statuses(await answer_to(server, submit(shown))) == (201,)
        assert len(await engine.find()) == 1


async def test_a_host_in_the_target_counts_for_whoever_needs_no_key() -> None:
    async with running() as server:
        absolute = b"POST http://queue.example.com/api/v1/tasks HTTP/1.1"
        said = await answer_to(server, request(HOST, JSON, LENGTH, LAST, start=absolute, body=TASK))
        assert problems(said) == [b"wrong-origin"] and b"queue.example.com" in said


async def test_what_a_connection_has_said_before_excuses_nothing() -> None:
    again = request(HOST, JSON, LENGTH, body=TASK)
    answered: dict[str, tuple[int, ...]] = {}
    async with running() as server:
        for name, (raw, _) in (TAKEN | REFUSED).items():
            async with calling(server) as caller:
                for _ in range(2):
                    await caller.write(again)
                    assert statuses(await caller.until(b'"existing":')) == (201,)
                await caller.write(raw)
                answered[name] = statuses(await caller.rest())
    assert answered == {name: expected for name, (_, expected) in (TAKEN | REFUSED).items()}


async def test_the_same_headers_are_looked_at_again_under_another_version() -> None:
    lines = HOST, JSON, CHUNKED
    older = request(*lines, start=b"POST /api/v1/tasks HTTP/1.0", body=CHUNKS)
    async with running() as server:
        assert statuses(await answer_to(server, request(*lines, body=CHUNKS), older)) == (201, 400)


async def test_the_host_in_a_target_counts_each_time_that_it_is_called() -> None:
    def calls(target: bytes, *last: bytes) -> bytes:
        return request(HOST, JSON, LENGTH, *last, start=b"POST %b HTTP/1.1" % target, body=TASK)

    own, foreign = b"http://127.0.0.1/api/v1/tasks", b"http://queue.example.com/api/v1/tasks"
    targets = own, own, foreign, foreign, b"/api/v1/tasks", foreign, own
    async with running() as server:
        said = await answer_to(server, *map(calls, targets), calls(b"/api/v1/tasks", LAST))
    assert statuses(said) == (201, 201, 403, 403, 201, 403, 201, 201)


async def test_a_request_that_was_not_answered_yet_is_answered_before_what_follows_is_refused() -> None:
    store = Held()
    async with running(AdminEngine(store)) as server, calling(server) as caller:
        await caller.write(request(HOST, JSON, LENGTH, body=TASK), b"\x00garbage")
        await store.asked.wait()
        await caller.write(b"more garbage")
        store.free.set()
        assert statuses(await caller.rest()) == (201, 400)


async def test_what_was_accepted_is_answered_though_the_body_behind_it_breaks_off() -> None:
    store = Held()
    async with running(AdminEngine(store)) as server, calling(server) as caller:
        broken = request(HOST, JSON, CHUNKED, body=b'5\r\n{"tas\r\nzz')
        await caller.write(request(HOST, JSON, LENGTH, body=TASK) + broken)
        await store.asked.wait()
        store.free.set()
        assert statuses(await caller.rest()) == (201, 400)
        assert len(await server.state.engine.find()) == 1


async def test_a_body_that_breaks_while_it_is_read_is_refused() -> None:
    async with running() as server:
        for path in (b"/api/v1/tasks", b"/api/v1/tasks/batch"):
            async with calling(server) as caller:
                await caller.write(request(HOST, JSON, CHUNKED, start=b"POST %b HTTP/1.1" % path, body=b"5\r\n"))
                await eventually(lambda: bool(server._uvicorn.server_state.tasks), "the reading")
                await caller.write(b'{"tasXX')
                assert statuses(await caller.rest()) == (400,)


async def test_an_answer_that_came_early_is_the_only_one_for_a_body_that_breaks() -> None:
    async with running() as server, calling(server) as caller:
        await caller.write(request(HOST, CHUNKED, start=LIST))
        await caller.until(b"}")
        await caller.write(b"zz\r\n")
        assert await caller.rest() == b""


async def test_a_websocket_comes_after_all_that_is_before_it() -> None:
    store = Held()
    async with running(AdminEngine(store)) as server, calling(server) as caller:
        await caller.write(request(HOST, JSON, LENGTH, body=TASK) + request(HOST, *UPGRADE, start=b"GET /ws HTTP/1.1"))
        await store.asked.wait()
        store.free.set()
        assert statuses(await caller.rest()) == (201, 400)


# How much is kept


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    "begun",
    [
        request(HOST, JSON, CHUNKED, body=CHUNKS[:-2] + b"x-some: "),
        request(HOST, JSON, CHUNKED, body=CHUNKS[:-2]),
        request(HOST, JSON, CHUNKED, body=b"15;"),
        request(HOST, b"x-some: ")[:-4],
        b"\r\n",
    ],
    ids=["a trailer", "the name of a trailer", "an extension", "a header", "a name"],
)
async def test_thirty_megabytes_of_what_is_no_body_take_no_memory(begun: bytes) -> None:
    async with running() as server, calling(server) as caller:
        await caller.write(begun)
        piece = b"x" * 262_144
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(120):
            if not await caller.write(piece):
                break
        assert tracemalloc.get_traced_memory()[1] - before < 4_000_000
        assert statuses(await caller.rest()) in ((400,), (431,), ())
        assert await server.state.engine.find() == []


# How long one may hold on to a connection

BRIEF: Final = ServerSettings(idle_seconds=0.2, head_seconds=0.2, body_seconds=0.2, rate_limit=0)


@pytest.mark.parametrize(
    ("begun", "trickle"),
    [
        (b"", b""),
        (b"", b"\r\n"),
        (b"GET / HTTP/1.1\r\nx-some: ", b"x"),
        (request(HOST, start=LIST), b"\r\n"),
        (request(HOST, b"content-length: 1000000", start=LIST), b"x"),
        (request(HOST, CHUNKED, start=LIST, body=b"fffff;"), b"x"),
        (request(HOST, JSON, b"content-length: 100000"), b" "),
        (request(HOST, JSON, CHUNKED), b"1\r\n \r\n"),
    ],
    ids=[
        "nothing", "empty lines", "a head", "empty lines behind a request", "a body that nobody reads",
        "chunks that nobody reads", "a body", "chunks",
    ],
)  # fmt: skip
async def test_no_bytes_but_whole_requests_hold_a_connection(begun: bytes, trickle: bytes) -> None:
    async with running(settings=BRIEF) as server, calling(server) as caller:
        ending = asyncio.create_task(caller.rest())
        await caller.write(begun)
        while not ending.done():
            if not await caller.write(trickle):
                break
            await asyncio.sleep(0)
        await ending
        await eventually(lambda: not connections(server), "the end")


async def test_who_waits_for_an_answer_may_wait_longer_than_who_is_idle() -> None:
    store = Held()
    async with running(AdminEngine(store), BRIEF) as server, calling(server) as caller, calling(server) as idle:
        await caller.write(submit())
        await store.asked.wait()
        # The clock of one that is idle runs out meanwhile.
        assert await idle.rest() == b""
        store.free.set()
        assert statuses(await caller.rest()) == (201,)


async def test_who_does_not_read_answers_is_hung_up_on() -> None:
    async with running(settings=BRIEF) as server, calling(server) as caller:
        caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
        (connection,) = await found(server)
        pages = request(HOST, start=b"GET /openapi.json HTTP/1.1") * 400
        caller.writer.write(pages)
        await eventually(lambda: connection.flow.write_paused or not connections(server), "that it is full")
        await eventually(lambda: not connections(server), "the end")


async def found(server: Server) -> list[Connection]:
    await eventually(lambda: bool(connections(server)), "the connection")
    return connections(server)


async def test_a_websocket_outlives_the_clock_of_the_connection_that_it_was(relayed: bool) -> None:
    async with running(settings=BRIEF) as server, calling(server) as caller, calling(server) as idle:
        await caller.write(request(HOST, *UPGRADE, start=b"GET /ws HTTP/1.1"))
        assert statuses(await caller.until(b"\r\n\r\n")) == (101,)
        await idle.rest()
        assert [isinstance(one, Socket) for one in connections(server)] == [not relayed]
        assert not connections(server)[0].transport.is_closing()


# How many there may be


async def test_many_idle_connections_shut_nobody_out() -> None:
    few = ServerSettings(connection_limit=100, connection_limit_per_peer=50, rate_limit=0)
    async with running(settings=few) as server, contextlib.AsyncExitStack() as open_ones:
        for _ in range(260):
            await open_ones.enter_async_context(calling(server))
        assert statuses(await answer_to(server, submit())) == (201,)
        assert len(connections(server)) <= 50


async def test_one_that_is_too_many_is_told_so_when_none_is_idle() -> None:
    few = ServerSettings(connection_limit=20, connection_limit_per_peer=3, rate_limit=0)
    async with running(settings=few) as server, contextlib.AsyncExitStack() as open_ones:
        callers = [await open_ones.enter_async_context(calling(server)) for _ in range(3)]
        for caller in callers[:2]:
            await caller.write(request(HOST, start=EVENTS))
            await caller.until(b"retry: ")
        await callers[2].write(request(HOST, *UPGRADE, start=b"GET /ws HTTP/1.1"))
        await callers[2].until(b"\r\n\r\n")
        said = await answer_to(server)
        assert problems(said) == [b"too-many-connections"] and b"retry-after: 5" in said
        callers[0].writer.close()
        await eventually(lambda: len(connections(server)) == 2, "the leaving")
        assert statuses(await answer_to(server, submit())) == (201,)
        assert await server.state.engine.find() != []


async def test_a_proxy_that_is_trusted_has_as_many_as_there_are() -> None:
    few = ServerSettings(connection_limit=6, connection_limit_per_peer=2, rate_limit=0)
    async with running(settings=few, trusted_proxies="127.0.0.1") as server, contextlib.AsyncExitStack() as open_ones:
        for _ in range(5):
            caller = await open_ones.enter_async_context(calling(server))
            await caller.write(request(HOST, start=LIST))
            await caller.until(b"}")
        assert len(connections(server)) == 5


class Peer:
    """A connection as its server counts it."""

    def __init__(self, address: str, ends: float) -> None:
        self.client = (address, 1)
        self.ends = ends
        self.transport: Any = self
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def time_over(self) -> None:
        self.aborted = True


BUSY: Final = float("inf")


async def test_room_is_made_by_who_has_most_and_was_idle_for_longest() -> None:
    peers = Peers(ServerSettings(connection_limit=6, connection_limit_per_peer=4))
    greedy = [Peer("192.0.2.1", ends) for ends in (3, 2, BUSY)]
    modest = [Peer("192.0.2.2", 1), Peer("192.0.2.2", BUSY)]
    assert all(map(peers.enter, [*greedy, *modest, Peer("192.0.2.3", BUSY)]))
    for number, gone in enumerate(([greedy[1]], [greedy[0], greedy[1]], [greedy[0], greedy[1], modest[0]])):
        assert peers.enter(Peer(f"198.51.100.{number}", BUSY))
        assert [one for one in (*greedy, *modest) if one.aborted] == gone
    assert not peers.enter(Peer("198.51.100.9", BUSY))


async def test_an_address_is_a_network_of_ipv6_and_the_same_however_it_is_written() -> None:
    peers = Peers(ServerSettings(connection_limit=20, connection_limit_per_peer=1))
    assert peers.enter(Peer("2001:db8::1", BUSY)) and not peers.enter(Peer("2001:db8::2", BUSY))
    assert peers.enter(Peer("2001:db8:0:1::1", BUSY))
    assert peers.enter(Peer("192.0.2.1", BUSY)) and not peers.enter(Peer("::ffff:192.0.2.1", BUSY))


async def test_no_address_can_have_all_of_them_and_the_log_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    peers = Peers(ServerSettings(connection_limit=10, connection_limit_per_peer=500))
    assert [peers.enter(Peer("192.0.2.1", BUSY)) for _ in range(8)] == [True] * 5 + [False] * 3
    (record,) = caplog.records
    assert "refusing a connection from 192.0.2.1: the limit is 10 connections, 5 of one address" in record.getMessage()


def test_there_are_no_more_than_there_may_be_files() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert open_files() == 256
        peers = Peers(ServerSettings())
        assert peers.limit < 256 and peers.limit_per_peer <= peers.limit // 2
        allow_files(400)
        assert open_files() >= 400
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# TLS


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """A certificate of our own for 127.0.0.1, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
         "-subj", "/CN=fairlead test", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def run_on(loop: Callable[[], asyncio.AbstractEventLoop], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_over_tls_those_who_do_not_shake_hands_count_and_shut_nobody_out(
    certificate: tuple[str, str], loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    cert, key = certificate

    async def submit_over_tls(server: Server) -> tuple[int, ...]:
        url = httpx.URL(server.url)
        context = ssl.create_default_context(cafile=cert)
        reader, writer = await asyncio.open_connection(url.host, url.port, ssl=context)
        writer.write(submit())
        said = await Caller(reader, writer).rest()
        writer.close()
        return statuses(said)

    async def work() -> None:
        few = ServerSettings(connection_limit=20, connection_limit_per_peer=10, rate_limit=0, head_seconds=0.5)
        async with running(settings=few, cert=cert, key=key) as server, contextlib.AsyncExitStack() as open_ones:
            callers = [await open_ones.enter_async_context(calling(server)) for _ in range(60)]
            assert await submit_over_tls(server) == (201,)
            await callers[-1].write(b"GET / HTTP/1.1\r\n\r\n")
            for caller in callers:
                # Made room, spoke no TLS, or took too long.
                await caller.rest()
            assert len(server._peers) == 0
            assert await submit_over_tls(server) == (201,)

    run_on(loop, work)


def test_a_server_leaves_though_a_handshake_is_under_way(certificate: tuple[str, str]) -> None:
    async def work() -> None:
        async with running(cert=certificate[0], key=certificate[1]) as server, calling(server) as caller:
            await eventually(lambda: len(server._peers) == 1, "the handshake")
            server.leave()
            assert await caller.rest() == b""

    run_on(asyncio.new_event_loop, work)
