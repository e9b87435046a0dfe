"""Who may pass: keys, roles and limits, looked at before a request is read.

A caller shows a key in the header `Authorization: Bearer fl_…`, or a session cookie that was given for one. While the
store has no key at all, callers are let in without one if the server was told so, which it is on loopback; then only
names of loopback may be called and only pages of this machine may call, so that no web page can reach the server
through somebody's browser. From the first key on, keys are needed everywhere; that takes effect within seconds, and a
running server does not go back when the last key is revoked.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from typing import Final

from starlette.types import Scope

from fairlead.engine.keys import Keyring, split
from fairlead.server.cookies import CSRF_HEADER, Session, Sessions, has_session
from fairlead.server.directory import Directory, Holder
from fairlead.server.limits import Limits
from fairlead.server.origins import (
    SAFE_METHODS,
    Headers,
    called,
    came_through_proxy,
    host_in,
    is_loopback,
    is_neighbourly,
    is_same_origin,
    origin,
)
from fairlead.server.principal import ANYBODY, NOBODY, Principal, Role
from fairlead.server.refusals import Refusal
from fairlead.server.settings import ServerSettings

_CHALLENGE: Final = (("www-authenticate", 'Bearer realm="fairlead"'),)
_CHALLENGE_AGAIN: Final = (("www-authenticate", 'Bearer realm="fairlead", error="invalid_token"'),)
_CSRF: Final = CSRF_HEADER.encode()
_MAKE_A_KEY: Final = "make a key with `fairlead keys create` and send it as `Authorization: Bearer fl_…`"
_SHOW_A_KEY: Final = "send one as `Authorization: Bearer fl_…`"


class Gate:
    """Lets callers in."""

    def __init__(
        self,
        keyring: Keyring,
        settings: ServerSettings | None = None,
        *,
        keyless: bool = True,
        hosts: Collection[str] | None = None,
    ) -> None:
        """`keyless` lets callers in without a key as long as there are no keys.

        `hosts` are the names, beside those of loopback, by which such callers may call the server; None for any.
        """
        settings = settings or ServerSettings()
        self._clock = keyring.clock
        self._directory = Directory(keyring)
        self._sessions = Sessions(keyring, settings.session_seconds)
        self._limits = Limits(settings.rate_limit, settings.rate_burst)
        self._keyless = keyless
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def admit(self, scope: Scope, role: Role | None) -> Principal:
        """The caller; refused when it has no key that allows the role, or asks too often."""
        if role is None:
            return NOBODY
        headers = dict(scope["headers"])
        holder = await self._shown(headers) if b"authorization" in headers else None
        if holder is None:
            session, holder = await self._session(headers)
            if session is not None and scope["method"] not in SAFE_METHODS:
                _check_csrf(headers, session)
        if holder is None:
            self._check_keyless(headers, changes=scope["method"] not in SAFE_METHODS)
            return ANYBODY
        return self._checked(holder, role)

    def admit_at_once(self, headers: Headers, role: Role) -> Principal | None:
        """The caller of a request that changes something, if no more needs to be read to know it; else None."""
        if not self._directory.fresh or b"cookie" in headers:
            return None
        shown = headers.get(b"authorization")
        if shown is None:
            self._check_keyless(headers, changes=True)
            return ANYBODY
        parts = split(_bearer(shown))
        holder = None if parts is None else self._directory.known(parts[0])
        if parts is None or holder is None or not holder.key.opens(parts[1]) or holder.key.expired(self._clock.now()):
            return None
        return self._checked(holder, role)

    async def admit_websocket(self, scope: Scope, role: Role) -> Principal:
        """The caller who opens a WebSocket; with a cookie, only from a page of this server.

        Browsers let any page open one anywhere, cookies included, and its answers can be read: so the origin counts
        here even though nothing is changed.
        """
        headers = dict(scope["headers"])
        holder = await self._shown(headers)
        if holder is None:
            _, holder = await self._session(headers)
            if holder is not None and (origin(headers) is None or not is_same_origin(headers)):
                raise _foreign(headers)
        if holder is None:
            self._check_keyless(headers, changes=True)
            return ANYBODY
        return self._checked(holder, role)

    async def identify(self, scope: Scope) -> tuple[Principal, Session | None]:
        """Who calls, by key, by cookie or because no key is needed; NOBODY if they would have to show one."""
        headers = dict(scope["headers"])
        session = None
        try:
            holder = await self._shown(headers)
            if holder is None:
                session, holder = await self._session(headers)
            if holder is None:
                self._check_keyless(headers, changes=False)
                return ANYBODY, None
        except Refusal:
            return NOBODY, None
        return holder.principal, session

    async def log_in(self, scope: Scope, key: str) -> tuple[Principal, Session, str]:
        """A session of the key's holder, and the cookie for their browser; refused to pages of other origins."""
        self.check_origin(scope)
        holder = await self._verified(key)
        session, cookie = await self._sessions.open(holder.key.id, cookie_path(scope), secure=is_secure(scope))
        return holder.principal, session, cookie

    def check_origin(self, scope: Scope) -> None:
        """Refuse a request that a page of another origin makes."""
        headers = dict(scope["headers"])
        if not is_same_origin(headers):
            raise _foreign(headers)

    async def _shown(self, headers: Headers) -> Holder | None:
        """The holder of the key in the request's header; None if there is none in it."""
        shown = headers.get(b"authorization")
        if shown is None:
            return None
        return await self._verified(_bearer(shown))

    async def _verified(self, key: str) -> Holder:
        parts = split(key)
        holder = None if parts is None else await self._directory.find(parts[0])
        if parts is None or holder is None or not holder.key.opens(parts[1]):
            raise Refusal(
                "unauthorized",
                "this key is not known: it is misspelt, was revoked, or belongs to another store; "
                "`fairlead keys list` shows those there are",
                remedy="use a key that `fairlead keys list` shows",
                headers=_CHALLENGE_AGAIN,
            )
        if holder.key.expired(self._clock.now()):
            raise Refusal(
                "unauthorized",
                f"the key {holder.key.name!r} has expired; make another with `fairlead keys create`",
                remedy="make another with `fairlead keys create`",
                headers=_CHALLENGE_AGAIN,
            )
        return holder

    async def _session(self, headers: Headers) -> tuple[Session | None, Holder | None]:
        """The session in the request's cookie and the holder of its key, if both are still good."""
        if not self._directory.fresh:
            await self._directory.refresh()
        cookie = headers.get(b"cookie")
        if cookie is None or not has_session(cookie) or not self._directory.seen_keys:
            return None, None
        session = await self._sessions.read(cookie)
        holder = None if session is None else await self._directory.find(session.key)
        if holder is None or holder.key.expired(self._clock.now()):
            return None, None
        return session, holder

    def _checked(self, holder: Holder, role: Role) -> Principal:
        """The holder, if they may and do not ask too often."""
        key, principal = holder.key, holder.principal
        # What workers say is not counted: to refuse a heartbeat or a result would cost the task an attempt.
        counts = role is not Role.WORK
        wait = self._limits.take(key.id, key.tenant, key.rate, self._clock.monotonic()) if counts else 0
        if wait:
            raise Refusal(
                "rate-limited",
                f"the key {key.name!r}, or its tenant, asks more often than it may; try again in {wait} s",
                remedy=f"try again in {wait} s",
                headers=(("retry-after", str(wait)),),
            )
        if not principal.may(role):
            has = ", ".join(key.roles)
            raise Refusal(
                "forbidden",
                f"the key {key.name!r} has the role {has}, and this needs the role {role}; use a key that has it",
                remedy=f"use a key that has the role {role}",
            )
        return principal

    def _check_keyless(self, headers: Headers, *, changes: bool) -> None:
        """Refuse a caller without a key, unless none is needed."""
        if self._directory.seen_keys:
            raise Refusal("unauthorized", f"a key is needed; {_SHOW_A_KEY}", remedy=_SHOW_A_KEY, headers=_CHALLENGE)
        if not self._keyless:
            raise Refusal(
                "unauthorized",
                f"a key is needed, and this server has none yet; {_MAKE_A_KEY}",
                remedy=_MAKE_A_KEY,
                headers=_CHALLENGE,
            )
        if self._hosts is not None:
            host = host_in(called(headers))
            if not is_loopback(host) and host not in self._hosts:
                raise _exposed(f"it was called as {host[:200]!r}")
            if came_through_proxy(headers):
                raise _exposed("the request came through a proxy")
        if changes and not is_neighbourly(headers):
            raise _foreign(headers)


