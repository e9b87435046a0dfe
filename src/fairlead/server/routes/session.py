"""Logging a browser in and out."""

from __future__ import annotations

from fairlead.engine.keys import Role
from fairlead.server.cookies import Session, no_cookie
from fairlead.server.endpoint import Answer, Call, Empty, Endpoint
from fairlead.server.gate import cookie_path, is_secure
from fairlead.server.principal import NOBODY, Principal
from fairlead.wire.moments import iso
from fairlead.wire.sessions import LoginRequest, SessionShown


async def log_in(call: Call[Empty, LoginRequest]) -> Answer:
    """Exchange a key for a session cookie, which the browser's scripts cannot read.

    The session may do what the key may, and ends with it, or after twelve hours unless the server says otherwise.
    Requests with the cookie that change something must carry the answer's `csrf_token` in the header `x-csrf-token`.
    """
    principal, session, cookie = await call.hub.gate.log_in(call.scope, call.body.key)
    return Answer(_shown(principal, session), status=201, headers=(("set-cookie", cookie),))


async def show(call: Call[Empty, None]) -> Answer:
    """Say who calls: by key, by cookie, or anybody while the server needs no key.

    It answers callers without a key too, so that a page can tell whether to ask for one.
    """
    return Answer(_shown(*await call.hub.gate.identify(call.scope)))


async def log_out(call: Call[Empty, None]) -> Answer:
    """Have the browser forget its session. To end all sessions of a key, revoke the key."""
    call.hub.gate.check_origin(call.scope)
    cookie = no_cookie(cookie_path(call.scope), secure=is_secure(call.scope))
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
    Endpoint(
        method="POST",
        path=_PATH,
        handler=log_in,
        summary="Log a browser in",
        role=None,
        body=LoginRequest,
        answers={201: SessionShown},
        problems=(401, 403),
    ),
    Endpoint(
        method="GET",
        path=_PATH,
        handler=show,
        summary="Show who calls",
        role=None,
        answers={200: SessionShown},
    ),
    Endpoint(
        method="DELETE",
        path=_PATH,
        handler=log_out,
        summary="Log a browser out",
        role=None,
        answers={204: None},
        problems=(403,),
    ),
)
