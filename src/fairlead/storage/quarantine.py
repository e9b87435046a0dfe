"""Setting aside tasks that cannot be decoded: the same steps for every store.

A store's operations pass over such a task and tell of it by `Damage`. Here its bytes are kept as an ordinary record,
then the store removes it in one step if they are still what was read; a crash between the two only repeats the first.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import StoreMismatch
from fairlead.core.health.quarantine import QUARANTINE, TASK, Fault, Quarantined, is_newer
from fairlead.core.identity import TaskId
from fairlead.core.task import Spec, Status, Task
from fairlead.storage.steps import host_time

UNDECODABLE: Final = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
"""What decoding raises about bytes or columns that are no such value. To catch it costs nothing until it is raised."""

_REMEMBERED: Final = 10_000
"""Of how many tasks of a newer format a process remembers that it has told."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_spec: Final = msgspec.msgpack.Decoder(Spec).decode
_decode_status: Final = msgspec.msgpack.Decoder(Status).decode


class Damage(Struct, frozen=True):
    """A stored task that could not be decoded, as it was read."""

    id: TaskId
    parts: dict[str, bytes]
    """By these the store knows it again."""
    error: str
    fault: Fault
    """What its bytes say. That it is of a newer format is believed only of a task in a lane of such tasks."""


class Location(Struct, frozen=True):
    """Where a task is, as its store knows it beside the task's bytes."""

    queue: str | None
    requires: tuple[str, ...] | None
    """What its lane requires; None where that is not known."""


class Damaged(Exception):
    """Raised inside a store, past its transaction: tasks that cannot be decoded were met."""

    def __init__(self, found: Sequence[Damage], answer: Any = None) -> None:
        super().__init__(found)
        self.found = found
        self.answer = answer
        """What the operation answers without them; None if it is to be repeated once they are set aside."""


class Removal(enum.Enum):
    """What became of the removal of a damaged task."""

    REMOVED = enum.auto()
    CHANGED = enum.auto()
    """It is there with other bytes by now."""
    GONE = enum.auto()


class RecordStore(Protocol):
    """What keeps the bytes: the ordinary records of a store."""

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None: ...

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool: ...


Remove: TypeAlias = Callable[[Damage], Awaitable[Removal]]
"""One atomic step: the task goes with all that names it if its bytes are still these, and its dependents are told."""

Locate: TypeAlias = Callable[[Damage], Awaitable[Location | None]]
"""Where a task is that could not be decoded; None if it is not there any more."""


def revive_parts(quarantined: Quarantined) -> Task:
    """The task whose spec and status these parts are."""
    return whole(quarantined.name, quarantined.parts["spec"], quarantined.parts["status"])


def whole(task_id: str, spec: bytes, status: bytes) -> Task:
    """The task of this id; raises one of `UNDECODABLE`."""
    task = Task(_decode_spec(spec), _decode_status(status))
    if task.spec.id != task_id:
        raise ValueError(f"the id in its spec is {task.spec.id!r}")
    return task


def ignore(_: Quarantined) -> None:
    """Tell nobody."""


class Quarantine:
    """What one store does about tasks that it cannot decode."""

    observer: Callable[[Quarantined], None]
    """Told, in the thread where it happens, of each task that this process has set aside, and once of each task of a
    newer format that it has met. Must be quick and must not raise."""

    def __init__(
        self,
        records: RecordStore,
        remove: Remove,
        locate: Locate,
        *,
        revive: Callable[[Quarantined], Task] = revive_parts,
        beside: Quarantine | None = None,
    ) -> None:
        """With `beside`, another copy of the tasks is looked after, and the same observer told."""
        self.observer = ignore if beside is None else lambda found: beside.observer(found)
        self.records = records
        """Replaced by a store that keeps the records of this one elsewhere."""
        self.remove = remove
        """Replaced by a store that keeps the tasks of this one elsewhere, too."""
        self.revive = revive
        """The task that was set aside, if its bytes can be decoded now; else one of `UNDECODABLE`."""
        self._locate = locate
        self._newer: set[TaskId] = set() if beside is None else beside._newer

    async def set_aside(self, found: Sequence[Damage]) -> bool:
        """Keep the bytes of damaged tasks and remove these; whether none of them was left where it is."""
        left = [damage for damage in found if damage.id in self._newer or not await self._see_to(damage)]
        return not left

    async def clear(self, found: Sequence[Damage]) -> None:
        """Set aside what is in the way of an operation, which then goes on."""
        if not await self.set_aside(found):
            newer = next(damage.id for damage in found if damage.fault is Fault.NEWER)
            raise StoreMismatch(
                f"task {newer} is of a newer format, which this version cannot change; upgrade fairlead"
            )

    async def _see_to(self, damage: Damage) -> bool:
        """Set a task aside, or tell that it is of a newer format; whether it was not left where it is."""
        location = await self._locate(damage)
        if damage.fault is Fault.DAMAGED:
            await self._move(_described(damage, location), damage)
        elif location is not None:
            # A newer version puts the tasks of its format into lanes of their own: elsewhere, the mark is damage.
            if location.requires is None or is_newer(location.requires):
                self._tell_newer(damage, location)
                return False
            damage = replace(damage, fault=Fault.DAMAGED)
            await self._move(_described(damage, location), damage)
        return True

    async def _move(self, quarantined: Quarantined, damage: Damage) -> None:
        version = await self.records.put(QUARANTINE, quarantined.key, _encode(quarantined))
        removal = await self.remove(damage)
        if removal is Removal.REMOVED:
            self.observer(quarantined)
        elif removal is Removal.CHANGED:
            # Whoever else has met it meanwhile wrote the record anew; the task as it is now is judged by itself.
            await self.records.drop(QUARANTINE, quarantined.key, expected=version)

    def _tell_newer(self, damage: Damage, location: Location) -> None:
        if len(self._newer) < _REMEMBERED:
            self._newer.add(damage.id)
            self.observer(_described(damage, location))


def _described(damage: Damage, location: Location | None) -> Quarantined:
    return Quarantined(
        kind=TASK,
        name=damage.id,
        parts=damage.parts,
        error=damage.error,
        found_at=host_time(),
        fault=damage.fault,
        queue=None if location is None else location.queue,
    )
