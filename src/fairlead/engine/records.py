"""Records as they are read and written: the one door through which what a store keeps of a kind becomes values.

What cannot be decoded does not pass it, and does not raise: it is set aside with its bytes, once, by whoever meets it
first, and the others of its kind are read. What a newer version wrote stays where it is, and is not read. And what
could not be read again is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from fairlead.core.errors import InvalidSettings, RecordUnreadable, StoreError
from fairlead.core.health.quarantine import QUARANTINE, SEAL, Fault, Quarantined, fault_of
from fairlead.core.validation import shown
from fairlead.engine.runtime.clock import Clock
from fairlead.storage.protocol import Store
from fairlead.storage.values import Record

Value = TypeVar("Value")

VALUE: Final = "value"
"""The part of a quarantined record that holds its bytes."""

_LONGEST_ERROR: Final = 500
_REMEMBERED: Final = 10_000
"""Of how many records that stay where they are a process remembers that it has told."""
_QUEUE: Final = "queue"


class Form(Struct, Generic[Value], frozen=True, kw_only=True):
    """What the records of one kind hold, and how they are read."""

    kind: str
    decode: Callable[[bytes], Value]
    """Whatever it raises says that the value is none."""
    name_of: Callable[[Value], str] | None = None
    """The name that the value itself says it has, if it does."""
    encode: Callable[[Value], bytes] = msgspec.msgpack.Encoder().encode
    sealed: bool = False
    """Whether one that was set aside still counts: nothing is done in its place until somebody decides about it."""

    def read(self, record: Record) -> Value:
        """What a record holds."""
        value = self.decode(record.value)
        if self.name_of is not None and (said := self.name_of(value)) != record.name:
            raise ValueError(f"it says that it is {said[:_LONGEST_ERROR]!r}, and is kept as {record.name!r}")
        return value

    def write(self, value: Value) -> bytes:
        """What a record of this value holds; raises InvalidSettings for a value that could not be read again."""
        try:
            written = self.encode(value)
            self.decode(written)
        except Exception as error:
            raise InvalidSettings(
                f"the {self.kind} record {shown(value)} could not be read again, so it is not kept: {shown(error)}; "
                f"give each of its fields a value of its type"
            ) from None
        return written


class DecodedRecord(Struct, Generic[Value], frozen=True):
    """What a record holds, and the version to expect when it is changed."""

    name: str
    value: Value
    version: int


class Unread(Struct, frozen=True):
    """A record that cannot be read, and is there all the same."""

    kind: str
    name: str
    version: int
    fault: Fault

    @property
    def error(self) -> RecordUnreadable:
        """What whoever asked for it is told."""
        what = f"the record {self.kind}/{self.name}"
        if self.fault is Fault.NEWER:
            return RecordUnreadable(
                f"{what} was written by a newer version of fairlead; read and change it with that version"
            )
        return RecordUnreadable(
            f"{what} cannot be read and was moved to quarantine; look at it with `fairlead quarantine show "
            f"{self.kind}/{self.name}`, then restore or discard it"
        )


class Sorted(Struct, Generic[Value], frozen=True):
    """The records of a kind, by whether they could be read."""

    kept: list[DecodedRecord[Value]]
    unread: list[Unread]

    @property
    def values(self) -> list[Value]:
        """What they hold."""
        return [each.value for each in self.kept]

    @property
    def names(self) -> set[str]:
        """The names of all that are there, read or not."""
        return {each.name for each in self.kept} | {each.name for each in self.unread}


class Records:
    """The records of one store."""

    def __init__(self, store: Store, clock: Clock, tell: Callable[[Quarantined], None]) -> None:
        """`tell` is called once for each that is set aside here, or is found to be of a newer version."""
        self.store = store
        self._clock = clock
        self._tell = tell
        self._told: set[str] = set()

    async def read(self, form: Form[Value]) -> Sorted[Value]:
        """All records of a kind, by name."""
        return await self.sort(form, await self.store.scan(form.kind))

    async def find(self, form: Form[Value], name: str) -> DecodedRecord[Value] | Unread | None:
        """The record of this name."""
        found = await self.sort(form, [record for record in await self.store.scan(form.kind) if record.name == name])
        return found.kept[0] if found.kept else found.unread[0] if found.unread else None

    async def get(self, form: Form[Value], name: str) -> DecodedRecord[Value] | None:
        """The record of this name; raises RecordUnreadable for one that is there and cannot be read."""
        found = await self.find(form, name)
        if isinstance(found, Unread):
            raise found.error
        return found

    async def sort(self, form: Form[Value], records: Iterable[Record]) -> Sorted[Value]:
        """What these records hold; sets aside what cannot be decoded."""
        kept: list[DecodedRecord[Value]] = []
        unread: list[Unread] = []
        for record in records:
            try:
                kept.append(DecodedRecord(record.name, form.read(record), record.version))
            except Exception as error:
                # Whatever a decoder makes of broken bytes: a message, a surrogate, a depth that it cannot follow.
                left = await self._set_aside(form, record, error)
                if left is not None:
                    unread.append(left)
        return Sorted(kept, unread)

    async def _set_aside(self, form: Form[Value], record: Record, error: Exception) -> Unread | None:
        """Move a record to quarantine; what is left in its place, if anything."""
        fault = fault_of(record.value)
        unread = Unread(form.kind, record.name, record.version, fault)
        if record.value == SEAL:
            return unread
        found = Quarantined(
            kind=form.kind,
            name=record.name,
            parts={VALUE: record.value},
            error=f"{type(error).__name__}: {error}"[:_LONGEST_ERROR],
            found_at=self._clock.now(),
            fault=fault,
            queue=record.name if form.kind == _QUEUE else None,
        )
        if fault is Fault.NEWER:
            self._tell_once(found)
            return unread
        try:
            return await self._move(form, record, found)
        except StoreError:
            # While the store takes no writes it stays where it is, unread, and whoever reads it next tries again.
            self._tell_once(found)
            return unread

    async def _move(self, form: Form[Value], record: Record, found: Quarantined) -> Unread | None:
        await self.store.put(QUARANTINE, found.key, msgspec.msgpack.encode(found))
        if form.sealed:
            version = await self.store.put(form.kind, record.name, SEAL, expected=record.version)
        else:
            version = record.version if await self._dropped(record) else None
        if version is None:
            # Somebody else has moved it, or put another in its place, which whoever reads next will meet.
            return Unread(form.kind, record.name, record.version, found.fault)
        self._tell(found)
        return Unread(form.kind, record.name, version, found.fault) if form.sealed else None

    async def _dropped(self, record: Record) -> bool:
        return await self.store.drop(record.kind, record.name, expected=record.version)

    def _tell_once(self, found: Quarantined) -> None:
        """Tell of what stays where it is, and is met again and again."""
        if found.key not in self._told and len(self._told) < _REMEMBERED:
            self._told.add(found.key)
            self._tell(found)


def decoder(kind: type[Value]) -> Callable[[bytes], Value]:
    """What most records are: MessagePack of a value."""
    typed = msgspec.msgpack.Decoder(kind).decode

    def decode(value: bytes) -> Value:
        # Fields that are not known are passed over unread, and so would be those whose names are damaged.
        _decode_any(value)
        return typed(value)

    return decode


_decode_any: Final = msgspec.msgpack.Decoder().decode

__all__ = ["DecodedRecord", "Form", "Records", "Sorted", "Unread", "decoder"]
