"""Who may pass: keys, roles and limits, looked at before a request is read.

A caller shows a key in the header `Authorization: Bearer fl_…`, or a session cookie that was given for one. While the
store has no key at all, callers are let in without one if the server was told so, which it is on loopback; then only
names of loopback may be called and only pages of this machine may call, so that no web page can reach the server
through somebody's browser. Requests that say that a proxy passed them on are refused then; one that says nothing passes
for a program of this machine. From the first key on, keys are needed everywhere; that takes effect within seconds, and
a running server does not go back when the last key is revoked.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Collection
from typing import Final

from starlette.types import Scope

from fairlead.admin.keys.service import Keyring, split
from fairlead.core.errors import StoreError
from fairlead.core.hosts import is_loopback
from fairlead.core.tenancy import Role
from fairlead.server.auth.credentials import (
    ANYBODY,
    CSRF_HEADER,
    FRESH,
    NOBODY,
    SAFE_METHODS,
    Directory,
    Headers,
    Holder,
    Principal,
    Session,
    Sessions,
    called,
    came_through_proxy,
    has_session,
    host_in,
    is_neighbourly,
    is_same_origin,
    no_cookie,
    origin,
)
from fairlead.server.auth.rate_limits import RateLimits
from fairlead.server.http.problems import Refusal
from fairlead.server.http.response import headers_of
from fairlead.server.settings import ServerSettings

RECHECK: Final = 1.5
"""Seconds between two looks at whether somebody who listens may still do so."""

_CHALLENGE: Final = (("www-authenticate", 'Bearer realm="fairlead"'),)
_CHALLENGE_AGAIN: Final = (("www-authenticate", 'Bearer realm="fairlead", error="invalid_token"'),)
_CSRF: Final = CSRF_HEADER.encode()
_MAKE_A_KEY: Final = "create one with `fairlead keys create` and send it as `Authorization: Bearer fl_…`"
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
        self._limits = RateLimits(settings.rate_limit, settings.rate_burst)
        self._keyless = keyless
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def admit(self, scope: Scope, role: Role | None) -> Principal:
        """The caller; refused when it has no key that allows the role, or asks too often."""
        if role is None:
            return NOBODY
        headers = headers_of(scope)
        holder = await self._shown(headers) if b"authorization" in headers else None
        if holder is None:
            session, holder = await self._session(headers)
            if session is not None and scope["method"] not in SAFE_METHODS:
                _check_csrf(headers, session)
        if holder is None:
            self._check_keyless(headers, changes=scope["method"] not in SAFE_METHODS)
            return ANYBODY
        return self._checked(holder, role)

    def admit_at_once(self, headers: Headers, role: Role | None, *, changes: bool) -> Principal | None:
        """The caller of a request that changes something or not, if no more needs to be read to know it; else None."""
        if role is None:
            return NOBODY
        if not self._directory.fresh or b"cookie" in headers:
            return None
        if b"authorization" not in headers:
            self._check_keyless(headers, changes=changes)
            return ANYBODY
        holder = self._known(headers)
        return None if holder is None or holder.key.expired(self._clock.now()) else self._checked(holder, role)

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

    async def recheck(self, scope: Scope, role: Role) -> None:
        """Refuse a caller who was let in and would not be now: the key was revoked, or its time or session is over.

        What is known of keys is at most as old as `FRESH` then, so whoever asks every `RECHECK` seconds tells within
        five. While the store cannot be asked nobody is refused: there is nothing to hear or to take from it either.
        """
        headers = dict(scope["headers"])
        try:
            await self._directory.refresh(FRESH)
            if has_session(headers.get(b"cookie", b"")):
                await self._sessions.refresh(FRESH)
            holder = await self._shown(headers)
            if holder is None:
                _, holder = await self._session(headers)
        except StoreError:
            known = self._known(headers)
            if known is not None and known.key.expired(self._clock.now()):
                raise _expired(known) from None
            return
        if holder is not None:
            _check_role(holder, role)
        elif self._directory.seen_keys and has_session(headers.get(b"cookie", b"")):
            raise Refusal("unauthorized", "the session has ended; log in again", remedy="log in again")
        else:
            self._check_keyless(headers, changes=False)

    async def watch(self, scope: Scope, role: Role) -> Refusal:
        """Return why, once a caller who goes on listening would not be let in any more."""
        while True:
            await asyncio.sleep(RECHECK)
            try:
                await self.recheck(scope, role)
            except Refusal as refusal:
                return refusal

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
        self._check_origin(scope)
        holder = await self._verified(key)
        self._check_rate(holder)
        session, cookie = await self._sessions.open(holder.key, cookie_path(scope), secure=is_secure(scope))
        return holder.principal, session, cookie

    async def log_out(self, scope: Scope) -> str:
        """End the session of the request, if it has one, and give the cookie that its browser forgets it by."""
        self._check_origin(scope)
        for name, value in scope["headers"]:
            if name == b"cookie":
                await self._sessions.close(value)
        return no_cookie(cookie_path(scope), secure=is_secure(scope))

    def _check_origin(self, scope: Scope) -> None:
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
                "this API key is unknown: it is mistyped, was revoked, or belongs to another store; "
                "`fairlead keys list` shows the keys of this store",
                remedy="use a key that `fairlead keys list` shows",
                headers=_CHALLENGE_AGAIN,
            )
        if holder.key.expired(self._clock.now()):
            raise _expired(holder)
        return holder

    def _known(self, headers: Headers) -> Holder | None:
        """The holder of the key in the request's header, by what was read last; None if it does not open."""
        shown = headers.get(b"authorization")
        parts = None if shown is None else split(_bearer(shown))
        holder = None if parts is None else self._directory.known(parts[0])
        return None if parts is None or holder is None or not holder.key.opens(parts[1]) else holder

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
        # What workers say is not counted: to refuse a heartbeat or a result would cost the task an attempt.
        if role is not Role.WORK:
            self._check_rate(holder)
        _check_role(holder, role)
        return holder.principal

    def _check_rate(self, holder: Holder) -> None:
        """Refuse a holder who asks too often."""
        key = holder.key
        wait = self._limits.take(key.id, key.tenant, key.rate, self._clock.monotonic())
        if wait:
            raise Refusal(
                "rate-limited",
                f"the API key {key.name!r}, or its tenant, is over its rate limit; try again in {wait} s",
                remedy=f"try again in {wait} s",
                headers=(("retry-after", str(wait)),),
            )

    def _check_keyless(self, headers: Headers, *, changes: bool) -> None:
        """Refuse a caller without a key, unless none is needed."""
        if self._directory.seen_keys:
            raise Refusal(
                "unauthorized", f"an API key is required; {_SHOW_A_KEY}", remedy=_SHOW_A_KEY, headers=_CHALLENGE
            )
        if not self._keyless:
            raise Refusal(
                "unauthorized",
                f"an API key is required, and this server has none yet; {_MAKE_A_KEY}",
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


def _expired(holder: Holder) -> Refusal:
    return Refusal(
        "unauthorized",
        f"the API key {holder.key.name!r} has expired; create another with `fairlead keys create`",
        remedy="create another with `fairlead keys create`",
        headers=_CHALLENGE_AGAIN,
    )


def _check_role(holder: Holder, role: Role) -> None:
    key = holder.key
    if not holder.principal.may(role):
        has = ", ".join(key.roles)
        raise Refusal(
            "forbidden",
            f"the API key {key.name!r} has the role {has}, and this requires the role {role}; use a key that has it",
            remedy=f"use a key that has the role {role}",
        )


def _bearer(shown: bytes) -> str:
    """The key in an authorization header."""
    scheme, _, key = shown.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        raise Refusal(
            "unauthorized",
            f"the Authorization header is not `Bearer` and an API key; {_SHOW_A_KEY}",
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
            f"a request with a session cookie must have the header {CSRF_HEADER}; "
            "send the csrf_token that GET /api/v1/session answers",
            remedy="send the csrf_token that GET /api/v1/session answers",
        )


def _foreign(headers: Headers) -> Refusal:
    page = (origin(headers) or "another site")[:200]
    return Refusal(
        "wrong-origin",
        f"a web page of {page} may not send this request to {called(headers)[:200]}; send it from a page of this "
        "server, or from a program with an API key",
        remedy="send it from a page of this server, or from a program with an API key",
    )


def _exposed(how: str) -> Refusal:
    return Refusal(
        "wrong-origin",
        f"without API keys this server answers its own machine only, and {how}; {_MAKE_A_KEY}",
        remedy=_MAKE_A_KEY,
    )
