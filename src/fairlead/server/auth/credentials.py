"""Who calls, from where, and what they show for it: keys, and the sessions of browsers.

A server process keeps copies of the keys and sessions in the store, and reads them again every few seconds, beside the
requests if that can be helped.

Of a session the store keeps a hash of the token, so any server of the store knows it and none can make its cookie. It
has no rights of its own: it names the key that was shown at login, and revoking the key ends it.

A page that a person has open can make their browser call a server on the same machine. What it cannot do is lie about
its own origin, or about the name that it called: that is what is looked at here.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final, Generic, TypeAlias, TypeVar

from msgspec import Struct

from fairlead.admin.keys.service import ApiKey, Keyring
from fairlead.admin.keys.sessions import SessionRecord, name_of
from fairlead.core.hosts import host_of, is_loopback
from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.secret_mask import Masked
from fairlead.core.tenancy import Role
from fairlead.engine.runtime.clock import Clock
from fairlead.server.auth.rate_limits import Bucket


class Principal(Struct, frozen=True, cache_hash=True):
    """The holder of a key, or whoever calls a server that has none."""

    name: str
    roles: frozenset[Role]
    tenant: str | None = None
    """The only tenant that the holder may name; None for any."""
    keyless: bool = False
    """Whether the caller showed no key because none is needed, as on loopback."""
    key: str | None = None
    """The id of the key that was shown."""

    def may(self, role: Role) -> bool:
        """Whether the holder may do what the role is for."""
        return role in self.roles or Role.ADMIN in self.roles


ANYBODY = Principal("anybody", frozenset({Role.ADMIN}), keyless=True)
"""Whoever calls a server that needs no key."""

NOBODY = Principal("nobody", frozenset())
"""Whoever calls an endpoint that is for everybody, where nobody is asked for a key."""

Kept = TypeVar("Kept")

FRESH: Final = 2 * SECOND
"""What was read this long ago is used without a thought; what is older is read again beside the request."""
STALE: Final = 5 * SECOND
"""What is older is not used: the request waits until it is read. This bounds how long a revoked key still works."""

_EXTRA_RATE: Final = 1.0
_EXTRA_BURST: Final = 5


class Copy(Generic[Kept]):
    """What is kept, by its name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, Kept] = {}
        self._read_at: Span | None = None
        self._reading: asyncio.Task[Exception | None] | None = None
        self._changes = 0
        self._extra = Bucket(_EXTRA_RATE, _EXTRA_BURST, clock.monotonic())
        self.scans = 0
        """How often the store was asked."""

    async def load(self) -> Mapping[str, Kept]:
        """Read all from the store."""
        raise NotImplementedError

    @property
    def fresh(self) -> bool:
        """Whether what is known can be used without a thought."""
        return self._read_at is not None and self._clock.monotonic() - self._read_at < FRESH

    async def refresh(self, stale: Span = STALE) -> None:
        """Make sure that what is known is not stale."""
        if self._read_at is not None:
            age = self._clock.monotonic() - self._read_at
            if age < FRESH:
                return
            if age < stale:
                self._read()
                return
        await self._wait_for(self._read())

    def known(self, name: str) -> Kept | None:
        """What has this name, by what was read last."""
        return self._known.get(name)

    async def find(self, name: str) -> Kept | None:
        """What has this name.

        An unknown one may be new, so the store is asked; but not by everybody who makes names up: five times, and then
        once a second.
        """
        await self.refresh()
        found = self._known.get(name)
        if found is None and self._extra.take(self._clock.monotonic()) == 0.0:
            await self._wait_for(self._read())
            found = self._known.get(name)
        return found

    def note(self, name: str, kept: Kept | None) -> None:
        """Take in what this process has just put or, if None, removed."""
        self._changes += 1
        if kept is None:
            self._known.pop(name, None)
        else:
            self._known[name] = kept

    def _read(self) -> asyncio.Task[Exception | None]:
        """Read, or join whoever does."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._scan())
        return self._reading

    async def _wait_for(self, reading: asyncio.Task[Exception | None]) -> None:
        error = await asyncio.shield(reading)
        if error is not None:
            raise error

    async def _scan(self) -> Exception | None:
        while True:
            began, changes = self._clock.monotonic(), self._changes
            self.scans += 1
            try:
                found = await self.load()
            except Exception as error:
                # Told to those who wait for it; the others go on with what is known until it is stale.
                return error
            # What was read before a change of our own may not have it.
            if changes == self._changes:
                self._known = dict(found)
                self._read_at = began
                return None


class Holder(Struct, frozen=True):
    """A key and who it makes its holder."""

    key: ApiKey
    principal: Principal


class Directory(Copy[Holder]):
    """The holders by the ids of their keys."""

    def __init__(self, keyring: Keyring) -> None:
        super().__init__(keyring.clock)
        self._keyring = keyring
        self.seen_keys = False
        """Whether there ever were any: whoever revokes the last one does not mean to open the door to all."""

    async def load(self) -> Mapping[str, Holder]:
        """Read the keys."""
        keys, unread = await self._keyring.read()
        self.seen_keys = self.seen_keys or bool(keys or unread)
        return {key.id: Holder(key, _principal(key)) for key in keys}


def _principal(key: ApiKey) -> Principal:
    return Principal(key.name, frozenset(key.roles), tenant=key.tenant, key=key.id)


COOKIE: Final = "fairlead_session"
CSRF_HEADER: Final = "x-csrf-token"

_MARK: Final = COOKIE.encode() + b"="
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class Session(Masked, frozen=True):
    """What a cookie stands for."""

    key: str
    """The id of the key that was shown."""
    expires_at: Instant
    csrf_token: str
    """What a request that changes something must show in a header: a page of another origin cannot read it."""
    hidden = ("csrf_token",)


class Sessions(Copy[SessionRecord]):
    """The sessions of one store, as one server process knows them."""

    def __init__(self, keyring: Keyring, seconds: float) -> None:
        super().__init__(keyring.clock)
        self._keyring = keyring
        self._span = round(seconds * SECOND)

    async def load(self) -> Mapping[str, SessionRecord]:
        """Read the sessions."""
        return await self._keyring.sessions.read()

    async def open(self, key: ApiKey, path: str, *, secure: bool) -> tuple[Session, str]:
        """A session of the holder of a key, and the cookie to set."""
        token, expires_at = await self._keyring.open_session(key, self._span)
        self.note(name_of(token), SessionRecord(key.id, expires_at))
        seconds = (expires_at - self._clock.now()) // SECOND
        return Session(key.id, expires_at, _csrf_token(token)), _cookie(token, path, seconds, secure=secure)

    async def read(self, header: bytes) -> Session | None:
        """The session in a cookie header; None if there is none that is ours and still lasts."""
        token = _token(header)
        found = None if token is None else await self.find(name_of(token))
        if token is None or found is None or found.expires_at <= self._clock.now():
            return None
        return Session(found.key, found.expires_at, _csrf_token(token))

    async def close(self, header: bytes) -> None:
        """End the session in a cookie header, if there is one."""
        token = _token(header)
        if token is not None:
            await self._keyring.sessions.close(name_of(token))
            self.note(name_of(token), None)


def has_session(header: bytes) -> bool:
    """Whether a cookie header may hold a session."""
    return _MARK in header


def no_cookie(path: str, *, secure: bool) -> str:
    """The cookie that ends a session in the browser."""
    return _cookie("", path, 0, secure=secure)


def _csrf_token(token: str) -> str:
    """What goes with a session, made of its token: nobody else needs to keep it."""
    digest = hmac.digest(token.encode(), b"csrf", hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _cookie(token: str, path: str, seconds: int, *, secure: bool) -> str:
    text = f"{COOKIE}={token}; Path={path or '/'}; Max-Age={seconds}; HttpOnly; SameSite=Strict"
    return f"{text}; Secure" if secure else text


def _token(header: bytes) -> str | None:
    """The token in a cookie header; None if there is none, or what cannot be one."""
    for part in header.split(b";"):
        if part.strip().startswith(_MARK):
            token = part.strip().removeprefix(_MARK).decode("ascii", "replace")
            return token if _TOKEN.fullmatch(token) else None
    return None


Headers: TypeAlias = Mapping[bytes, bytes]
"""The headers of a request by their names in lower case."""

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""The methods that change nothing."""

