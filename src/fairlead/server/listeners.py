"""Where a server listens: its addresses, its port and its certificate."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
from pathlib import Path
from typing import Final

from msgspec import Struct

from fairlead.core.errors import InvalidSettings
from fairlead.core.hosts import is_loopback

BACKLOG: Final = 2048

_ABSENT: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Binding(Struct, frozen=True, kw_only=True):
    """Where and how a server listens."""

    host: str = "127.0.0.1"
    port: int = 8420
    """0 for one that is free."""
    cert: str | None = None
    """The file with the certificate chain."""
    key: str | None = None
    """The file with the certificate's private key; None if it is in the same file."""
    insecure: bool = False
    """Whether it may listen beyond loopback while there are no keys."""
    root_path: str = ""
    """The path at which a proxy shows the server; the proxy takes it off before it passes a request on."""
    trusted_proxies: str = ""
    """The addresses of proxies whose word on who calls, and how, is believed."""
    grace_seconds: float = 30.0
    """How long accepted requests may take to end once the server is asked to leave."""


class Listeners:
    """Sockets that listen."""

    def __init__(self, binding: Binding) -> None:
        self.tls = _context(binding)
        self.sockets = _bind(binding.host, binding.port)
        self._host = binding.host
        self._root_path = binding.root_path

    @property
    def port(self) -> int:
        """The port, which is a real one even if any was asked for."""
        port: int = self.sockets[0].getsockname()[1]
        return port

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return all(is_loopback(listener.getsockname()[0]) for listener in self.sockets)

    @property
    def url(self) -> str:
        """Where to find it from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)  # noqa: S104 - not bound here
        shown = f"[{host}]" if ":" in host else host
        return f"{'http' if self.tls is None else 'https'}://{shown}:{self.port}{self._root_path}"

    def close(self) -> None:
        """Stop listening."""
        for listener in self.sockets:
            listener.close()


def _context(binding: Binding) -> ssl.SSLContext | None:
    if binding.cert is None:
        if binding.key is not None:
            raise InvalidSettings(f"the private key {binding.key} is of no use without a certificate; give --cert too")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An empty password: a key that needs one must fail, not ask whoever may or may not be at the terminal.
        context.load_cert_chain(binding.cert, binding.key, password=lambda: "")
    except FileNotFoundError:
        missing = next((file for file in (binding.cert, binding.key) if file and not Path(file).exists()), "")
        raise InvalidSettings(f"the file {missing} for TLS does not exist; name others with --cert and --key") from None
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise InvalidSettings(
            f"the certificate {binding.cert} and its private key {binding.key or binding.cert} cannot be used: "
            f"{reason}; they must be PEM files that belong together, the key without a password"
        ) from None
    return context


def _bind(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host, all on the same port."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise InvalidSettings(f"the host {host!r} is not known; use an address of this machine") from None
    with contextlib.ExitStack() as undo:
        sockets: list[socket.socket] = []
        absent: OSError | None = None
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            chosen = sockets[0].getsockname()[1] if sockets else port
            try:
                listener = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
                _listen(listener, family, (address[0], chosen, *address[2:]))
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise _refused(host, chosen, error) from None
                absent = error
            else:
                sockets.append(listener)
        if absent is not None and not sockets:
            raise _refused(host, port, absent)
        undo.pop_all()
    return sockets


def _listen(listener: socket.socket, family: int, address: tuple[object, ...]) -> None:
    if os.name == "posix":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind(address)
    # At once: two that only bind the same port would not notice each other.
    listener.listen(BACKLOG)
    listener.setblocking(False)


def _refused(host: str, port: int, error: OSError) -> InvalidSettings:
    match error.errno:
        case errno.EADDRINUSE:
            return InvalidSettings(
                f"port {port} on {host} is in use by another program; stop it, or choose another port with --port, "
                f"0 for one that is free"
            )
        case errno.EACCES:
            return InvalidSettings(f"port {port} on {host} is not allowed to this user; choose one from 1024 on")
        case errno.EADDRNOTAVAIL | errno.EAFNOSUPPORT:
            return InvalidSettings(f"the host {host!r} is not an address of this machine; use one that is")
        case _:
            return InvalidSettings(f"port {port} on {host} cannot be used: {error.strerror}; choose another")
