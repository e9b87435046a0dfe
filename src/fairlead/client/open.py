"""Opening a way to a server."""

from __future__ import annotations

import re
from typing import Final

from fairlead.client.http.asynchronous import Streaming
from fairlead.client.http.blocking import Blocking
from fairlead.client.http.http1 import route_to
from fairlead.client.http.httpx_transport import BlockingProxied, StreamingProxied, is_proxied
from fairlead.client.http.transport import Address, Transport, check_address
from fairlead.core import extras
from fairlead.core.errors import InvalidSettings
from fairlead.core.secret_mask import masked

_KEY: Final = re.compile(r"[!-~]+")


def open_transport(address: Address, *, blocking: bool) -> Transport:
    """A way to the server; with `blocking` its coroutines do their work in the calling thread and never suspend."""
    check_address(address.url)
    if address.key and not _KEY.fullmatch(address.key):
        raise InvalidSettings("the API key has a character in it that no key has, such as a space or the end of a line")
    try:
        if is_proxied(address.url):
            return BlockingProxied(address) if blocking else StreamingProxied(address)
        route = route_to(address)
    except ModuleNotFoundError as error:
        if (told := extras.told(error, f"store URL {masked(address.url)!r}", "client")) is None:
            raise
        raise InvalidSettings(told) from None
    return Blocking(address, route) if blocking else Streaming(address, route)
