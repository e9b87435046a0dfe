"""Requests from synchronous code: plain sockets, used in the calling thread.

Threads share the connections: each takes one for a request and puts it back.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from typing import Final

from fairlead.client.http.connection_pool import Idle, has_news
from fairlead.client.http.http1 import Reading, Route
from fairlead.client.http.transport import CONNECTING, PATIENCE, Address, Broken, Reply, unreachable

_CHUNK: Final = 65_536


class Blocking:
    """A `Transport` whose coroutines never suspend; safe for threads."""

    def __init__(self, address: Address, route: Route) -> None:
        self.address = address
        self._route = route
        self._idle: Idle[_Connection] = Idle()
        self._closed = False

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> Reply:
        request = self._route.requests.write(method, path, body, query)
        try:
            connection = self._take()
            try:
                reply = connection.ask(request, patience)
            except BaseException:
                connection.close()
                raise
        except (OSError, UnicodeError, Broken) as error:
            raise unreachable(self.address, error) from None
        if connection.keeps and not self._closed:
            self._idle.put(connection)
        else:
            connection.close()
        return reply

    async def close(self) -> None:
        self._closed = True
        self._idle.close()

    def _take(self) -> _Connection:
        if self._closed:
            raise Broken("this client was closed")
        return self._idle.take() or _Connection(self._route)


class _Connection:
    """One socket."""

    def __init__(self, route: Route) -> None:
        self.keeps = True
        self.used = 0.0
        self._patience = CONNECTING
        self._socket = socket.create_connection((route.host, route.port), timeout=CONNECTING)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if route.tls is not None:
                self._socket = route.tls.wrap_socket(self._socket, server_hostname=route.host)
        except BaseException:
            self.close()
            raise

    def ask(self, request: bytes, patience: float) -> Reply:
        """The reply to a request."""
        if patience != self._patience:
            self._socket.settimeout(patience)
            self._patience = patience
        self._socket.sendall(request)
        reading = Reading()
        while (reply := reading.feed(self._socket.recv(_CHUNK))) is None:
            pass
        self.keeps = reading.keeps
        return reply

    def is_alive(self) -> bool:
        return not has_news(self._socket.fileno())

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