def _bearer(shown: bytes) -> str:
    """The key in an authorization header."""
    scheme, _, key = shown.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        raise Refusal(
            "unauthorized",
            f"the authorization header is not a bearer key; {_SHOW_A_KEY}",
            remedy=_SHOW_A_KEY,
            headers=_CHALLENGE_AGAIN,
        )
    return key.strip()


def is_secure(scope: Scope) -> bool:
    """Whether the request came over TLS, as far as is known."""
    return scope.get("scheme") in ("https", "wss")


def cookie_path(scope: Scope) -> str:
    """The path below which a cookie is sent back: where the server is, behind whatever proxy."""
    return scope.get("root_path") or "/"


def _check_csrf(headers: Headers, session: Session) -> None:
    if not is_same_origin(headers):
        raise _foreign(headers)
    if not hmac.compare_digest(headers.get(_CSRF, b""), session.csrf_token.encode()):
        raise Refusal(
            "wrong-origin",
            f"with a session cookie this needs the header {CSRF_HEADER}; "
            "send the csrf_token that GET /api/v1/session gives",
            remedy="send the csrf_token that GET /api/v1/session gives",
        )


def _foreign(headers: Headers) -> Refusal:
    page = (origin(headers) or "another site")[:200]
    return Refusal(
        "wrong-origin",
        f"a page of {page} may not do this to {called(headers)[:200]}; call from a page of the server itself, or with "
        "a key and no page",
        remedy="call from a page of the server itself, or with a key and no page",
    )


def _exposed(how: str) -> Refusal:
    return Refusal(
        "wrong-origin",
        f"without keys this server serves its own machine only, and {how}; {_MAKE_A_KEY}",
        remedy=_MAKE_A_KEY,
    )
