"""Where records are kept: what was decided in the journal, what is only said for now in the hot store.

A schedule, a queue's settings or an API key exists because someone wanted it, and must outlive the hot store as tasks
do. That a worker is there is said again every few seconds by the worker itself, and whether a schedule has changed is
asked every second by all: that would wear out the journal, and nobody would miss it after a rebuild. A session of a
browser is begun and ended while the journal is out of reach, too, and who has lost one logs in again. How much each
submitter has submitted is counted all the time, and forgotten in an hour.

While the journal is out of reach, API keys and the settings of queues are read as they were last known, for a stated
time. Nothing else is: who fires a schedule relies on having read it just now.

What is set aside is kept in the journal, but while that is out of reach in the hot store: a task that cannot be decoded
must not stop its queue for as long.
"""

from __future__ import annotations

import contextlib
import time
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import StoreError, StoreUnavailable
from fairlead.core.health.quarantine import QUARANTINE, Quarantined
from fairlead.core.identity import TaskId
from fairlead.core.instant import SECOND
from fairlead.core.task import Task
from fairlead.storage.deadline import Budget, timed
from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.outbox import HotStore
from fairlead.storage.protocol import Store
from fairlead.storage.quarantine import UNDECODABLE, Damage, Quarantine, Removal, revive_parts
from fairlead.storage.values import Record

PASSING: Final = frozenset(
    {
        "worker", "drain", "pause", "throughput", "lost", "promoted", "feed", "session",
        "schedules_changed", "queues_changed", "readiness",
        *(f"budget_{number:02x}" for number in range(64)),
    }
)  # fmt: skip
"""The kinds of records that stay in the hot store. Every other kind is the journal's."""

REMEMBERED: Final = frozenset({"key", "queue", "type", "circuit", QUARANTINE})
"""The kinds without which nobody could be let in and nothing claimed: while the journal is out of reach they are read
as they were last known, for a stated time."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_quarantined: Final = msgspec.msgpack.Decoder(Quarantined).decode

_PATIENCE: Final = 1.0
"""Seconds that the journal has to say how records stand that are known."""


class _Known(Struct, frozen=True):
    """What was read of a kind, and when by the monotonic clock."""

    at: float
    records: list[Record]


class JournalRecords:
    """The records of a hot store and of its journal, each kind in its place."""

    def __init__(self, hot: Store, journal: Journal) -> None:
        self._hot = hot
        self._kept = journal.records
        self._remember = journal.address.remember / SECOND
        self._known: dict[str, _Known] = {}
        self._reach = journal.reach
        self.budget = Budget(_PATIENCE, journal.address.database.shown, blocking=journal.blocking)

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        """Store a record if it stands at the version expected; its new version."""
        if kind in PASSING:
            return await self._hot.put(kind, name, value, expected=expected)
        # What is changed here is never again told as it was.
        self._known.pop(kind, None)
        try:
            return await self._kept.put(kind, name, value, expected=expected)
        except StoreUnavailable:
            if kind != QUARANTINE:
                raise
            return await self._hot.put(kind, name, value, expected=expected)

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        """Remove a record if it stands at the version expected; whether there was one to remove."""
        if kind == QUARANTINE and await self._hot.drop(kind, name, expected=expected):
            return True
        self._known.pop(kind, None)
        place = self._hot if kind in PASSING else self._kept
        return await place.drop(kind, name, expected=expected)

    async def scan(self, kind: str) -> list[Record]:
        """All records of a kind, by name."""
        if kind in PASSING:
            return await self._hot.scan(kind)
        kept = await (self._scan_remembered(kind) if kind in REMEMBERED else self._kept.scan(kind))
        if kind != QUARANTINE or not (hot := await self._hot.scan(kind)):
            return kept
        names = {record.name for record in kept}
        return sorted([*kept, *(each for each in hot if each.name not in names)], key=lambda record: record.name)

    async def _scan_remembered(self, kind: str) -> list[Record]:
        """The records of a kind; as they were last known while the journal is out of reach, but not for ever."""
        known = self._known.get(kind)
        if known is None or time.monotonic() - known.at > self._remember:
            found = await self._kept.scan(kind)
        elif self._reach.doubtful:
            return list(known.records)
        else:
            try:
                found = await self._scan_soon(kind)
            except StoreUnavailable:
                return list(known.records)
        self._known[kind] = _Known(time.monotonic(), list(found))
        return found

    @timed
    async def _scan_soon(self, kind: str) -> list[Record]:
        return await self._kept.scan(kind)


def quarantine_of(hot: HotStore, journal: Journal, records: JournalRecords) -> Quarantine:
    """What the hot store does about tasks that it cannot decode, beside a journal that still has them.

    What the journal knows of such a task is kept with its bytes, so that it can be put back as it was last known.
    """
    quarantine = hot.quarantine
    remove, revive = quarantine.remove, quarantine.revive

    async def remove_everywhere(damage: Damage) -> Removal:
        removal = await remove(damage)
        if removal is Removal.REMOVED:
            # The removal is noted, so the flusher repeats it.
            with contextlib.suppress(StoreError):
                await journal.remove([damage.id])
        return removal

    def revive_either(quarantined: Quarantined) -> Task:
        try:
            return revive(quarantined)
        except UNDECODABLE:
            return revive_parts(quarantined)

    quarantine.records = _Keeper(journal, records)
    quarantine.remove = remove_everywhere
    quarantine.revive = revive_either
    return quarantine


class _Keeper:
    """Keeps tasks that were set aside as records, with what the journal knows of them."""

    def __init__(self, journal: Journal, records: JournalRecords) -> None:
        self._journal = journal
        self._records = records

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        quarantined = _decode_quarantined(value)
        with contextlib.suppress(StoreUnavailable):
            for task in (await self._journal.get([TaskId(quarantined.name)])).values():
                known = {"spec": _encode(task.spec), "status": _encode(task.status)}
                value = _encode(replace(quarantined, parts=quarantined.parts | known))
        return await self._records.put(kind, name, value, expected=expected)

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        return await self._records.drop(kind, name, expected=expected)
