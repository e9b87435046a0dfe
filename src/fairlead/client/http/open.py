"""Opening a way to a server: connections of our own, or httpx where the environment names a proxy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from fairlead._version import __version__
from fairlead.client.http.connections import Blocking, Streaming
from fairlead.client.http.http1 import route_to
from fairlead.client.http.transport import CONNECTING, PATIENCE, Address, Reply, Transport, check_address, unreachable
from fairlead.core import extras
from fairlead.core.errors import InvalidSettings
from fairlead.core.secret_mask import masked

if TYPE_CHECKING:
    import httpx


def is_proxied(url: str) -> bool:
    """Whether a proxy is named for such URLs. NO_PROXY may still except this one; that is for httpx to say."""
    from urllib.request import getproxies

    proxies = getproxies()
    return bool(proxies.get(urlsplit(url).scheme) or proxies.get("all"))


class _Proxied:
    """A transport over httpx; how it sends and closes is for the two kinds to say."""

    def __init__(self, address: Address) -> None:
        import httpx

        self.address = address
        self._httpx = httpx

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> Reply:
        headers = {} if body is None else {"content-type": "application/json"}
        timeout = self._httpx.Timeout(patience, connect=CONNECTING)
        try:
            reply = await self._send(method, path, content=body, params=query, headers=headers, timeout=timeout)
        except self._httpx.HTTPError as error:
            raise unreachable(self.address, error) from None
        return Reply(reply.status_code, reply.content)

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        raise NotImplementedError


class StreamingProxied(_Proxied):
    """A transport for an event loop."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._client: httpx.AsyncClient = self._httpx.AsyncClient(**_options(address))

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self._client.request(method, path, **options)

    async def close(self) -> None:
        await self._client.aclose()


class BlockingProxied(_Proxied):
    """A transport for synchronous code; safe for threads."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._client: httpx.Client = self._httpx.Client(**_options(address))

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._client.request(method, path, **options)

    async def close(self) -> None:
        self._client.close()


def _options(address: Address) -> dict[str, Any]:
    headers = {"user-agent": f"fairlead/{__version__}", "accept": "application/json"}
    if address.key:
        headers["authorization"] = f"Bearer {address.key}"
    return {"base_url": address.url.rstrip("/"), "headers": headers}


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
