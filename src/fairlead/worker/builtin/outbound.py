"""Connections to addresses that others choose: where they may lead, and how they are made.

A task's URL is written by whoever may submit tasks, and a worker stands inside a network that they may not. So a name
is resolved once, every address it has is checked, and the connection goes to one of the checked addresses: a second
lookup could give another answer (DNS rebinding). Proxies named in the environment are not used, because a proxy would
do a lookup of its own.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias
from urllib.parse import quote, urlsplit

from msgspec import Struct

from fairlead.core.hosts import IPAddress, host_of, is_loopback_address
from fairlead.core.retry import Reject

Address: TypeAlias = IPAddress
Resolve: TypeAlias = Callable[[str, int], Sequence[str]]
"""The addresses of a host, as text; raises OSError when it has none."""
Connect: TypeAlias = Callable[[str, int, float], socket.socket]
"""A connection to a numeric address and port within so many seconds."""

_PORTS: Final = {"https": 443, "http": 80}
_HOST: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x20\x7f\\]")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""All of IPv6 that is given out; the rest is reserved, local, or a site's own NAT64."""
_ALSO_REFUSED: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # protocol assignments, with the metadata service of one cloud; older Pythons know only a /29
        "168.63.129.16/32",  # a public address that one cloud answers from inside every virtual machine's host
        "2001::/23",  # protocol assignments, with Teredo, which carries an IPv4 address of anyone's choice
        "3fff::/20",  # documentation
    )
)


class Target(Struct, frozen=True):
    """A checked URL: where to connect and what to ask for."""

    scheme: str
    host: str
    port: int
    path: str
    """The path and query, ready for a request line."""

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        """Without the path: secrets are often in it, and this goes into messages."""
        return f"{self.scheme}://{self.authority}"


def parse_target(url: str, *, allow_http: bool) -> Target:
    """The target that a URL names; raises Reject when it is not one that may be asked."""
    # urlsplit drops some of these in silence, and a backslash is a slash to some and not to others.
    if _UNPRINTABLE.search(url):
        raise Reject("the URL contains a space, a control character or a backslash; write them percent-encoded")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
        query = f"?{quote(parts.query, safe='/?%:@!$&*+,;=~()')}" if parts.query else ""
    except ValueError as error:
        raise Reject(f"the URL is not valid: {error}") from None
    if parts.scheme not in _PORTS:
        raise Reject(f"the URL has the scheme {parts.scheme!r}; use https://host/path")
    if parts.scheme == "http" and not allow_http:
        raise Reject("the URL is http://, which anyone on the way can read; use https:// or set webhook_allow_http")
    if "@" in parts.netloc:
        raise Reject("the URL contains a user name or password; send an Authorization header instead")
    if port == 0:
        raise Reject("the URL has port 0, to which nothing can connect; use 1 to 65535")
    if "[" in parts.netloc and not host_of(parts.netloc):
        raise Reject(
            "the URL has brackets in its host that do not hold an IPv6 address and nothing else; use https://[2001:db8::1]"
        )
    return Target(parts.scheme, _ascii_host(host), port or _PORTS[parts.scheme], path + query)


def _ascii_host(host: str) -> str:
    try:
        return str(ipaddress.IPv6Address(host))
    except ValueError:
        pass
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    if len(name) > 253 or not _HOST.fullmatch(name):
        raise Reject(f"the URL has the host {host!r}, which is not a host name; use https://host/path")
    return name


def refusal_of(address: Address) -> str | None:
    """Why a connection to this address is refused; None when it may be made."""
    inner = _carried(address)
    if inner is not None:
        reason = refusal_of(inner)
        return None if reason is None else f"{reason} ({inner} inside it)"
    if address.is_unspecified:
        return "unspecified"
    if is_loopback_address(address):
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if address.is_private:
        return "private"
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return "reserved"
    if address.is_reserved or not address.is_global or any(address in network for network in _ALSO_REFUSED):
        return "reserved"
    return None


def _carried(address: Address) -> Address | None:
    """The IPv4 address to which a gateway would pass on what is sent to this IPv6 address."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, by the system's resolver."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for _, _, _, _, address in found))


def connect(address: str, port: int, timeout: float) -> socket.socket:
    """A connection to a numeric address."""
    return socket.create_connection((address, port), timeout)


class Dialler:
    """Connects to targets, unless their addresses are refused."""

    def __init__(
        self,
        *,
        allow_private: bool,
        resolve: Resolve = resolve,
        connect: Connect = connect,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allow_private = allow_private
        self._resolve = resolve
        self._connect = connect
        self._tls = tls

    def dial(self, target: Target, deadline: float) -> socket.socket:
        """A connection, under TLS if the scheme says so; raises Reject when refused and OSError when it fails."""
        addresses = [ipaddress.ip_address(text) for text in self._resolve(target.host, target.port)]
        if not self._allow_private:
            for address in addresses:
                if reason := refusal_of(address):
                    raise Reject(
                        f"{target} leads to the {reason} address {address}; webhooks go to public addresses only, "
                        f"unless webhook_allow_private is set"
                    )
        connection = self._first_that_answers(addresses, target.port, deadline)
        if target.scheme == "http":
            return connection
        try:
            if self._tls is None:
                self._tls = ssl.create_default_context()
            connection.settimeout(remaining(deadline))
            return self._tls.wrap_socket(connection, server_hostname=target.host.removesuffix("."))
        except BaseException:
            connection.close()
            raise

    def _first_that_answers(self, addresses: Sequence[Address], port: int, deadline: float) -> socket.socket:
        failure: OSError = OSError("the host has no address")
        for tried, address in enumerate(addresses):
            try:
                # A share each, so that one address that never answers leaves time for the others.
                return self._connect(str(address), port, remaining(deadline) / (len(addresses) - tried))
            except OSError as error:
                failure = error
        raise failure


def remaining(deadline: float) -> float:
    """The seconds until a moment of `time.monotonic`; raises TimeoutError when there are none."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time is up")
    return left
