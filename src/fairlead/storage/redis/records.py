"""Small versioned records: a hash per kind."""

from __future__ import annotations

from fairlead.storage.redis import scripts
from fairlead.storage.redis.client.calls import Call, Client
from fairlead.storage.redis.keys import Keys
from fairlead.storage.values import Record


class Records:
    """The part of a store that keeps records."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        """Store a record if it stands at the version expected; its new version."""
        key = self._keys.records(kind)
        words = (name, value, "" if expected is None else expected)
        version: int | None = await self._client.run_one(Call(key, words, scripts.PUT))
        return version

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        """Remove a record if it stands at the version expected; whether there was one to remove."""
        key = self._keys.records(kind)
        words = (name, "" if expected is None else expected)
        return bool(await self._client.run_one(Call(key, words, scripts.DROP)))

    async def scan(self, kind: str) -> list[Record]:
        """All records of a kind, by name."""
        key = self._keys.records(kind)
        reply = await self._client.run_one(Call(key, ("HGETALL", key)), repeatable=True)
        records = []
        for name, stored in zip(reply[::2], reply[1::2], strict=True):
            version, space, value = stored.partition(b" ")
            if not (space and version.isdigit()):
                # Damaged in its first bytes: all of it is the value, which nobody can decode, and `put.lua` says 0.
                version, value = b"0", stored
            records.append(Record(kind=kind, name=name.decode(), value=value, version=int(version)))
        return sorted(records, key=lambda record: record.name)
