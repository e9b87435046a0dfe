"""Quarantine: what cannot be decoded is set aside with its bytes, until somebody decides about it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from fairlead.core.errors import RestoreRefused
from fairlead.core.instant import Instant
from fairlead.core.validation import shown

FORMAT: Final = 1
"""The format that this version writes. Its tasks bear no mark."""

_CAPABILITY: Final = "format "
"""No name may contain a space, so no worker has such a capability of its own."""


def marked(number: int, packed: bytes) -> bytes:
    """Bytes of a newer format, as they are stored."""
    return MARK + bytes([number]) + packed


def capability(number: int) -> str:
    """What a lane of tasks of this format requires beside what the tasks require."""
    return f"{_CAPABILITY}{number}"


def is_newer(requires: Iterable[str]) -> bool:
    """Whether a lane that requires this has tasks of a newer format."""
    return any(each.startswith(_CAPABILITY) for each in requires)


QUARANTINE: Final = "quarantine"
"""The kind of record in which a store keeps what is set aside; its name is that of `Quarantined.key`."""

TASK: Final = "task"
"""What a quarantined task says as its kind; any other kind is that of a store's record."""


class Fault(enum.StrEnum):
    """Why a record cannot be used."""

    DAMAGED = "damaged"
    """Its bytes are no such record. It is set aside."""
    NEWER = "newer"
    """A newer version of fairlead wrote it, in a format that this one does not know. It stays where it is."""


class Quarantined(Struct, frozen=True, kw_only=True, array_like=True):
    """A record that was set aside, byte for byte as it was found."""

    kind: str
    """`task`, or the kind of the record: a schedule, the settings of a queue, a key, …"""
    name: str
    """The id of the task as people write it, or the name of the record."""
    parts: dict[str, bytes]
    """What was found, by part: of a task its `spec` and `status`, of a record its `value`."""
    error: str
    """What the decoder said."""
    found_at: Instant
    fault: Fault = Fault.DAMAGED
    queue: str | None = None
    """The queue it was found in, where that is known."""

    @property
    def key(self) -> str:
        """The name of the record that keeps it."""
        return f"{self.kind}/{self.name}"


def check_parts(parts: object) -> dict[str, bytes]:
    """The parts of a record that somebody has mended; raises RestoreRefused for what is none."""
    if not isinstance(parts, Mapping) or not all(
        type(part) is str and type(value) is bytes for part, value in parts.items()
    ):
        raise RestoreRefused(f"parts {shown(parts)} is not a dict of bytes; write {{'value': b'…'}}")
    return dict(parts)


MARK: Final = b"\xc1"
"""What a record begins with whose format is newer than this version: nothing that it writes itself begins so."""

SEAL: Final = MARK + b"\x00"
"""What takes the place of a record that was set aside and is not to count as gone, as a key or a queue's settings."""


def fault_of(value: bytes) -> Fault:
    """Why a record's value could not be decoded."""
    return Fault.NEWER if value.startswith(MARK) and value != SEAL else Fault.DAMAGED
