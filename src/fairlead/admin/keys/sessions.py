"""Sessions of browsers, kept as records of the store; what is kept of one does not suffice to use it.

A session begins with a token of 256 random bits, which only its browser has. The record is called by the SHA-256 of the
token and says whose key was shown and until when it is good. So a copy of the store, or a backup, opens no session.
"""

from __future__ import annotations

import base64
import contextlib
from typing import Final

from msgspec import Struct

from fairlead.core.errors import StoreUnavailable
from fairlead.core.health.quarantine import QUARANTINE
from fairlead.core.instant import Instant
from fairlead.engine.records import DecodedRecord, Form, Records, decoder
from fairlead.engine.runtime.ids import Chance

SESSION_KIND: Final = "session"
MOST_PER_KEY: Final = 100
"""A key that opens more sessions ends its oldest: whoever has a key cannot fill the store with them."""

KEY_KIND: Final = "key"
"""The kind of record that a key is; a session is over when its key is gone."""

_TOKEN_BYTES: Final = 32
_TRIES: Final = 10
_SIGNING_SECRET: Final = ("secret", "session")
"""The record with which servers of earlier versions signed cookies, in clear. Nothing accepts it any more."""


class SessionRecord(Struct, frozen=True):
    """What is kept of a session."""

    key: str
    """The id of the key that was shown."""
    expires_at: Instant


FORM: Final = Form(kind=SESSION_KIND, decode=decoder(SessionRecord))


def name_of(token: str) -> str:
    """What the record of the session with this token is called."""
    # Imported here: every sweep has this module, and of those only servers need digests.
    import hashlib

    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


class SessionRecords:
    """The sessions of one store."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._store = records.store
        self._looked = False

    async def open(self, key: str, expires_at: Instant, chance: Chance, now: Instant) -> str:
        """Begin a session of the holder of a key; its token, which is known this once."""
        await self._make_room(key, now)
        for _ in range(_TRIES):
            token = base64.urlsafe_b64encode(chance.randbytes(_TOKEN_BYTES)).decode().rstrip("=")
            value = FORM.write(SessionRecord(key, expires_at))
            if await self._store.put(SESSION_KIND, name_of(token), value, expected=0) is not None:
                return token
        raise StoreUnavailable(f"no free session was found in {_TRIES} tries; try again")

    async def read(self) -> dict[str, SessionRecord]:
        """Every session, by what its record is called; those that are over too, until they are removed."""
        return {each.name: each.value for each in (await self._records.read(FORM)).kept}

    async def close(self, name: str) -> None:
        """End a session."""
        await self._store.drop(SESSION_KIND, name)

    async def close_all(self, key: str) -> None:
        """End every session of a key."""
        for name, session in (await self.read()).items():
            if session.key == key:
                await self.close(name)

    async def tidy(self, now: Instant) -> None:
        """Remove sessions that are over, those whose key is gone, and the secret of earlier versions."""
        await self._forget_signing_secret()
        sessions = (await self._records.read(FORM)).kept
        over = [each for each in sessions if each.value.expires_at <= now]
        if len(over) < len(sessions):
            # Looked at after the sessions: each was begun with a key that was there.
            with contextlib.suppress(StoreUnavailable):
                keys = {record.name for record in await self._store.scan(KEY_KIND)}
                over = [each for each in sessions if each.value.expires_at <= now or each.value.key not in keys]
        await self._drop(over)

    async def _forget_signing_secret(self) -> None:
        """Remove the secret of earlier versions: again and again, as long as their servers make it anew."""
        kind, name = _SIGNING_SECRET
        with contextlib.suppress(StoreUnavailable):
            if any(record.name == name for record in await self._store.scan(kind)):
                await self._store.drop(kind, name)
            # One that was damaged was set aside with its bytes. All that is there is read, so only once.
            if not self._looked and any(each.name == f"{kind}/{name}" for each in await self._store.scan(QUARANTINE)):
                await self._store.drop(QUARANTINE, f"{kind}/{name}")
            self._looked = True

    async def _make_room(self, key: str, now: Instant) -> None:
        sessions = (await self._records.read(FORM)).kept
        over = [each for each in sessions if each.value.expires_at <= now]
        mine = [each for each in sessions if each.value.key == key and each not in over]
        mine.sort(key=lambda each: each.value.expires_at)
        await self._drop([*over, *mine[: max(0, len(mine) + 1 - MOST_PER_KEY)]])

    async def _drop(self, sessions: list[DecodedRecord[SessionRecord]]) -> None:
        for each in sessions:
            await self._store.drop(SESSION_KIND, each.name, expected=each.version)
