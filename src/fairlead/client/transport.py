"""The way to a server: requests go out, replies or errors come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from fairlead._version import __version__
from fairlead.core.errors import InvalidSettings, StoreUnavailable

if TYPE_CHECKING:
    import httpx

SCHEMES: Final = frozenset({"http", "https"})
PATIENCE: Final = 30.0
"""How long a server may take to answer, in seconds, beyond what it was asked to wait."""

_CONNECT: Final = 10.0


class Address(Struct, frozen=True):
    """Where a server is, and the key to it."""

    url: str
    key: str | None = None

    def __repr__(self) -> str:
        return f"Address({self.url!r}{', with a key' if self.key else ''})"

    def __rich_repr__(self) -> Any:
        yield self.url


class Reply(Struct, frozen=True):
    """What a server answered."""

    status: int
    body: bytes


class Transport(Protocol):
    """Asks one server."""

    address: Address

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> Reply:
        """The reply, whatever its status; raises StoreUnavailable when there is none."""
        ...

    async def close(self) -> None: ...


def is_remote(url: str) -> bool:
    """Whether a store's URL is that of a server."""
    return urlsplit(url).scheme in SCHEMES


def check_address(url: str) -> None:
    """Raise InvalidSettings if no server can be at this URL."""
    parts = urlsplit(url)
    if not parts.hostname or parts.query or parts.fragment:
        raise InvalidSettings(
            f"the server's URL {_shown(url)!r} does not name one; use https://host, or https://host/path behind a proxy"
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidSettings(
            f"the server's URL {_shown(url)!r} has a user or password in it; leave them out, and give the key as "
            f"FAIRLEAD_API_KEY"
        )


def open_transport(address: Address, *, blocking: bool) -> Transport:
    """A way to the server; with `blocking` its coroutines do their work in the calling thread and never suspend."""
    check_address(address.url)
    try:
        import httpx  # noqa: F401 - only to say what is missing, and how to get it
    except ModuleNotFoundError as error:
        raise InvalidSettings(
            f"store URL {address.url!r} needs the package {error.name!r}; pip install 'fairlead[client]'"
        ) from None
    return _Blocking(address) if blocking else _Suspending(address)


class _Http:
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
        timeout = self._httpx.Timeout(patience, connect=_CONNECT)
        try:
            reply = await self._send(method, path, content=body, params=query, headers=headers, timeout=timeout)
        except self._httpx.HTTPError as error:
            raise _unreachable(self.address, error) from None
        return Reply(reply.status_code, reply.content)

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        raise NotImplementedError


class _Suspending(_Http):
    """A transport for an event loop."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._client: httpx.AsyncClient = self._httpx.AsyncClient(**_options(address))

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self._client.request(method, path, **options)

    async def close(self) -> None:
        await self._client.aclose()


class _Blocking(_Http):
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


def _unreachable(address: Address, error: Exception) -> StoreUnavailable:
    reason = str(error) or type(error).__name__
    return StoreUnavailable(f"the server at {address.url} does not answer: {reason}; is it up, and is the URL right?")


def _shown(url: str) -> str:
    """A URL without what may be a secret in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
