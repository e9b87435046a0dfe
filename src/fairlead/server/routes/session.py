"""Logging a browser in and out."""

from __future__ import annotations

from fairlead.core.secret_mask import Masked
from fairlead.core.tenancy import Role
from fairlead.server.auth.principal import NOBODY, Principal
from fairlead.server.auth.sessions import Session
from fairlead.server.endpoint import Answer, Call, Served
from fairlead.wire.endpoint import Empty
from fairlead.wire.times import iso
from fairlead.wire.words import RoleName


class LoginRequest(Masked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key, in exchange for a cookie."""

    key: str
    """The whole key, as `fairlead keys create` showed it."""
    hidden = ("key",)


class SessionShown(Masked, frozen=True, kw_only=True):
    """Who calls, and what they may do."""

    name: str | None
    """The name of the key; none if a key is needed and none was shown."""
    roles: list[RoleName]
    """What the caller may do."""
    tenant: str | None = None
    """The only tenant that the caller may name; none for any."""
    key_needed: bool
    """Whether the caller has to show a key, or to log in, before anything else is answered."""
    csrf_token: str | None = None
    """With a cookie: what every request that changes something must carry in the header `x-csrf-token`."""
    expires_at: str | None = None
    """With a cookie: when it ends."""
    hidden = ("csrf_token",)


async def log_in(call: Call[Empty, LoginRequest]) -> Answer:
    """Exchange a key for a session cookie, which the browser's scripts cannot read.

    The session may do what the key may, and ends with it, or after twelve hours unless the server says otherwise.
    Requests with the cookie that change something must carry the answer's `csrf_token` in the header `x-csrf-token`.
    """
    principal, session, cookie = await call.state.gate.log_in(call.scope, call.body.key)
    return Answer(_shown(principal, session), status=201, headers=(("set-cookie", cookie),))


async def show(call: Call[Empty, None]) -> Answer:
    """Show who the caller is: known by a key, by a cookie, or anybody while the server needs no key.

    It answers callers without a key too, so that a page can tell whether to ask for one.
    """
    return Answer(_shown(*await call.state.gate.identify(call.scope)))


async def log_out(call: Call[Empty, None]) -> Answer:
    """End the session of this browser: its cookie stops working at once, on other servers within seconds.

    To end all sessions of a key, revoke the key.
    """
    cookie = await call.state.gate.log_out(call.scope)
    return Answer(status=204, headers=(("set-cookie", cookie),))


def _shown(principal: Principal, session: Session | None) -> SessionShown:
    return SessionShown(
        name=None if principal is NOBODY else principal.name,
        roles=[str(role) for role in Role if role in principal.roles],
        tenant=principal.tenant,
        key_needed=principal is NOBODY,
        csrf_token=None if session is None else session.csrf_token,
        expires_at=None if session is None else iso(session.expires_at),
    )


_PATH = "/api/v1/session"

ENDPOINTS = (
    Served(
        method="POST",
        path=_PATH,
        handler=log_in,
        summary="Log in with an API key",
        role=None,
        body=LoginRequest,
        answers={201: SessionShown},
        problems=(401, 403, 429, 503),
    ),
    Served(
        method="GET",
        path=_PATH,
        handler=show,
        summary="Show the session",
        role=None,
        answers={200: SessionShown},
    ),
    Served(
        method="DELETE",
        path=_PATH,
        handler=log_out,
        summary="Log out",
        role=None,
        answers={204: None},
        problems=(403, 503),
    ),
)
