"""All connections of one server: how many there may be, whose, and the clock that ends those that hold one for nothing.

A connection is idle while no request of it is being answered, whatever bytes it sends. When there are too many, the one
that has been idle for longest makes room; a new one is turned away only when none is idle. So nobody can shut the
others out by keeping connections open, and a caller who uses a connection is not cut off for one who does not.
Connections whose TLS handshake is not done yet count as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import math
import ssl
from collections.abc import Callable, Collection
from socket import socket
from typing import Any, Final, Protocol

from fairlead.server.settings import ServerSettings

log = logging.getLogger("fairlead.server")

NEVER: Final = math.inf
LINGER: Final = 2.0
"""How long a caller that was refused has to read why, in seconds."""

_TICK: Final = 1.0
_WARNING_PAUSE: Final = 60.0
_NETWORK_BITS: Final = 64
_RESERVED: Final = 64
"""Files that a server opens beside its connections: its store, its logs, its own sockets."""
_FEWEST: Final = 16


class Member(Protocol):
    """A connection."""

    transport: asyncio.Transport
    client: Any
    ends: float
    """When it ends unless something happens, by the clock of the event loop; NEVER while a request is answered."""

    def time_over(self) -> None:
        """End it, for it has reached that moment."""


class Peers:
    """Counts connections, makes room for new ones, and ends those whose time is over."""

    def __init__(self, settings: ServerSettings, trusted_proxies: str = "") -> None:
        """A proxy that is trusted speaks for many, and may have any number of the connections."""
        self.settings = settings
        self.limit = min(settings.connection_limit, open_files() - _RESERVED)
        self.limit = max(self.limit, min(_FEWEST, settings.connection_limit))
        self.limit_per_peer = min(settings.connection_limit_per_peer, max(1, self.limit // 2))
        self._trusted = _networks(trusted_proxies)
        self._tick = min(_TICK, settings.idle_seconds / 4, settings.head_seconds / 4, settings.body_seconds / 4)
        self._peer_of: dict[Member, str] = {}
        self._of_peer: dict[str, dict[Member, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._silent_until = 0.0

    def __len__(self) -> int:
        return len(self._peer_of)

    def enter(self, member: Member) -> bool:
        """Count a new connection; false if there is no room for it, though it counts until it has left."""
        peer = self._peer(member)
        room = True
        alike = self._of_peer.get(peer, {})
        if peer and len(alike) >= self.limit_per_peer:
            room = self._make_room(alike)
        if room and len(self._peer_of) >= self.limit:
            # Whoever has most of them can spare one first.
            room = self._make_room(max(self._of_peer.values(), key=len)) or self._make_room(self._peer_of)
        self.follow(member)
        if not room:
            self._warn(peer)
        return room

    def _warn(self, peer: str) -> None:
        """Log that a connection is turned away, now and then."""
        now = asyncio.get_running_loop().time()
        if now >= self._silent_until:
            self._silent_until = now + _WARNING_PAUSE
            log.warning(
                "refusing a connection from %s: the limit is %d connections, %d of one address, and none is idle",
                peer or "a trusted proxy",
                self.limit,
                self.limit_per_peer,
            )

    def follow(self, member: Member) -> None:
        """Count a connection that has room already, as one that has become a WebSocket."""
        peer = self._peer_of[member] = self._peer(member)
        self._of_peer.setdefault(peer, {})[member] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._tick, self._look)

    def leave(self, member: Member) -> None:
        """Count it no more; as often as one likes."""
        peer = self._peer_of.pop(member, None)
        if peer is not None:
            alike = self._of_peer[peer]
            del alike[member]
            if not alike:
                del self._of_peer[peer]

    def _make_room(self, members: Collection[Member]) -> bool:
        """End the one that has been idle for longest; false if none is."""
        idlest = min(members, key=lambda member: member.ends)
        if idlest.ends == NEVER:
            return False
        self.leave(idlest)
        idlest.transport.abort()
        return True

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for member in list(self._peer_of):
            if member.transport.is_closing():
                # What it is still to be told it may not want to read.
                if member.ends == NEVER:
                    member.ends = now + LINGER
                elif member.ends <= now:
                    member.transport.abort()
            elif member.ends <= now:
                member.time_over()
        self._timer = loop.call_later(self._tick, self._look) if self._peer_of else None

    def _peer(self, member: Member) -> str:
        """Whose a connection is; nobody's in particular if it is a trusted proxy's."""
        try:
            address = ipaddress.ip_address(member.client[0])
        except (TypeError, ValueError):
            return ""
        address = getattr(address, "ipv4_mapped", None) or address
        if any(address in network for network in self._trusted):
            return ""
        if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
            return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
        return str(address)


def _networks(trusted_proxies: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """The networks among the words of a list, of which `*` means any."""
    found = []
    for word in trusted_proxies.split(","):
        if word.strip() == "*":
            return [ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")]
        with contextlib.suppress(ValueError):
            found.append(ipaddress.ip_network(word.strip()))
    return found


def open_files() -> int:
    """How many files this process may open."""
    try:
        import resource
    except ImportError:  # there is no such limit on Windows
        return 2**31
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def allow_files(connections: int) -> None:
    """Let this process open the files that so many connections need, as far as it may decide that itself."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _RESERVED
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


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
