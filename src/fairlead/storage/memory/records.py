"""Small versioned records: a table by kind and name."""

from __future__ import annotations

from fairlead.storage.values import Record


class Records:
    """The records of one memory store. The owner holds the lock."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Record]] = {}
        """By kind and name."""

    def put(self, kind: str, name: str, value: bytes, expected: int | None) -> int | None:
        """Store a record if it stands at the version expected; its new version."""
        alike = self.stored.setdefault(kind, {})
        stored = alike.get(name)
        version = stored.version if stored else 0
        if expected is not None and expected != version:
            return None
        alike[name] = Record(kind=kind, name=name, value=value, version=version + 1)
        return version + 1

    def drop(self, kind: str, name: str, expected: int | None) -> bool:
        """Remove a record if it stands at the version expected; whether there was one to remove."""
        alike = self.stored.get(kind, {})
        stored = alike.get(name)
        if stored is None or (expected is not None and expected != stored.version):
            return False
        del alike[name]
        return True

    def scan(self, kind: str) -> list[Record]:
        """All records of a kind, by name."""
        alike = self.stored.get(kind, {})
        return [alike[name] for name in sorted(alike)]
