"""Tenants: what a caller that is bound to one may name, and in which scope the idempotency keys of its tasks are.

A key is of its queue and its tenant, so that no tenant learns of another's. A store knows a key by its queue and one
text. For tasks without a tenant that is the key itself; for those with one it is the key behind a digest of the tenant.
Before, it was the key itself for all. A store that has tasks from then goes on with that for one period, in which all
its servers are upgraded: it is the only name that older ones know. For another period keys are looked for under both
names, until what was named the old way is past.
"""

from __future__ import annotations

import enum
from typing import Final

from msgspec import Struct

from fairlead.core.errors import Forbidden
from fairlead.core.instant import DAY, Instant, Span


class Role(enum.StrEnum):
    """What a key may do. `admin` may do everything."""

    SUBMIT = "submit"
    READ = "read"
    WORK = "work"
    ADMIN = "admin"


UNBOUND: Final = "use a key that is bound to none"
"""The remedy for whoever is bound to a tenant and wants what concerns all of them."""

_SHOWN: Final = 64


def check_unbound(tenant: str | None) -> None:
    """Refuse a caller who is bound to a tenant: what it wants concerns the tasks of all tenants."""
    if tenant is not None:
        raise Forbidden("this concerns all tenants, and the key is bound to one", UNBOUND)


def tenant_named(tenant: str | None, named: str | None) -> str | None:
    """The tenant of a task that a caller submits: the one it names, else its own; refused if that is another's."""
    if tenant is None or named == tenant:
        return named
    if named is None:
        return tenant
    shown = named[:_SHOWN]
    remedy = "leave it out, or use a key of that tenant"
    raise Forbidden(f"tenant {shown!r} is not the one that this key is for", remedy, "tenant", shown)


_MARK: Final = "\x1f"
"""Begins the names of keys that are not the key itself."""
_NOBODY: Final = "0" * 32
"""In place of the digest of a tenant, where there is none."""
_LENGTH: Final = len(_MARK) + len(_NOBODY)


class Phase(enum.Enum):
    """How keys of tenants are named at a moment."""

    SHARED = enum.auto()
    """As older servers do: by themselves, whoever's they are."""
    BOTH = enum.auto()
    """In the scope of their tenant, while keys of before may still be held by themselves."""
    OWN = enum.auto()
    """In the scope of their tenant."""


class Upgrade(Struct, frozen=True, kw_only=True):
    """Since when the servers of a store know scopes."""

    since: Instant | None
    """None if no others have ever used the store."""

    def phase(self, now: Instant, period: Span) -> Phase:
        """How keys are named now, if what older servers named is held for so long."""
        if self.since is None or now >= self.since + 2 * max(period, DAY):
            return Phase.OWN
        return Phase.BOTH if now >= self.since + max(period, DAY) else Phase.SHARED


def key_name(key: str, tenant: str | None) -> str:
    """What a store knows a key by, in the scope of its tenant."""
    if tenant is not None:
        return f"{_MARK}{_digest(tenant)}{key}"
    return f"{_MARK}{_NOBODY}{key}" if key.startswith(_MARK) else key


def key_in(name: str) -> str:
    """The key that a store knows by this name, as it was given."""
    return name[_LENGTH:] if name.startswith(_MARK) and len(name) > _LENGTH else name


def _digest(tenant: str) -> str:
    # For tenants' keys only: it brings in all digests of OpenSSL, which most processes never use.
    import hashlib

    return hashlib.blake2b(tenant.encode(), digest_size=16).hexdigest()
