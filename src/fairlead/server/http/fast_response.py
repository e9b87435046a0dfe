"""The short way between a connection and an endpoint, for what is whole.

ASGI lets a body come and an answer go in any number of pieces, and has each pass through several coroutines. Nearly
every request here has arrived whole when it is looked at, and nearly every answer is made whole: those go by directly,
and an answer leaves in one write rather than two. Under another server, as in tests, the same endpoints speak plain
ASGI.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from starlette.types import Scope

from fairlead.server.http.headers import STATUS_LINES

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

SAID: Final = "fairlead.headers"
"""Where the scope of a request has its headers by name, which were made to check them."""

_KEY: Final = "fairlead.direct"


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
