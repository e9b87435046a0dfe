"""Sessions of browsers: how one begins, and who is logged in."""

from __future__ import annotations

from msgspec import Struct


class LoginRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key, in exchange for a cookie."""

    key: str
    """The whole key, as `fairlead keys create` showed it."""


class SessionShown(Struct, frozen=True, kw_only=True):
    """Who calls, and what they may do."""

    name: str | None
    """The name of the key; none if a key is needed and none was shown."""
    roles: list[str]
    """What the caller may do: `submit`, `read`, `work`, `admin`."""
    tenant: str | None = None
    """The only tenant that the caller may name; none for any."""
    key_needed: bool
    """Whether the caller has to show a key, or to log in, before anything else is answered."""
    csrf_token: str | None = None
    """With a cookie: what every request that changes something must carry in the header `x-csrf-token`."""
    expires_at: str | None = None
    """With a cookie: when it ends."""
