"""Small versioned records: a table by kind and name."""

from __future__ import annotations

from fairlead.storage.values import Record


class Records:
    """The records of one memory store. The owner holds the lock."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, str], Record] = {}

    def put(self, kind: str, name: str, value: bytes, expected: int | None) -> int | None:
        """Store a record if it stands at the version expected; its new version."""
        stored = self.stored.get((kind, name))
        version = stored.version if stored else 0
        if expected is not None and expected != version:
            return None
        self.stored[kind, name] = Record(kind=kind, name=name, value=value, version=version + 1)
        return version + 1

    def drop(self, kind: str, name: str, expected: int | None) -> bool:
        """Remove a record if it stands at the version expected; whether there was one to remove."""
        stored = self.stored.get((kind, name))
        if stored is None or (expected is not None and expected != stored.version):
            return False
        del self.stored[kind, name]
        return True

    def scan(self, kind: str) -> list[Record]:
        """All records of a kind, by name."""
        return [record for (record_kind, _), record in sorted(self.stored.items()) if record_kind == kind]
