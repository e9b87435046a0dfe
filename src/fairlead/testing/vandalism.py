"""Damage as disks and bugs do it to stored tasks: what the clauses about quarantine begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from fairlead.core.health.quarantine import MARK, marked
from fairlead.core.identity import TaskId

Part: TypeAlias = Literal["spec", "status"]
Change: TypeAlias = Callable[[bytes], bytes]


class Vandal(Protocol):
    """Changes the packed spec or status of a stored task behind the back of its store.

    Where the store keeps both in one value, a change that is not `tidy` does not mend what says where each of them is.
    """

    async def __call__(self, task_id: TaskId, part: Part, change: Change, *, tidy: bool = False) -> None: ...

    def mended(self, parts: dict[str, bytes], part: Part, change: Change) -> dict[str, bytes]:
        """What was set aside of a task, changed in one part."""
        ...


def emptied(_: bytes) -> bytes:
    return b""


def truncated(packed: bytes) -> bytes:
    return packed[: len(packed) // 2]


def shortened(packed: bytes) -> bytes:
    """By its last byte alone: most of it can be read."""
    return packed[:-1]


def scrambled(packed: bytes) -> bytes:
    """In its midst, bytes that are no text and begin no value."""
    middle = min(len(packed) // 2, 60)
    return packed[:middle] + b"\xc1" * min(12, len(packed) - middle) + packed[middle + 12 :]


def zeroed(packed: bytes) -> bytes:
    """As a disk leaves a block that it never wrote."""
    return bytes(len(packed))


def flipped(packed: bytes) -> bytes:
    """In one bit; done twice, nothing has happened."""
    return bytes([packed[0] ^ 1]) + packed[1:]


def newer(packed: bytes) -> bytes:
    """As a later version would have written it."""
    return marked(2, packed)


def miscalled(packed: bytes) -> bytes:
    """In the first byte, which is now that of a newer format."""
    return MARK + packed[1:]


def mistyped(packed: bytes) -> bytes:
    """Well formed, but of a wrong type in its midst: as `Backoff(initial=0.5)` was once stored."""
    fields: list[Any] = msgspec.msgpack.decode(packed)
    fields[len(fields) // 2 + 1] = 0.5
    return msgspec.msgpack.encode(fields)


DAMAGES: Final[dict[str, tuple[Change, bool]]] = {
    "emptied": (emptied, False),
    "truncated": (truncated, False),
    "shortened": (shortened, False),
    "scrambled": (scrambled, False),
    "zeroed": (zeroed, False),
    "flipped": (flipped, False),
    "miscalled": (miscalled, False),
    "mistyped": (mistyped, True),
}
"""Each change by its name, and whether it is tidy."""
