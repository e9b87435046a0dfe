"""Sessions of browsers: a signed cookie, which any server of the store can check, and the token that goes with it.

The cookie names the key that was shown at login. It has no rights of its own: revoking the key ends its sessions.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Final

from msgspec import Struct

from fairlead.core.instant import SECOND, Instant
from fairlead.engine.keys import Keyring

COOKIE: Final = "fairlead_session"
CSRF_HEADER: Final = "x-csrf-token"

_SECRET: Final = "session"  # noqa: S105 - the name of the record, not what is in it
_MARK: Final = COOKIE.encode() + b"="


class Session(Struct, frozen=True):
    """What a cookie says."""

    key: str
    """The id of the key that was shown."""
    expires_at: Instant
    csrf_token: str
    """What a request that changes something must show in a header: a page of another origin cannot read it."""


class Sessions:
    """Signs cookies and checks them."""

    def __init__(self, keyring: Keyring, seconds: float) -> None:
        self._keyring = keyring
        self._span = round(seconds * SECOND)
        self._secret: bytes | None = None

    async def open(self, key: str, path: str, *, secure: bool) -> tuple[Session, str]:
        """A session of the holder of a key, and the cookie to set."""
        expires = self._keyring.clock.now() + self._span
        said = f"{key}.{expires // SECOND}.{secrets.token_hex(8)}"
        token = f"{said}.{await self._sign('session', said)}"
        session = Session(key, expires, await self._sign("csrf", token))
        return session, _cookie(token, path, self._span // SECOND, secure=secure)

    async def read(self, header: bytes) -> Session | None:
        """The session in a cookie header; None if there is none that is ours and still lasts."""
        token = _token(header)
        said, _, signature = token.rpartition(".")
        parts = said.split(".")
        if len(parts) != 3 or not parts[1].isdigit() or len(parts[1]) > 12:
            return None
        if not hmac.compare_digest(signature.encode(), (await self._sign("session", said)).encode()):
            return None
        expires = int(parts[1]) * SECOND
        if expires <= self._keyring.clock.now():
            return None
        return Session(parts[0], expires, await self._sign("csrf", token))

    async def _sign(self, purpose: str, text: str) -> str:
        if self._secret is None:
            self._secret = await self._keyring.secret(_SECRET)
        digest = hmac.digest(self._secret, f"{purpose}:{text}".encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def has_session(header: bytes) -> bool:
    """Whether a cookie header may hold a session."""
    return _MARK in header


def no_cookie(path: str, *, secure: bool) -> str:
    """The cookie that ends a session in the browser."""
    return _cookie("", path, 0, secure=secure)


def _cookie(token: str, path: str, seconds: int, *, secure: bool) -> str:
    text = f"{COOKIE}={token}; Path={path or '/'}; Max-Age={seconds}; HttpOnly; SameSite=Strict"
    return f"{text}; Secure" if secure else text


def _token(header: bytes) -> str:
    for part in header.split(b";"):
        if part.strip().startswith(_MARK):
            return part.strip().removeprefix(_MARK).decode("ascii", "replace")
    return ""
