"""Which protocols a server's connections have: the short ways, or the plain one with a uvicorn that has other parts.

The plain way leads requests on to whatever protocol uvicorn has. It needs nothing of it but what is public: that a
protocol is made of a configuration, is told what has come, and calls an application in the way of ASGI. Every request
passes the guard first and is then written anew, one at a time, so that the protocol behind it reads nothing that was
not understood here. That takes more processor time, and single submits are not answered together.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import uvicorn
from msgspec import Struct
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.server.http.connections import NEVER, Peers
from fairlead.server.http.guarded_connection import GuardedConnection, request_parser
from fairlead.server.http.response import DirectAnswers

log = logging.getLogger("fairlead.server")

SUPPORTED: Final = ">=0.47,<0.55"
"""The versions of uvicorn whose parts are known, as the extra says it."""

_BEHIND: Final = "auto"
"""What uvicorn itself would choose, for HTTP and for WebSockets."""
_LATER: Final = 5
"""How many seconds the clock of uvicorn is behind that of `Peers`, which counts."""


class Protocols(Struct, frozen=True):
    """What uvicorn makes connections of."""

    app: ASGIApp
    http: Callable[..., Any]
    ws: Any
    keep_alive: int
    """After how many idle seconds uvicorn itself may end a connection."""


def protocols_of(app: ASGIApp, together: DirectAnswers, peers: Peers) -> Protocols:
    """The short ways if uvicorn has the parts that they build upon."""
    keep_alive = math.ceil(peers.settings.idle_seconds) + _LATER
    try:
        from fairlead.server.http.connection import Connection, Socket, rehearse

        rehearse()
    except Exception as error:
        _warn(f"{type(error).__name__}: {error}")
        behind = uvicorn.Config(app, http=_BEHIND, lifespan="off", log_config=None)
        behind.load()
        relay = functools.partial(Relay, behind=behind.http_protocol_class, peers=peers)
        return Protocols(Relayed(app), relay, _BEHIND, keep_alive)
    connection = functools.partial(Connection, together=together, peers=peers)
    return Protocols(app, connection, functools.partial(Socket, peers=peers), keep_alive)


@functools.cache
def _warn(reason: str) -> None:
    """Log it once."""
    log.warning(
        "uvicorn %s has other parts than this version of fairlead builds upon (%s); requests are served all the same, "
        "but take more processor time: install 'uvicorn%s'",
        uvicorn.__version__,
        reason,
        SUPPORTED,
    )


_KEY: Final = "fairlead.relay"
"""Where the state of a scope has the connection that the request came by."""


class Relay(GuardedConnection):
    """A connection in front of a protocol of uvicorn's."""

    def __init__(
        self, *, behind: Callable[..., Any], peers: Peers, server_state: Any, app_state: dict[str, Any], **options: Any
    ) -> None:
        """`behind` makes the protocol behind this one, of what uvicorn gives to a protocol."""
        self.loop = asyncio.get_running_loop()
        self.logger = logging.getLogger("uvicorn.error")
        self.parser = request_parser(self)
        self.server_state = server_state
        self._peers = peers
        self._behind = behind(server_state=server_state, app_state={**app_state, _KEY: self}, **options)
        self._waiting: deque[bytearray] = deque()
        """Requests behind the one that is being answered, the last of them perhaps not whole."""
        self.has_left = False
        """Whether the protocol behind was told that its caller has left, and has nothing more to say."""
        self._busy = self._begun = self._chunked = self._is_socket = False
        self._pauses: set[object] = set()
        """Who wants nothing more to come for now."""

    # The connection

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.client = transport.get_extra_info("peername")
        self.scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"
        self._behind.connection_made(_Way(self, transport))
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lose(exc)

    def _lose(self, exc: Exception | None) -> None:
        """Tell the protocol behind that its caller has left."""
        if not self.has_left:
            self.has_left = True
            self._behind.connection_lost(exc)

    def eof_received(self) -> bool | None:
        ends: bool | None = self._behind.eof_received()
        return ends

    def data_received(self, data: bytes) -> None:
        if self._is_socket:
            self._behind.data_received(data)
        else:
            super().data_received(data)

    def pause_writing(self) -> None:
        self._behind.pause_writing()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._behind.resume_writing()
        super().resume_writing()

    def time_over(self) -> None:
        if self._is_socket:
            self.transport.abort()
        else:
            super().time_over()

    def follow(self, protocol: Any) -> None:
        """Another protocol takes over: the request asked for a WebSocket."""
        self._behind = protocol
        self._is_socket = True
        self.ends = NEVER

    def pause(self, who: object) -> None:
        """Let nothing more come until all who said so want more."""
        if not self._pauses:
            self.transport.pause_reading()
        self._pauses.add(who)

    def resume(self, who: object) -> None:
        if who in self._pauses:
            self._pauses.discard(who)
            if not self._pauses:
                self.transport.resume_reading()

    # Requests

    @property
    def answering(self) -> bool:
        return self._busy or self._is_socket

    @property
    def answer_begun(self) -> bool:
        return self._begun

    def take_head(self, version: str, method: bytes, said: dict[bytes, bytes]) -> None:
        self._chunked = b"transfer-encoding" in said
        # Nothing is there either, and every protocol can read it.
        target = b"/*" if self.url == b"*" else self.url
        lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
        lines += [b"%b: %b" % header for header in self.headers]
        head = b"\r\n".join((*lines, b"", b""))
        if self._busy:
            self.pause(self)
            self._waiting.append(bytearray(head))
        else:
            self._start(head)

    def take_body(self, body: bytes) -> None:
        self._go_on(b"%x\r\n%b\r\n" % (len(body), body) if self._chunked else body)

    def end_body(self) -> None:
        if self._chunked:
            self._go_on(b"0\r\n\r\n")
        if not self._busy:
            self.wait()

    def handle_websocket_upgrade(self) -> None:
        # Its head was all there is: if nobody has followed it, it is answered like any other request.
        if not self._is_socket:
            self._deaf = True

    def withdraw(self) -> bool:
        if self._waiting:
            self._waiting.pop()
            return True
        self._lose(None)
        return False

    def _start(self, request: bytes | bytearray) -> None:
        self._busy, self._begun = True, False
        if not self._unread:
            self.ends = NEVER
        self._behind.data_received(bytes(request))

    def _go_on(self, part: bytes) -> None:
        if self._waiting:
            self._waiting[-1] += part
        elif not self.has_left:
            self._behind.data_received(part)

    def begun(self) -> None:
        """The answer has begun."""
        self._begun = True

    def answered(self) -> None:
        """The application is done with a request."""
        if self._is_socket or self.has_left or self.transport.is_closing():
            return
        if self._waiting:
            self._start(self._waiting.popleft())
            return
        self._busy = False
        self.resume(self)
        if self._deaf and self._last_word is None:
            self.transport.close()
        else:
            self.all_answered()


class _Way:
    """The transport as the protocol behind a relay sees it."""

    def __init__(self, relay: Relay, transport: asyncio.Transport) -> None:
        self._relay = relay
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def set_protocol(self, protocol: Any) -> None:
        self._relay.follow(protocol)

    def write(self, data: bytes) -> None:
        if not self._relay.has_left:
            self._transport.write(data)

    def close(self) -> None:
        if not self._relay.has_left:
            self._transport.close()

    def pause_reading(self) -> None:
        self._relay.pause(self)

    def resume_reading(self) -> None:
        self._relay.resume(self)


class Relayed:
    """An application that lets relays know when it has answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        relay: Relay | None = scope.get("state", {}).pop(_KEY, None)
        if relay is None or scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def said(message: Message) -> None:
            if message["type"] == "http.response.start":
                relay.begun()
            await send(message)

        try:
            await self._app(scope, receive, said)
        finally:
            # What is left to uvicorn, such as the answer to a request that failed, comes first.
            relay.loop.call_soon(relay.answered)
