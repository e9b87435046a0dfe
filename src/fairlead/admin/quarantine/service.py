"""What was set aside because it cannot be decoded: to look at, to put back once it can be, or to give up.

It lies in the store as records of one kind, each with the bytes that were found and what is known beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from fairlead.core.errors import NotInQuarantine, RestoreRefused, StoreUnavailable
from fairlead.core.health.quarantine import QUARANTINE, SEAL, TASK, Fault, Quarantined, check_parts, is_newer
from fairlead.core.instant import SECOND, Span
from fairlead.engine.changes import TaskChanges
from fairlead.engine.records import VALUE, DecodedRecord, Form
from fairlead.engine.restore import restore, revived
from fairlead.storage.values import Record

_FRESH: Final[Span] = 10 * SECOND
"""How long what was counted is used without another look."""
_SHARE: Final = 100
"""And for so many times as long as the look took: each reads all that was set aside, bytes and all."""


class QuarantineRecords:
    """What is set aside in one store."""

    def __init__(self, task_changes: TaskChanges, forms: Mapping[str, Form[Any]], bells: Mapping[str, str]) -> None:
        """`forms` is every kind of record that is decoded; `bells` what is rung when one of a kind has changed."""
        self._task_changes = task_changes
        self._forms = forms
        self._bells = bells
        self._records = task_changes.records
        self._store = task_changes.store
        self._clock = task_changes.clock
        self._counted: tuple[Span, dict[str, int]] | None = None
        """Until when what was counted is used, and that."""

    async def all(self) -> list[Quarantined]:
        """All records in quarantine, by kind and name."""
        return [_described(record) for record in await self._store.scan(QUARANTINE)]

    async def get(self, key: str) -> Quarantined:
        """The record in quarantine with this name, such as `schedule/nightly`."""
        return _described(await self._find(key))

    async def counts(self) -> dict[str, int]:
        """How many are set aside, by kind, as they were a few seconds ago; longer, if there are very many."""
        began = self._clock.monotonic()
        if self._counted is None or began >= self._counted[0]:
            records = await self._store.scan(QUARANTINE)
            ended = self._clock.monotonic()
            counts = dict(Counter(_kind_and_name(record)[0] for record in records))
            self._counted = ended + max(_FRESH, _SHARE * (ended - began)), counts
        return self._counted[1]

    async def newer(self) -> dict[str, int]:
        """How many tasks and records are there that only a newer version can read, by kind."""
        found = {kind: (await self._records.read(form)).unread for kind, form in self._forms.items()}
        newer = {kind: sum(each.fault is Fault.NEWER for each in unread) for kind, unread in found.items()}
        lanes = (await self._store.tally()).lanes
        newer[TASK] = sum(sum(each.counts.values()) for each in lanes if is_newer(each.lane.requires))
        return {kind: count for kind, count in newer.items() if count}

    async def restore(self, key: str, parts: Mapping[str, bytes] | None = None) -> Quarantined:
        """Restore a record from quarantine, with these bytes if there are any, or with those that were found.

        Raises RestoreRefused if they cannot be decoded, or something else is there by now.
        """
        checked = None if parts is None else check_parts(parts)
        record = await self._find(key)
        found = _described(record)
        if checked is not None:
            found = replace(found, parts=checked)
        if found.kind == TASK:
            await self._add_back(found)
        else:
            await self._put_back(found)
        await self._end(record, found.kind)
        return found

    async def discard(self, key: str) -> Quarantined:
        """Delete a record in quarantine for good, with its bytes; the record as it was."""
        record = await self._find(key)
        found = _described(record)
        for sealed in await self._store.scan(found.kind):
            if sealed.name == found.name and sealed.value == SEAL:
                await self._store.drop(found.kind, found.name, expected=sealed.version)
        await self._end(record, found.kind)
        return found

    async def _find(self, key: str) -> Record:
        for record in await self._store.scan(QUARANTINE):
            if record.name == key:
                return record
        raise NotInQuarantine(key)

    async def _add_back(self, found: Quarantined) -> None:
        """Add a task that was set aside; what it did when it was set aside, it no longer does."""
        now = self._clock.now()
        await self._task_changes.queue_cache.refresh()
        if self._task_changes.queue_cache.is_foreign(revived(self._store, found)):
            raise RestoreRefused(
                f"{found.key} does not belong to the tenant of its queue; discard it, or unbind the queue first"
            )
        self._task_changes.tell([await restore(self._store, found, now, self._task_changes.settings.rules)], now)

    async def _put_back(self, found: Quarantined) -> None:
        form, value = self._forms.get(found.kind), found.parts.get(VALUE)
        if form is None or value is None:
            raise RestoreRefused(f"{found.key} is of a kind, or has parts, that this version does not know; update it")
        try:
            form.read(Record(kind=found.kind, name=found.name, value=value, version=0))
        except Exception as error:
            raise _undecodable(found, error) from None
        there = await self._records.find(form, found.name)
        if isinstance(there, DecodedRecord) or (there is not None and there.fault is Fault.NEWER):
            raise RestoreRefused(f"a new {found.key} exists already; remove it first, or discard the one in quarantine")
        expected = 0 if there is None else there.version
        if await self._store.put(found.kind, found.name, value, expected=expected) is None:
            raise StoreUnavailable(f"{found.key} was changed by someone else just now; look at it, and try again")

    async def _end(self, record: Record, kind: str) -> None:
        await self._store.drop(QUARANTINE, record.name, expected=record.version)
        if (bell := self._bells.get(kind)) is not None:
            await self._store.put(bell, bell, b"")
        self._task_changes.queue_cache.expire()
        self._counted = None


def _described(record: Record) -> Quarantined:
    """What is known of it; of one whose own record is damaged too, its name and those bytes."""
    try:
        return msgspec.msgpack.decode(record.value, type=Quarantined)
    except Exception as error:
        kind, name = _kind_and_name(record)
        said = f"what was kept of it cannot be decoded either: {error}"
        return Quarantined(kind=kind, name=name, parts={VALUE: record.value}, error=said, found_at=0)


def _undecodable(found: Quarantined, error: Exception) -> RestoreRefused:
    return RestoreRefused(
        f"{found.key} still cannot be decoded: {error}; mend what `fairlead quarantine export` writes"
    )


def _kind_and_name(record: Record) -> tuple[str, str]:
    kind, _, name = record.name.partition("/")
    return kind, name
