"""The way to a server where the environment names a proxy (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY): httpx knows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fairlead._version import __version__
from fairlead.client.http.transport import CONNECTING, PATIENCE, Address, Reply, unreachable

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
