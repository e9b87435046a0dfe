"""The protocol of a connection: uvicorn's, with bounded heads, short ways, and one timer for all of its silences."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from fairlead.server.direct import Direct, open_direct
from fairlead.server.heads import BoundedProtocol
from fairlead.server.together import Together


class Connection(BoundedProtocol):
    """Gives each request its short way, and single submits that have arrived whole a shorter one."""

    _feeding = False
    """Whether bytes are being read, so that the rest of a request may be among them."""
    _held: tuple[Direct, Callable[[], None]] | None = None
    """A request that waits to be whole, and what starts it if the bytes at hand end before it is."""
    _silent_since: float | None = None
    """Since when the next request is waited for; None while there is one."""

    def __init__(self, *arguments: Any, together: Together, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._together = together

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._silent_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        super()._unset_keepalive_if_required()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        super()._unset_keepalive_if_required()
        super().handle_websocket_upgrade()

    # Requests

    def data_received(self, data: bytes) -> None:
        self._feeding = True
        super().data_received(data)
        self._feeding = False
        if self._held is not None:
            (_, start), self._held = self._held, None
            start()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self._held is not None:
            (request, start), self._held = self._held, None
            self._join(request, start)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        request = open_direct(cycle)
        start = functools.partial(super()._start_asgi_task, cycle, app)
        if not self._together.takes(request.scope) or not request.open:
            start()
        elif not cycle.more_body:
            self._join(request, start)
        elif self._feeding:
            self._held = request, start
        else:
            start()

    def _join(self, request: Direct, otherwise: Callable[[], None]) -> None:
        task = self._together.add(request, otherwise)
        if task is not None:
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    # Silences: uvicorn sets a timer after each answer and takes it back with the next request, which is 2 to 3 µs of
    # each. Here the timer stays, and looks at what has happened when it rings.

    def _unset_keepalive_if_required(self) -> None:
        self._silent_since = None

    def on_response_complete(self) -> None:
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._silent_since = self.loop.time()

    def timeout_keep_alive_handler(self) -> None:
        since, now = self._silent_since, self.loop.time()
        over = since is not None and since + self.timeout_keep_alive <= now
        if over or self.transport.is_closing():
            super().timeout_keep_alive_handler()
            return
        ends = (now if since is None else since) + self.timeout_keep_alive
        self.timeout_keep_alive_task = self.loop.call_at(ends, self.timeout_keep_alive_handler)
