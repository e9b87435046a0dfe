"""Small versioned records: a row each."""

from __future__ import annotations

from fairlead.storage.postgres.connection.session import Session
from fairlead.storage.postgres.statements import Statements
from fairlead.storage.values import Record


class Records:
    """The part of a store that keeps records. The journal's are kept in the same way."""

    def __init__(self, session: Session, statements: Statements) -> None:
        self._session = session
        self._statements = statements

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        """Store a record if it stands at the version expected; its new version."""
        if expected:
            rows = await self._session.fetch(self._statements["records.replace"], (kind, name, value, expected))
        else:
            rows = await self._session.fetch(self._statements["records.put"], (kind, name, value, expected is None))
        return int(rows[0][0]) if rows else None

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        """Remove a record if it stands at the version expected; whether there was one to remove."""
        return bool(await self._session.fetch(self._statements["records.drop"], (kind, name, expected)))

    async def scan(self, kind: str) -> list[Record]:
        """All records of a kind, by name."""
        rows = await self._session.fetch(self._statements["records.all"], (kind,))
        return [Record(kind=kind, name=name, value=value, version=version) for name, value, version in rows]
