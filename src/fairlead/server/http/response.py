"""Answers: the headers that all carry, and the short way to a connection for those that are whole.

ASGI lets a body come and an answer go in any number of pieces, and has each pass through several coroutines. Nearly
every request here has arrived whole when it is looked at, and nearly every answer is made whole: those go by directly,
and an answer leaves in one write rather than two. Under another server, as in tests, the same endpoints speak plain
ASGI.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct
from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_ALWAYS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_UNLESS_SAID: Final = (
    # Pages load what the server itself has, nothing else, and no other page shows them in a frame.
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
        b"frame-ancestors 'none'",
    ),
    (b"cache-control", b"no-store"),
)
_ALL: Final[tuple[tuple[bytes, bytes], ...]] = _ALWAYS + _UNLESS_SAID
_OVERRIDABLE: Final = frozenset(name for name, _ in _UNLESS_SAID)
_TLS: Final = (b"strict-transport-security", b"max-age=31536000")
_CLOSE: Final = (b"connection", b"close")


_MOST_NAMED: Final = 10
_LONGEST_NAME: Final = 60
_ODD: Final = re.compile(r"[^A-Za-z0-9_.\[\]-]")
"""What is not repeated in a header: a caller says what it likes."""

STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus
}
"""The first line of an answer, by its status."""


@functools.cache
def head_of(media_type: bytes, scheme: str) -> bytes:
    """The headers of an ordinary answer as they are written, each line with its end."""
    tls = (_TLS,) if scheme == "https" else ()
    return b"".join(b"%b: %b\r\n" % header for header in ((b"content-type", media_type), *_ALL, *tls))


def warning_of(ignored: Sequence[str]) -> tuple[str, str]:
    """The header that names the fields of a body that were passed over, or the first of many."""
    named = ", ".join(_ODD.sub("?", name[:_LONGEST_NAME]) for name in ignored[:_MOST_NAMED])
    more = f" and {len(ignored) - _MOST_NAMED:,} more" if len(ignored) > _MOST_NAMED else ""
    return "warning", f'299 - "unknown fields were ignored: {named}{more}"'


class SafeHeaders:
    """An application whose answers all carry the security headers; while the server stops, also that it hangs up."""

    def __init__(self, app: ASGIApp, stopping: asyncio.Event) -> None:
        self._app = app
        self._stopping = stopping

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._app(scope, receive, send)

        # No coroutine of its own: every message of every answer comes by here.
        def dressed(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                said = message.get("headers", ())
                added = _ALL
                if any(name in _OVERRIDABLE for name, _ in said):
                    names = {name for name, _ in said}
                    added = (*_ALWAYS, *(header for header in _UNLESS_SAID if header[0] not in names))
                headers = [*said, *added]
                if scope["scheme"] == "https":
                    headers.append(_TLS)
                if self._stopping.is_set():
                    headers.append(_CLOSE)
                message["headers"] = headers
            return send(message)

        return self._app(scope, receive, dressed)


SAID: Final = "fairlead.headers"
"""Where the scope of a request has its headers by name, which were made to check them."""

_KEY: Final = "fairlead.direct"


class Arrival(Struct, eq=False):
    """What of an `asyncio.Event` a request needs, at a fifth of its price: most requests wait for nothing.

    It is set when more of the request has come, or nothing more will.
    """

    is_set: bool = False
    _waiters: list[asyncio.Future[None]] | None = None

    def set(self) -> None:
        """Wake who waits."""
        self.is_set = True
        if self._waiters is not None:
            waiters, self._waiters = self._waiters, None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def clear(self) -> None:
        """Have who comes now wait for what is next."""
        self.is_set = False

    async def wait(self) -> None:
        """Wait until it is set."""
        if self.is_set:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(waiter)
        await waiter


class Direct:
    """The short way of one request."""

    __slots__ = ("_cycle", "scope")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self.scope: Scope = cycle.scope  # type: ignore[assignment]
        """What ASGI says of the request."""

    def seen(self) -> bytes:
        """What has arrived of the body, which stays to be taken."""
        return bytes(self._cycle.body)

    def body(self) -> bytes | None:
        """The whole body; None if it has yet to arrive, to be received in pieces then."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected:
            return None
        body = self.seen()
        cycle.body.clear()
        # What is received next is that the caller has left.
        cycle.message_event.clear()
        cycle.flow.resume_reading()
        return body

    @property
    def open(self) -> bool:
        """Whether an answer can go by; not when one has begun, nor while the caller leaves earlier ones unread."""
        return not (self._cycle.response_started or self._cycle.flow.write_paused)

    def answer(self, status: int, head: bytes, body: bytes, *, last: bool = False) -> None:
        """Answer, if the caller is still there; with the last answer the connection ends.

        The head is lines of headers with their ends.
        """
        cycle = self._cycle
        if cycle.disconnected:
            return
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        if last:
            cycle.keep_alive = False
        lines = [STATUS_LINES[status], head, b"content-length: %d\r\n" % len(body)]
        for name, value in cycle.default_headers:
            lines += (name, b": ", value, b"\r\n")
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        if cycle.scope["method"] != "HEAD":
            lines.append(body)
        cycle.transport.write(b"".join(lines))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()

    def hang_up(self) -> None:
        """End the connection without an answer, unless one has begun."""
        if not self._cycle.response_started:
            self._cycle.transport.close()


class DirectAnswers(Protocol):
    """Answers requests that have arrived whole, without ASGI."""

    def takes(self, scope: Scope) -> bool:
        """Whether a request may be one for here, by the first line of its head."""
        ...

    def add(self, request: Direct, otherwise: Callable[[], None]) -> asyncio.Task[None] | None:
        """Answer a request, or have it answered otherwise; the task, if this starts one."""
        ...


def open_direct(cycle: RequestResponseCycle) -> Direct:
    """Give a request its short way."""
    direct = Direct(cycle)
    direct.scope[_KEY] = direct
    return direct


def headers_of(scope: Scope) -> Mapping[bytes, bytes]:
    """The headers of a request by name; of one that is repeated, the last."""
    said: Mapping[bytes, bytes] | None = scope.get(SAID)
    return dict(scope["headers"]) if said is None else said


def direct_of(scope: Scope) -> Direct | None:
    """The short way of a request; None if it has none."""
    direct: Direct | None = scope.get(_KEY)
    return direct
