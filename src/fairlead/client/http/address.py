"""The straight way to a server: where to connect to, whom to trust, and what its requests begin with."""

from __future__ import annotations

import ssl
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from fairlead.client.http.http1 import Requests
from fairlead.client.http.transport import Address

_PORTS: Final = {"http": 80, "https": 443}


class Route(Struct, frozen=True):
    """The straight way to a server."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    requests: Requests


def route_to(address: Address) -> Route:
    """The straight way to the server at an address."""
    import httptools  # noqa: F401 - replies need it, and to miss it then would be late

    parts = urlsplit(address.url)
    host, usual = parts.hostname or "", _PORTS[parts.scheme]
    if not host.isascii():
        import httpx

        host = httpx.URL(address.url).raw_host.decode()
    port = parts.port or usual
    named = f"[{host}]" if ":" in host else host
    requests = Requests(named if port == usual else f"{named}:{port}", parts.path.rstrip("/"), address.key)
    return Route(host, port, _tls() if parts.scheme == "https" else None, requests)


def _tls() -> ssl.SSLContext:
    """Trust whom httpx trusts: the authorities of certifi, or those that SSL_CERT_FILE or SSL_CERT_DIR names."""
    import httpx

    context = httpx.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
