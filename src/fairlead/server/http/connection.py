"""The protocol of a connection: uvicorn's, under the guard, with short ways.

It builds upon parts of uvicorn that are no public ones. `rehearse` tries them, and `protocols` has another way.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from fairlead.server.http.connections import NEVER, Peers
from fairlead.server.http.guarded_connection import GuardedConnection
from fairlead.server.http.problems import Refusal
from fairlead.server.http.response import SAID, Arrival, Direct, DirectAnswers, open_direct
from fairlead.server.settings import ServerSettings


class Connection(GuardedConnection, HttpToolsProtocol):
    """Gives each request its short way, and single submits that have arrived whole a shorter one."""

    _feeding = False
    """Whether bytes are being read, so that the rest of a request may be among them."""
    _held: tuple[Direct, Callable[[], None]] | None = None
    """A request that waits to be whole, and what starts it if the bytes at hand end before it is."""

    def __init__(self, *arguments: Any, together: DirectAnswers, peers: Peers, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._together = together
        # Worked out anew whenever it is asked for.
        self._version_of_asgi = self.config.asgi_version
        self._peers = peers

    def handle_websocket_upgrade(self) -> None:
        self._peers.leave(self)
        HttpToolsProtocol.handle_websocket_upgrade(self)

    def data_received(self, data: bytes) -> None:
        self._feeding = True
        super().data_received(data)
        self._feeding = False
        if self._held is not None:
            (_, start), self._held = self._held, None
            start()

    # A scope and a cycle as uvicorn makes them, which takes three times the steps.

    def take_head(self, version: str, method: bytes, said: dict[bytes, bytes]) -> None:
        path, raw_path, query = self.target
        scope: Any = {
            "type": "http",
            "asgi": {"version": self._version_of_asgi, "spec_version": "2.3"},
            "http_version": version,
            "method": method.decode("ascii"),
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
            "path": self.root_path + path,
            "raw_path": self.root_path.encode("ascii") + raw_path,
            "query_string": query,
            "headers": self.headers,
            "state": self.app_state.copy(),
            SAID: said,
        }
        self.scope = scope
        if not self._switches:
            self._begin(version == "1.1" and self.parser.should_keep_alive(), said.get(b"expect", b""))

    def _begin(self, keep_alive: bool, expected: bytes) -> None:
        """Have the request answered that has just been read, when all before it are."""
        waits = self.answering
        arrival: Any = Arrival()
        self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=arrival,
            expect_100_continue=expected.lower() == b"100-continue",
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )
        if waits:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))
        else:
            self._start_asgi_task(self.cycle, self.app)

    def take_body(self, body: bytes) -> None:
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

    def end_body(self) -> None:
        cycle = self.cycle
        if cycle.response_complete:
            self.wait()
            return
        cycle.more_body = False
        cycle.message_event.set()
        if self._held is not None:
            (request, start), self._held = self._held, None
            self._join(request, start)

    # Requests

    @property
    def answering(self) -> bool:
        # uvicorn says that there always is a cycle, but before the first request there is none.
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    @property
    def answer_begun(self) -> bool:
        return self.cycle.response_started

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        unread = self.flow.write_paused
        if not unread:
            self.ends = NEVER
        request = open_direct(cycle)
        # While the caller leaves earlier answers unread, none goes by directly.
        if unread or not self._together.takes(request.scope):
            super()._start_asgi_task(cycle, app)
            return
        start = functools.partial(self._start_alone, cycle, app)
        if not cycle.more_body:
            self._join(request, start)
        elif self._feeding:
            self._held = request, start
        else:
            start()

    def _start_alone(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Have a request answered by itself, though it could have been answered with others."""
        super()._start_asgi_task(cycle, app)

    def _join(self, request: Direct, otherwise: Callable[[], None]) -> None:
        task = self._together.add(request, otherwise)
        if task is not None:
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    def on_response_complete(self) -> None:
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        if self._last_word is None:
            self.flow.resume_reading()
        self.all_answered()

    def break_off(self, refusal: Refusal) -> None:
        self._held = None
        super().break_off(refusal)

    def withdraw(self) -> bool:
        cycle = self.cycle
        cycle.disconnected = True
        cycle.message_event.set()
        if self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
            return True
        return False

    # uvicorn sets a timer after each answer and takes it back with whatever comes next. Here a request takes it back,
    # nothing less, and one timer of the server looks after all connections.

    def _unset_keepalive_if_required(self) -> None:
        """There is no timer to take back."""


class Socket(WebSocketsSansIOProtocol):
    """The protocol of a WebSocket, which counts as the connection that it was."""

    ends = NEVER

    def __init__(self, *arguments: Any, peers: Peers, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._peers = peers

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._peers.follow(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers.leave(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.ends = self.loop.time() + self._peers.settings.idle_seconds

    def resume_writing(self) -> None:
        super().resume_writing()
        self.ends = NEVER

    def time_over(self) -> None:
        """Hang up on who does not read what it is told."""
        self.transport.abort()


# Trying it


class _Stage(asyncio.Transport):
    """The transport of a rehearsal."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""

    def write(self, data: Any) -> None:
        self.said += data

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    def resume_reading(self) -> None:
        """Nothing comes by itself."""

    def close(self) -> None:
        """It ends when it is over."""


class _Rehearsal(Connection):
    """A connection whose requests are answered by hand."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.begun: list[Direct] = []

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.begun.append(open_direct(cycle))


_METHODS: Final = {
    HttpToolsProtocol: ("_start_asgi_task", "on_response_complete", "handle_websocket_upgrade", "shutdown"),
    RequestResponseCycle: ("run_asgi",),
    WebSocketsSansIOProtocol: (
        "connection_made", "connection_lost", "data_received", "pause_writing", "resume_writing", "shutdown",
    ),
}  # fmt: skip
_PAIR: Final = b"POST /one HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbodyGET /two HTTP/1.1\r\nhost: a\r\n\r\n"


def rehearse() -> None:
    """Raise an error if uvicorn's parts are not those that this builds upon: two requests are read and answered."""
    for part, names in _METHODS.items():
        for name in names:
            getattr(part, name)
    together: Any = None
    stage, peers = _Stage(), Peers(ServerSettings())
    config = uvicorn.Config(_nobody, ws="none", lifespan="off", log_config=None)
    connection = _Rehearsal(config=config, server_state=ServerState(), app_state={}, together=together, peers=peers)
    connection.connection_made(stage)
    for at in range(0, len(_PAIR), 60):
        connection.data_received(_PAIR[at : at + 60])
    for path, body in (("/one", b"body"), ("/two", b"")):
        direct = connection.begun.pop()
        if connection.begun or (direct.scope["path"], direct.body()) != (path, body):
            raise RuntimeError("requests are read otherwise")
        direct.answer(200, b"", body)
    connection.connection_lost(None)
    if stage.said.count(b"HTTP/1.1 200 OK\r\ncontent-length: ") != 2 or connection.answering:
        raise RuntimeError("requests are answered otherwise")


async def _nobody(scope: Any, receive: Any, send: Any) -> None:
    """The application of a rehearsal, which is not called."""
