"""Accepting connections over TLS, so that those whose handshake is not done yet count as well."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from socket import socket
from typing import Any, Final

from fairlead.server.http.connections import Peers

_PAUSE: Final = 0.5
"""How long to wait, in seconds, when the system has no room for another connection."""


class Handshake:
    """A connection whose handshake is under way: idle, as far as its server is concerned."""

    def __init__(self, client: Any, ends: float) -> None:
        self.client = client
        self.ends = ends
        self.transport: Any = self
        self.doing: asyncio.Task[None] | None = None

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        if self.doing is not None:
            self.doing.cancel()

    time_over = abort


class TlsListener:
    """Listens on a socket, like a server of the event loop."""

    def __init__(
        self, listener: socket, context: ssl.SSLContext, peers: Peers, protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        self._listener = listener
        self._context = context
        self._peers = peers
        self._protocol = protocol
        self._seconds = peers.settings.head_seconds
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        """Accept no more, and give up the handshakes."""
        self._accepting.cancel()
        for handshake in self._handshakes:
            handshake.cancel()

    async def wait_closed(self) -> None:
        """Wait until that is done."""
        await asyncio.gather(self._accepting, *self._handshakes, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(self._listener)
            except OSError:
                # The caller has left already, or there are too many open files: closed ones make room.
                await asyncio.sleep(_PAUSE)
                continue
            handshake = Handshake(address, loop.time() + self._seconds)
            handshake.doing = loop.create_task(self._shake(accepted, handshake))
            self._handshakes.add(handshake.doing)
            handshake.doing.add_done_callback(self._handshakes.discard)

    async def _shake(self, accepted: socket, handshake: Handshake) -> None:
        if not self._peers.enter(handshake):
            self._peers.leave(handshake)
            accepted.close()
            return
        try:
            # Who speaks no TLS, or too slowly, is hung up on; that is none of the server's faults.
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._protocol, accepted, ssl=self._context, ssl_handshake_timeout=self._seconds
                )
        finally:
            self._peers.leave(handshake)
