"""Adding tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from fairlead.core.errors import InvalidTask
from fairlead.core.identity import slot_of_id
from fairlead.core.instant import Instant
from fairlead.core.task import State, Task
from fairlead.storage.redis import scripts
from fairlead.storage.redis.client import Call, Client
from fairlead.storage.redis.codec import task_value
from fairlead.storage.redis.cutting import cut
from fairlead.storage.redis.keys import CODES, Keys, Kind, id_text
from fairlead.storage.redis.registry import Registry
from fairlead.storage.redis.wire import Reply, Word
from fairlead.storage.values import Added, Full, KeyHeld, Known, Receipt

_Entry: TypeAlias = tuple[int, Task, Kind, bytes]
"""A task to add: its place among the tasks given, itself, its kind and its value."""

_ADDED: Final = Added()
_KNOWN: Final = Known()


class Adder:
    """The part of a store that takes new tasks."""

    def __init__(self, client: Client, keys: Keys, registry: Registry, *, replicas: int) -> None:
        self._client = client
        self._keys = keys
        self._registry = registry
        self._replicas = replicas

    async def add(self, tasks: Sequence[Task], *, now: Instant, bounds: Mapping[str, int]) -> list[Receipt]:
        """Store new tasks."""
        if len(tasks) == 1 and not bounds and (receipt := await self._add_one(tasks[0])) is not None:
            return [receipt]
        by_slot: dict[int, list[_Entry]] = {}
        for at, task in enumerate(tasks):
            kind = self._kind(task)
            by_slot.setdefault(kind.slot, []).append((at, task, kind, task_value(task, kind)))
        chunks = [chunk for entries in by_slot.values() for chunk in cut(entries, _size)]
        if not chunks:
            return []
        await self._registry.register(by_slot)
        replies = await self._client.run(
            [_add_call(chunk, now, bounds) for chunk in chunks], repeatable=True, replicas=self._replicas
        )
        receipts: list[Receipt] = [_ADDED] * len(tasks)
        for chunk, answers in zip(chunks, replies, strict=True):
            for entry, answer in zip(chunk, answers, strict=True):
                if answer != 1:
                    receipts[entry[0]] = _receipt(answer)
        return receipts

    async def _add_one(self, task: Task) -> Receipt | None:
        """Add a task that is ready and has no key; None when it takes more than that."""
        spec, status = task.spec, task.status
        if status.state is not State.QUEUED or spec.idempotency_key is not None or status.alarm is not None:
            return None
        if spec.concurrency_key is not None:
            return None
        kind = self._kind(task)
        if not self._registry.holds(kind.slot):
            return None
        value = task_value(task, kind)
        words = (
            1,
            kind.base,
            bytes.fromhex(spec.id),
            kind.lanes[status.priority],
            status.ready_at,
            value,
            kind.queue,
            kind.descriptor,
        )
        (answer,) = await self._client.run(
            (Call(kind.base, words, scripts.ADD_ONE),), repeatable=True, replicas=self._replicas
        )
        return None if answer is None else _ADDED if answer else _KNOWN

    def _kind(self, task: Task) -> Kind:
        kind = self._keys.kind(task.spec)
        if slot_of_id(task.spec.id) != kind.slot:
            raise InvalidTask("id", f"task id {task.spec.id} is not of queue {kind.queue!r}; let submit make ids")
        return kind


def _size(entry: _Entry) -> int:
    return len(entry[3])


def _add_call(chunk: Sequence[_Entry], now: Instant, bounds: Mapping[str, int]) -> Call:
    base = chunk[0][2].base
    kinds = {entry[2].digest: entry[2] for entry in chunk}
    words: list[Word] = [1, base, now, len(kinds)]
    for kind in kinds.values():
        words += (kind.digest, kind.queue, kind.descriptor, bounds.get(kind.queue, ""), 1 if kind.keyed else "")
    for _, task, kind, value in chunk:
        spec, status = task.spec, task.status
        key, alarm = spec.idempotency_key, status.alarm
        words += (
            bytes.fromhex(spec.id),
            kind.lanes[status.priority],
            CODES[status.state],
            status.ready_at,
            "" if alarm is None else alarm,
            "" if key is None else f"{spec.key_until or 0} {spec.queue} {key}",
            value,
        )
    return Call(base, words, scripts.ADD)


def _receipt(answer: Reply) -> Receipt:
    if answer == 0:
        return _KNOWN
    if isinstance(answer, bytes):
        return KeyHeld(id_text(answer))
    depth, bound = answer
    return Full(depth, bound)
