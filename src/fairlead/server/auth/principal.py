"""Who calls, and what they may do."""

from __future__ import annotations

from msgspec import Struct

from fairlead.core.tenancy import Role


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

__all__ = ["ANYBODY", "NOBODY", "Principal", "Role"]
