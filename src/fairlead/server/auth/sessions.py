"""Sessions of browsers: a random token in a cookie, and another that goes with it.

The store keeps a hash of the token, so any server of the store knows the session and none can make its cookie. It has
no rights of its own: it names the key that was shown at login, and revoking the key ends it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

from fairlead.admin.keys.service import ApiKey, Keyring
from fairlead.admin.keys.sessions import SessionRecord, name_of
from fairlead.core.instant import SECOND, Instant
from fairlead.core.secret_mask import Masked
from fairlead.server.record_cache import Copy

COOKIE: Final = "fairlead_session"
CSRF_HEADER: Final = "x-csrf-token"

_MARK: Final = COOKIE.encode() + b"="
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class Session(Masked, frozen=True):
    """What a cookie stands for."""

    key: str
    """The id of the key that was shown."""
    expires_at: Instant
    csrf_token: str
    """What a request that changes something must show in a header: a page of another origin cannot read it."""
    hidden = ("csrf_token",)


class Sessions(Copy[SessionRecord]):
    """The sessions of one store, as one server process knows them."""

    def __init__(self, keyring: Keyring, seconds: float) -> None:
        super().__init__(keyring.clock)
        self._keyring = keyring
        self._span = round(seconds * SECOND)

    async def load(self) -> Mapping[str, SessionRecord]:
        """Read the sessions."""
        return await self._keyring.sessions.read()

    async def open(self, key: ApiKey, path: str, *, secure: bool) -> tuple[Session, str]:
        """A session of the holder of a key, and the cookie to set."""
        token, expires_at = await self._keyring.open_session(key, self._span)
        self.note(name_of(token), SessionRecord(key.id, expires_at))
        seconds = (expires_at - self._clock.now()) // SECOND
        return Session(key.id, expires_at, _csrf_token(token)), _cookie(token, path, seconds, secure=secure)

    async def read(self, header: bytes) -> Session | None:
        """The session in a cookie header; None if there is none that is ours and still lasts."""
        token = _token(header)
        found = None if token is None else await self.find(name_of(token))
        if token is None or found is None or found.expires_at <= self._clock.now():
            return None
        return Session(found.key, found.expires_at, _csrf_token(token))

    async def close(self, header: bytes) -> None:
        """End the session in a cookie header, if there is one."""
        token = _token(header)
        if token is not None:
            await self._keyring.sessions.close(name_of(token))
            self.note(name_of(token), None)


def has_session(header: bytes) -> bool:
    """Whether a cookie header may hold a session."""
    return _MARK in header


def no_cookie(path: str, *, secure: bool) -> str:
    """The cookie that ends a session in the browser."""
    return _cookie("", path, 0, secure=secure)


def _csrf_token(token: str) -> str:
    """What goes with a session, made of its token: nobody else needs to keep it."""
    digest = hmac.digest(token.encode(), b"csrf", hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _cookie(token: str, path: str, seconds: int, *, secure: bool) -> str:
    text = f"{COOKIE}={token}; Path={path or '/'}; Max-Age={seconds}; HttpOnly; SameSite=Strict"
    return f"{text}; Secure" if secure else text


def _token(header: bytes) -> str | None:
    """The token in a cookie header; None if there is none, or what cannot be one."""
    for part in header.split(b";"):
        if part.strip().startswith(_MARK):
            token = part.strip().removeprefix(_MARK).decode("ascii", "replace")
            return token if _TOKEN.fullmatch(token) else None
    return None