_FORWARDED: Final = frozenset({
    b"x-forwarded", b"x-forwarded-by", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-path",
    b"x-forwarded-port", b"x-forwarded-prefix", b"x-forwarded-proto", b"x-forwarded-scheme", b"x-forwarded-server",
    b"x-forwarded-ssl", b"x-original-forwarded-for", b"x-original-host", b"x-original-url", b"x-real-ip",
    b"x-client-ip", b"x-cluster-client-ip", b"true-client-ip", b"cf-connecting-ip", b"fastly-client-ip",
    b"x-envoy-external-address", b"x-envoy-original-path", b"forwarded", b"via",
})  # fmt: skip
"""What proxies add by which they can be told. Many add none of these unless they are told to."""


@functools.lru_cache(maxsize=1024)
def _text(header: bytes) -> str:
    return header.decode("latin-1").strip().lower()


@functools.lru_cache(maxsize=1024)
def host_in(authority: str) -> str:
    """The host of `host:port`; empty if it is none."""
    return host_of(authority.strip().lower())


def called(headers: Headers) -> str:
    """The `host:port` that the request calls, in lower case."""
    return _text(headers.get(b"host", b""))


def origin(headers: Headers) -> str | None:
    """The `host:port` of the page that makes the request; None if no page does, empty if it will not say."""
    said = headers.get(b"origin")
    if said is None:
        return None
    return _text(said).partition("://")[2]


def is_same_origin(headers: Headers) -> bool:
    """Whether no page makes the request, or one of this server's own.

    Schemes are not compared: behind a proxy that ends TLS the server does not know its own.
    """
    if headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
        return False
    page = origin(headers)
    return page is None or (page != "" and page == called(headers))


def is_neighbourly(headers: Headers) -> bool:
    """The same, or a page that was served by this machine: to a server without keys those are alike."""
    if headers.get(b"sec-fetch-site", b"none") == b"cross-site":
        return False
    page = origin(headers)
    return page is None or (page != "" and (page == called(headers) or is_loopback(host_in(page))))


def came_through_proxy(headers: Headers) -> bool:
    """Whether a proxy says that it passed the request on.

    One that says nothing cannot be told: a forwarded port, a tunnel, or a proxy whose configuration adds no header and
    calls the server by a name of loopback. For the server its requests come from this machine.
    """
    return not _FORWARDED.isdisjoint(headers)
