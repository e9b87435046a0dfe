"""The way to a server: requests go out, replies or errors come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from fairlead.core.errors import InvalidSettings, StoreUnavailable
from fairlead.core.hosts import host_of
from fairlead.core.secret_mask import masked
from fairlead.core.validation import check_login

SCHEMES: Final = frozenset({"http", "https"})
PATIENCE: Final = 30.0
"""How long a server may be silent, in seconds, beyond what it was asked to wait."""
CONNECTING: Final = 10.0
"""How long it may take to be connected to a server, in seconds."""


class Address(Struct, frozen=True):
    """Where a server is, and the key to it."""

    url: str
    key: str | None = None

    def __repr__(self) -> str:
        return f"Address({masked(self.url)!r}{', with a key' if self.key else ''})"

    def __rich_repr__(self) -> Any:
        yield masked(self.url)


class Reply(Struct, frozen=True):
    """What a server answered."""

    status: int
    body: bytes


class Broken(Exception):
    """Why a request got no answer."""


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
    return url.partition(":")[0].lower() in SCHEMES


def check_address(url: str) -> None:
    """Raise InvalidSettings if no server can be at this URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidSettings("the server's URL cannot be read; use https://host, or https://host/path") from None
    if not host_of(parts.netloc.rpartition("@")[2]) or parts.query or parts.fragment:
        raise InvalidSettings(
            f"the server's URL {masked(url)!r} does not name one; use https://host, or https://host/path behind a proxy"
        )
    check_login("the server's URL", url)
    try:
        parts.port  # noqa: B018 - it is read when it is asked for
    except ValueError:
        raise InvalidSettings(f"the server's URL {masked(url)!r} has an invalid port; use 1 to 65535") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidSettings(
            f"the server's URL {masked(url)!r} has a user or password in it; leave them out, and give the key as "
            f"FAIRLEAD_API_KEY"
        )


def unreachable(address: Address, error: Exception) -> StoreUnavailable:
    """The error of a request that got no answer."""
    reason = str(error) or type(error).__name__
    place = masked(address.url)
    return StoreUnavailable(f"the server at {place} does not answer: {reason}; is it up, and is the URL right?")
