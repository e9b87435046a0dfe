"""A host as it is written in a URL or a header, and whether it is this machine.

Whoever asks whether a host is loopback asks here: what looks like one and is none, such as `[::1].example.com`, must be
none everywhere.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import Final, TypeAlias

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_AUTHORITY: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[\w.-]+))(?::[0-9]{1,5})?", re.ASCII)
_FOREIGN: Final = re.compile(r"(?P<name>[\w.-]+)(?::[0-9]{1,5})?")


# A server asks for every request, of the few names that it is called by.
_remembered: Final = functools.lru_cache(maxsize=256)


@_remembered
def host_of(authority: str) -> str:
    """The host of `host` or `host:port`, in lower case, without the brackets of an IPv6 address.

    Empty if it is none: brackets hold an IPv6 address and nothing else, and nothing but a port comes after them.
    """
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        found = None if authority.isascii() else _FOREIGN.fullmatch(authority)
        return "" if found is None else found["name"].lower()
    if found["six"] is None:
        return found["name"].lower()
    try:
        return str(ipaddress.IPv6Address(found["six"]))
    except ValueError:
        return ""


@_remembered
def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its very name: what only its own programs can reach."""
    if host in ("localhost", "localhost.") or (host.endswith(".localhost") and host_of(host) == host):
        return True
    try:
        return "%" not in host and is_loopback_address(ipaddress.ip_address(host))
    except ValueError:
        return False


def is_loopback_address(address: IPAddress) -> bool:
    """Whether an address is this machine, also as an IPv4 address inside one of IPv6."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
