"""API keys: who may call a server, kept as records of the store.

A key is `fl_<id>_<secret>`. The id finds the record. Of the secret only a SHA-256 is stored: it is 160 bits of
randomness, so there is nothing to guess and a slow hash, which is for what people think of, would only cost time.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
from collections.abc import Collection
from typing import Final

import msgspec
from msgspec import Struct

from fairlead.admin.keys.sessions import KEY_KIND, SessionRecords
from fairlead.core.errors import InvalidSettings, KeyNotFound, StoreError, StoreUnavailable
from fairlead.core.identity import check_name
from fairlead.core.instant import Instant, Span
from fairlead.core.secret_mask import Masked
from fairlead.core.tenancy import Role
from fairlead.core.validation import bad_setting, check_instant, check_number, check_text
from fairlead.engine.engine import Engine
from fairlead.engine.records import Form
from fairlead.engine.runtime.ids import Chance, system_chance

PREFIX: Final = "fl"
"""What every key begins with, so that a program that looks for lost secrets can tell one."""

_KIND: Final = KEY_KIND
_ID_BYTES: Final = 5
_SECRET_BYTES: Final = 20
_TENANT_LIMIT: Final = 200
_MOST_RATE: Final = 1e9
_TRIES: Final = 10


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


class NewKey(Masked, frozen=True):
    """A key that was just made."""

    key: ApiKey
    text: str
    """The whole key, secret and all: this is the only time that it is known."""
    hidden = ("text",)


class Keyring:
    """The keys of one store."""

    def __init__(self, engine: Engine, chance: Chance | None = None) -> None:
        self._records = engine.records
        self._store = engine.store
        self.clock = engine.clock
        self._chance = chance or system_chance()
        self.sessions = SessionRecords(engine.records)

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
            if await self._store.put(_KIND, key.id, KEY.write(key), expected=0) is not None:
                return NewKey(key, f"{PREFIX}_{key.id}_{secret}")
        raise StoreUnavailable(f"no free id for a key was found in {_TRIES} tries; try again")

    async def keys(self) -> list[ApiKey]:
        """Every key, the oldest first; those that have expired too, until they are revoked."""
        return (await self.read())[0]

    async def read(self) -> tuple[list[ApiKey], list[str]]:
        """Every key that can be read, the oldest first, and the ids of those that cannot, which count as keys."""
        read = await self._records.read(KEY)
        return sorted(read.values, key=lambda key: key.created_at), [each.name for each in read.unread]

    async def revoke(self, named: str) -> ApiKey:
        """Remove a key, by its id or, if no other has it, by its name; the answer is the key."""
        # One that cannot be read is named by its id: whoever revokes it is told what to do instead.
        await self._records.get(KEY, named)
        keys = await self.keys()
        found = [key for key in keys if key.id == named] or [key for key in keys if key.name == named]
        if len(found) > 1:
            raise InvalidSettings(
                f"{len(found)} keys are called {named!r}; name one by its id: {', '.join(key.id for key in found)}"
            )
        if not found or not await self._store.drop(_KIND, found[0].id):
            raise KeyNotFound(named)
        # Without their key they are good for nothing, and removed by a sweep at the latest.
        with contextlib.suppress(StoreError):
            await self.sessions.close_all(found[0].id)
        return found[0]

    async def open_session(self, key: ApiKey, length: Span) -> tuple[str, Instant]:
        """Begin a session of a key's holder, which ends with the key: its token, known this once, and its end."""
        now = self.clock.now()
        expires = now + length if key.expires_at is None else min(now + length, key.expires_at)
        return await self.sessions.open(key.id, expires, self._chance, now), expires

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


def _decoded(value: bytes) -> ApiKey:
    key = msgspec.json.decode(value, type=ApiKey)
    if len(bytes.fromhex(key.digest)) != hashlib.sha256().digest_size:
        raise ValueError("its digest is not a SHA-256 digest")
    return key


KEY: Final = Form(kind=_KIND, decode=_decoded, encode=msgspec.json.encode, name_of=lambda key: key.id, sealed=True)
"""A key that cannot be read lets nobody in, and counts: a server that has keys does not open to everybody."""


def _check(
    name: str, roles: Collection[Role], tenant: str | None, expires: Instant | None, rate: float | None, now: Instant
) -> None:
    check_name("name", name)
    if not roles:
        raise InvalidSettings(f"the key {name!r} has no role; give it at least one of {', '.join(Role)}")
    if tenant is not None:
        check_text("tenant", tenant, _TENANT_LIMIT, bad_setting)
    if expires is not None:
        check_instant("expires", expires, bad_setting)
    if expires is not None and expires <= now:
        raise InvalidSettings(f"the key {name!r} has an expiry in the past; choose a moment in the future")
    if rate is not None:
        check_number("rate in requests a second", rate, 0, _MOST_RATE, bad_setting)
