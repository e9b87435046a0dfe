"""The headers that every answer carries, whoever makes it."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Awaitable, Sequence
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
