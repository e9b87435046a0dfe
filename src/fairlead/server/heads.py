"""The heads of requests, bounded in size and time; uvicorn's fast parser takes them as they come."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_BYTES: Final = 64 * 1024
"""How much of a head may come beyond what came with its first bytes."""
MOST_SECONDS: Final = 10.0
"""How long a head may take from its first bytes to its end."""

_TOO_LARGE: Final = b"431 Request Header Fields Too Large", b"The head of the request is too large; send fewer headers."
_TOO_SLOW: Final = b"408 Request Timeout", b"The head of the request took too long; send it faster."


class BoundedProtocol(HttpToolsProtocol):
    """The protocol of a connection; hangs up on heads without an end, and on callers who connect and say nothing."""

    _began = False
    """Whether the head that is being read began with the bytes at hand."""
    _unfinished = False
    _size = 0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._began = False
        super().data_received(data)
        # Most heads come whole: then there is nothing to count and no clock to start.
        if not self._unfinished or self._began:
            if self._unfinished and self._deadline is None:
                self._deadline = self.loop.call_later(MOST_SECONDS, self._hang_up, *_TOO_SLOW)
            return
        self._size += len(data)
        if self._size > MOST_BYTES:
            self._hang_up(*_TOO_LARGE)

    def on_message_begin(self) -> None:
        self._began = self._unfinished = True
        self._size = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._finish()
        super().on_headers_complete()

    def _finish(self) -> None:
        self._unfinished = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _hang_up(self, status: bytes, text: bytes) -> None:
        self._finish()
        if self.transport.is_closing():
            return
        # uvicorn says that there always is a cycle, but before the first request there is none.
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            self.transport.write(
                b"HTTP/1.1 %b\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%b" % (status, len(text), text)
            )
        self.transport.close()
