"""What holds for every connection, whoever answers its requests: the guard, and a clock that only requests stop.

Everything that a caller sends goes through here: no head passes that `request_guard` refuses, nothing is taken behind a
body, and no more is kept of what is neither head nor body than a head may have. When what comes makes no sense any
more, requests that were accepted before it are answered first.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final
from urllib.parse import unquote

import httptools
import msgspec

from fairlead.server.http import request_guard
from fairlead.server.http.connections import LINGER, NEVER, Peers
from fairlead.server.http.problems import Refusal
from fairlead.server.http.response import STATUS_LINES, head_of
from fairlead.wire.endpoint import MEDIA_TYPE

_PROBLEM: Final = MEDIA_TYPE.encode()


class GuardedConnection(asyncio.Protocol):
    """Reads requests under the rules of the wire. What becomes of them is for who derives from it to say."""

    loop: asyncio.AbstractEventLoop
    logger: logging.Logger
    transport: Any
    client: Any
    scheme: Any
    server_state: Any
    parser: Any
    url: bytes
    headers: list[tuple[bytes, bytes]]

    ends = NEVER
    _in_head = False
    _in_body = False
    _switches = False
    """Whether the request that is being read asks for another protocol."""
    _moved = False
    """Whether the bytes at hand have begun a head or were part of a body."""
    _large = False
    """Whether the bytes at hand may hold a head that is too large, or the end of one."""
    _size = 0
    """How many bytes have come since, in further pieces, that did not."""
    _deaf = False
    """Whether nothing more is read: what came last made no sense."""
    _unread = False
    """Whether the caller leaves answers unread."""
    _asked = b""
    """What the last request called, if it was a path; `target` is what was read in it."""
    target: tuple[str, bytes, bytes]
    """The path that is called, as text and as it came, and the query."""
    _lines: request_guard.Lines | None = None
    """The headers of the last request, which were checked; a caller mostly sends the same again."""
    _version = ""
    _said: dict[bytes, bytes]
    _last_word: Refusal | None = None
    """What is to be said when the requests that were accepted are answered."""

    _peers: Peers

    # What becomes of a request

    def take_head(self, version: str, method: bytes, said: dict[bytes, bytes]) -> None:
        """A request has begun; its target and headers are `url` and `headers`."""
        raise NotImplementedError

    def take_body(self, body: bytes) -> None:
        """A part of its body has come."""
        raise NotImplementedError

    def end_body(self) -> None:
        """It is whole."""
        raise NotImplementedError

    def handle_websocket_upgrade(self) -> None:
        """It asked for a WebSocket, with nothing before it that waits for an answer."""
        raise NotImplementedError

    def withdraw(self) -> bool:
        """The last request, which waits for its answer, will not be whole; whether it waits behind others."""
        raise NotImplementedError

    @property
    def answering(self) -> bool:
        """Whether a request that was accepted is still to be answered."""
        raise NotImplementedError

    @property
    def answer_begun(self) -> bool:
        """Whether the answer to the last request has begun."""
        raise NotImplementedError

    # The connection

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.ends = self.loop.time() + self._peers.settings.idle_seconds
        if not self._peers.enter(self):
            self._deaf = True
            crowded = "the server has reached its limit of connections; use fewer, or try again later"
            self.refuse(Refusal("too-many-connections", crowded, headers=(("retry-after", "5"),)))
            # There is no room to wait until it has been read either.
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers.leave(self)
        super().connection_lost(exc)

    # What comes

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._moved = False
        self._large = self._in_head or len(data) > request_guard.MOST_BYTES
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._switch(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self.break_off(self._refusal_in(error))
        # Most requests come whole: then there is nothing to count and no time to take.
        if self._in_head or self._in_body:
            self._count(len(data))

    def _refusal_in(self, error: httptools.HttpParserError) -> Refusal:
        """Why reading ended: a refusal that was raised meanwhile, or that it is not HTTP."""
        cause = error.__context__
        if isinstance(cause, Refusal):
            return cause
        if cause is not None:
            self.logger.error("reading a request failed", exc_info=cause)
        return request_guard.not_http()

    def _count(self, size: int) -> None:
        """Bound what is neither a whole head nor a body, in bytes, and a head in time."""
        if self._deaf:
            return
        if not self._moved:
            self._size += size
            if self._size > request_guard.MOST_BYTES:
                self.break_off(request_guard.too_large() if self._in_head else request_guard.no_trailers())
        elif self._in_head and not self.answering:
            self.ends = self.loop.time() + self._peers.settings.head_seconds

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._in_head = self._moved = True
        self._size = 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            raise request_guard.no_trailers()
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser, headers = self.parser, self.headers
        version, method = parser.get_http_version(), parser.get_method()
        if self._large:
            request_guard.check_size(self.url, headers)
        if self.url != self._asked:
            self._read_target(method, headers)
        if headers != self._lines or version != self._version:
            self._said = request_guard.check_head(version, headers)
            self._lines, self._version = headers, version
        said = self._said
        self._switches = parser.should_upgrade()
        if self._switches:
            if b"upgrade" not in said:
                raise request_guard.no_tunnels()
            if said[b"upgrade"].lower() != b"websocket":
                # It is read again without the wish.
                return
            request_guard.check_websocket(version, method, said, alone=not self.answering)
        self._in_head = False
        self._in_body = True
        self._size = 0
        self.take_head(version, method, said)

    def _read_target(self, method: bytes, headers: request_guard.Lines) -> None:
        """Find out which path is called, and with which query; the same target again need not be read again."""
        asked = self.url
        self.url = request_guard.path_in(asked, method, headers)
        path, _, query = self.url.partition(b"?")
        text = path.decode("ascii")
        self.target = (unquote(text) if "%" in text else text, path, query)
        # One that names a host says what the Host header is to be, so it counts for its own headers only.
        self._asked = asked if self.url == asked else b""

    def on_body(self, body: bytes) -> None:
        self._moved = True
        self._size = 0
        self.take_body(body)

    def on_chunk_header(self) -> None:
        self._moved = True
        self._size = 0

    def on_message_complete(self) -> None:
        if not self._switches:
            self._in_body = False
            self.end_body()

    def _switch(self, rest: bytes) -> None:
        """Go on as a WebSocket, or as if no other protocol had been asked for."""
        self._switches = False
        if not self._in_head:
            self._in_body = False
            self.handle_websocket_upgrade()
            return
        lines = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = request_parser(self)
        self._in_head = False
        self.data_received(b"\r\n".join((*lines, b"", rest)))

    # What makes no sense

    def break_off(self, refusal: Refusal) -> None:
        """Read nothing more; refuse it when what was accepted before it is answered."""
        self._deaf = True
        if self._in_body and self.answering:
            # It is the body of the last request, which therefore was not accepted after all.
            if self.withdraw():
                self._last_word = refusal
            elif self.answer_begun:
                self.transport.close()
            else:
                self.refuse(refusal)
        elif self._in_body:
            # It was answered before it was whole: there is nothing to add.
            self.transport.close()
        elif self.answering:
            self._last_word = refusal
        else:
            self.refuse(refusal)

    def refuse(self, refusal: Refusal) -> None:
        """Say why, and hang up once it can have been read."""
        if self.transport.is_closing():
            return
        body = msgspec.json.encode(refusal.problem)
        headers = [(name.encode(), value.encode()) for name, value in refusal.headers]
        headers += [
            *self.server_state.default_headers,
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        head = STATUS_LINES[refusal.status] + head_of(_PROBLEM, self.scheme or "http") + lines
        self.transport.write(b"%b\r\n%b" % (head, body))
        # To hang up on what is still coming would take the answer away from its reader.
        self.ends = self.loop.time() + LINGER
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    # Silences

    def wait(self) -> None:
        """Wait for the next request, or for the rest of one that was answered before it was whole."""
        limits = self._peers.settings
        if self._in_head:
            seconds = limits.head_seconds
        else:
            seconds = limits.body_seconds if self._in_body else limits.idle_seconds
        self.ends = self.loop.time() + seconds

    def all_answered(self) -> None:
        """Say what is still to be said, or wait."""
        if self._last_word is not None:
            self.refuse(self._last_word)
        else:
            self.wait()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = True
        # Who does not read its answers is as good as silent.
        self.ends = min(self.ends, self.loop.time() + self._peers.settings.idle_seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread = False
        if self.answering:
            self.ends = NEVER

    def time_over(self) -> None:
        """Hang up on who was waited for long enough."""
        if self._in_head and not self._deaf and not self.answering:
            self._deaf = True
            slow = f"the headers of the request did not arrive within {self._peers.settings.head_seconds:g} s"
            self.refuse(Refusal("slow-head", f"{slow}; send it faster", remedy="send it faster"))
        elif self._unread:
            self.transport.abort()
        else:
            self.transport.close()


def request_parser(protocol: GuardedConnection) -> Any:
    """A parser of requests. What comes behind the last request of a connection is dropped, not taken for an error."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser
