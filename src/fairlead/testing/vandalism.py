"""Damage as disks and bugs do it to stored tasks, and what must be left of them: what clauses about quarantine use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from fairlead.core.errors import StoreUnavailable
from fairlead.core.health.quarantine import MARK, QUARANTINE, TASK, Fault, Quarantined, marked
from fairlead.core.identity import TaskId
from fairlead.core.task import Lane, State, Task
from fairlead.storage.protocol import Quarantining, Store
from fairlead.storage.quarantine import RecordStore
from fairlead.testing.steps import contents, ids

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


class QuarantiningStore(Store, Quarantining, Protocol):
    """A store that sets aside what it cannot decode."""


class Spoiler:
    """One kind of damage, to be done to tasks of one store."""

    def __init__(self, store: QuarantiningStore, vandal: Vandal, part: Part, damage: str) -> None:
        self.store = store
        self._vandal = vandal
        self._part = part
        self._change, self._tidy = DAMAGES[damage]
        self.told: list[Quarantined] = []
        store.quarantine.observer = self.told.append

    async def spoil(self, *tasks: Task) -> None:
        for task in tasks:
            await self._vandal(task.id, self._part, self._change, tidy=self._tidy)

    async def assert_aside(self, *spoilt: Task) -> None:
        """Nothing of these tasks is left but what is kept of them, and all else stands as if they had never been."""
        assert await self.store.get(ids(spoilt)) == [None] * len(spoilt)
        kept = await records_kept(self.store)
        assert sorted(each.name for each in kept) == sorted(ids(spoilt))
        for each in kept:
            assert (each.kind, each.fault, each.queue) == (TASK, Fault.DAMAGED, spoilt[0].spec.queue)
            assert each.error
        assert sorted(map(_named, self.told)) == sorted(map(_named, kept))
        await assert_tallied(self.store)


class UnreachableRecords:
    """Records that nobody can write just now."""

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        raise StoreUnavailable("the records are out of reach")

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        raise StoreUnavailable("the records are out of reach")


class InterruptedRecords:
    """Records of a store in which something happens as soon as one is written."""

    def __init__(self, records: RecordStore, happens: Callable[[], Awaitable[None]]) -> None:
        self._records = records
        self._happens = happens

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        version = await self._records.put(kind, name, value, expected=expected)
        await self._happens()
        return version

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        return await self._records.drop(kind, name, expected=expected)


def _named(quarantined: Quarantined) -> tuple[str, str, int]:
    return quarantined.key, quarantined.error, quarantined.found_at


async def assert_tallied(store: Store) -> None:
    """The tally, the alarms and the counts of what runs agree with the tasks."""
    tasks = await contents(store)
    counted: Counter[tuple[Lane, State]] = Counter((task.lane, task.state) for task in tasks)
    tally = await store.tally()
    assert {(each.lane, state): n for each in tally.lanes for state, n in each.counts.items()} == dict(counted)
    heads: dict[Lane, int] = {}
    for task in tasks:
        if task.state is State.QUEUED:
            heads[task.lane] = min(heads.get(task.lane, task.status.ready_at), task.status.ready_at)
    assert {each.lane: each.oldest_ready for each in tally.lanes if each.oldest_ready is not None} == heads
    alarms = sorted((task.status.alarm, task.id) for task in tasks if task.status.alarm is not None)
    assert tally.next_alarm == (alarms[0][0] if alarms else None)
    assert ids(await store.due(2**52, len(tasks) + 10)) == [task_id for _, task_id in alarms]
    for task in tasks:
        usage = await store.usage(task.spec.queue, task.spec.type, task.spec.concurrency_key)
        running = [other for other in tasks if other.spec.queue == task.spec.queue and other.state is State.EXECUTING]
        assert usage.queue.running == len(running)
        if (key := task.spec.concurrency_key) is not None:
            assert usage.key.running == sum(other.spec.concurrency_key == key for other in running)


async def records_kept(store: Store) -> list[Quarantined]:
    """What a store has set aside."""
    return [msgspec.msgpack.decode(each.value, type=Quarantined) for each in await store.scan(QUARANTINE)]
