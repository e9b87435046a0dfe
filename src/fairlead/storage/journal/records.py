"""Where records are kept: what was decided in the journal, what is only said for now in the hot store.

A schedule, a queue's settings or an API key exists because someone wanted it, and must outlive the hot store as tasks
do. That a worker is there is said again every few seconds by the worker itself, and whether a schedule has changed is
asked every second by all: that would wear out the journal, and nobody would miss it after a rebuild.

A scan never answers from memory while the journal is out of reach: who fires a schedule relies on having read it just
now.
"""

from __future__ import annotations

from typing import Final

from fairlead.storage.journal.journal import Journal
from fairlead.storage.protocol import Store
from fairlead.storage.values import Record

PASSING: Final = frozenset(
    {"worker", "drain", "throughput", "lost", "promoted", "feed", "schedules_changed", "queues_changed"}
)
"""The kinds of records that stay in the hot store. Every other kind is the journal's."""


class JournalRecords:
    """The records of a hot store and of its journal, each kind in its place."""

    def __init__(self, hot: Store, journal: Journal) -> None:
        self._hot = hot
        self._kept = journal.records

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        """Store a record if it stands at the version expected; its new version."""
        place = self._hot if kind in PASSING else self._kept
        return await place.put(kind, name, value, expected=expected)

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        """Remove a record if it stands at the version expected; whether there was one to remove."""
        place = self._hot if kind in PASSING else self._kept
        return await place.drop(kind, name, expected=expected)

    async def scan(self, kind: str) -> list[Record]:
        """All records of a kind, by name."""
        return await (self._hot if kind in PASSING else self._kept).scan(kind)
