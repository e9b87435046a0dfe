"""API keys: who may call a server, kept as records of the store.

A key is `fl_<id>_<secret>`. The id finds the record. Of the secret only a SHA-256 is stored: it is 160 bits of
randomness, so there is nothing to guess and a slow hash, which is for what people think of, would only cost time.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import hmac
from collections.abc import Collection
from typing import Final

import msgspec
from msgspec import Struct

from fairlead.core.errors import InvalidSettings, KeyNotFound, StoreMismatch, StoreUnavailable
from fairlead.core.identity import check_name
from fairlead.core.instant import Instant
from fairlead.engine.engine import Engine
from fairlead.engine.identity import Chance, system_chance

PREFIX: Final = "fl"
"""What every key begins with, so that a program that looks for lost secrets can tell one."""

_KIND: Final = "key"
_SECRET_KIND: Final = "secret"  # noqa: S105 - the kind of record, not what is in it
_ID_BYTES: Final = 5
_SECRET_BYTES: Final = 20
_TENANT_LIMIT: Final = 200
_TRIES: Final = 10


class Role(enum.StrEnum):
    """What a key may do. `admin` may do everything."""

    SUBMIT = "submit"
    READ = "read"
    WORK = "work"
    ADMIN = "admin"


class ApiKey(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored of a key."""

    id: str
    name: str
    roles: tuple[Role, ...]
    created_at: Instant
    digest: str
    """The SHA-256 of the secret, in hexadecimal digits."""
    tenant: str | None = None
    """The only tenant that the holder may name; None for any."""
    expires_at: Instant | None = None
    rate: float | None = None
    """Requests a second that one server takes from it; None for the server's own setting, 0 for no limit."""

    def opens(self, secret: str) -> bool:
        """Whether this is the key's secret; takes the same time whatever is wrong with it."""
        return hmac.compare_digest(_digest(secret), self.digest)

    def expired(self, now: Instant) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and self.expires_at <= now


class NewKey(Struct, frozen=True):
    """A key that was just made."""

    key: ApiKey
    text: str
    """The whole key, secret and all: this is the only time that it is known."""


class Keyring:
    """The keys of one store."""

    def __init__(self, engine: Engine, chance: Chance | None = None) -> None:
        self._store = engine.store
        self.clock = engine.clock
        self._chance = chance or system_chance()

    async def create(
        self,
        name: str,
        roles: Collection[Role],
        *,
        tenant: str | None = None,
        expires: Instant | None = None,
        rate: float | None = None,
    ) -> NewKey:
        """Make a key. Names are for people: several keys may have the same one, as while one replaces another."""
        now = self.clock.now()
        _check(name, roles, tenant, expires, rate, now)
        for _ in range(_TRIES):
            secret = self._random(_SECRET_BYTES)
            key = ApiKey(
                id=self._random(_ID_BYTES),
                name=name,
                roles=tuple(role for role in Role if role in roles),
                created_at=now,
                digest=_digest(secret),
                tenant=tenant,
                expires_at=expires,
                rate=rate,
            )
            if await self._store.put(_KIND, key.id, msgspec.json.encode(key), expected=0) is not None:
                return NewKey(key, f"{PREFIX}_{key.id}_{secret}")
        raise StoreUnavailable(f"no free id for a key was found in {_TRIES} tries; try again")

    async def keys(self) -> list[ApiKey]:
        """Every key, the oldest first; those that have expired too, until they are revoked."""
        records = await self._store.scan(_KIND)
        return sorted((_decoded(record.name, record.value) for record in records), key=lambda key: key.created_at)

    async def revoke(self, named: str) -> ApiKey:
        """Remove a key, by its id or, if no other has it, by its name; the answer is the key."""
        keys = await self.keys()
        found = [key for key in keys if key.id == named] or [key for key in keys if key.name == named]
        if len(found) > 1:
            raise InvalidSettings(
                f"{len(found)} keys are called {named!r}; name one by its id: {', '.join(key.id for key in found)}"
            )
        if not found or not await self._store.drop(_KIND, found[0].id):
            raise KeyNotFound(named)
        return found[0]

    async def secret(self, name: str) -> bytes:
        """A secret that all servers of the store share; the first that asks for it makes it."""
        for _ in range(_TRIES):
            for record in await self._store.scan(_SECRET_KIND):
                if record.name == name:
                    return record.value
            made = self._chance.randbytes(32)
            if await self._store.put(_SECRET_KIND, name, made, expected=0) is not None:
                return made
        raise StoreUnavailable(f"the secret {name!r} was removed as often as it was made; try again")

    def _random(self, size: int) -> str:
        """Letters and digits: a double click selects a whole key."""
        return base64.b32encode(self._chance.randbytes(size)).decode().rstrip("=").lower()


def split(text: str) -> tuple[str, str] | None:
    """The id and the secret of a key; None for what cannot be one."""
    prefix, _, rest = text.partition("_")
    identity, _, secret = rest.partition("_")
    return (identity, secret) if prefix == PREFIX and identity and secret else None


def parse_roles(words: Collection[str]) -> frozenset[Role]:
    """Roles by their words."""
    try:
        return frozenset(Role(word) for word in words)
    except ValueError:
        unknown = ", ".join(repr(word) for word in words if word not in set(Role))
        raise InvalidSettings(f"role {unknown} is unknown; use {', '.join(Role)}") from None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _decoded(name: str, value: bytes) -> ApiKey:
    try:
        return msgspec.json.decode(value, type=ApiKey)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise StoreMismatch(f"the record of key {name} cannot be read; it is damaged, or of another version") from None


def _check(
    name: str, roles: Collection[Role], tenant: str | None, expires: Instant | None, rate: float | None, now: Instant
) -> None:
    check_name("name", name)
    if not roles:
        raise InvalidSettings(f"the key {name!r} would have no role; give it at least one of {', '.join(Role)}")
    if tenant is not None and not 1 <= len(tenant) <= _TENANT_LIMIT:
        raise InvalidSettings(f"tenant has {len(tenant)} characters; use 1 to {_TENANT_LIMIT}")
    if expires is not None and expires <= now:
        raise InvalidSettings(f"the key {name!r} would have expired already; choose a moment in the future")
    if rate is not None and not 0 <= rate <= 1e9:
        raise InvalidSettings(f"rate {rate} is not a number of requests a second; use 0 for no limit, or more")
