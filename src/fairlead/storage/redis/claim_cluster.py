"""Claims from queues whose tasks are on different servers of a Cluster.

No single step can compare them, so the heads of their lanes are read first, merged here as one server would merge them,
and what is best is taken where it is. A task that someone else took meanwhile is left out, and the claim looks again.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from fairlead.core.identity import TaskId, slot_of_id
from fairlead.core.limits import NO_LIMITS
from fairlead.core.task import Lane, Task
from fairlead.storage.merge import Head, merge
from fairlead.storage.redis import scripts
from fairlead.storage.redis.client import Call, Client
from fairlead.storage.redis.codec import encode, task_of
from fairlead.storage.redis.cutting import CLAIM_CHUNK
from fairlead.storage.redis.keys import Keys, id_text, lane_of
from fairlead.storage.redis.scripts import Writers
from fairlead.storage.redis.wire import Word
from fairlead.storage.values import Claim, QueueOrder

Kind: TypeAlias = tuple[str, str]
"""A queue and a task type in it."""

_LOOKS: Final = 5
"""How often a claim looks when others are quicker."""
_LIMITED_LOOKS: Final = 50
"""How often more it looks under limits: what they hold back is out of sight then, and others may be behind it."""


class Spread:
    """Claims over several servers."""

    def __init__(self, client: Client, keys: Keys, writers: Writers) -> None:
        self._client = client
        self._keys = keys
        self._writers = writers

    async def claim(self, claim: Claim) -> list[Task]:
        """The best ready tasks of all queues together."""
        tasks: list[Task] = []
        shut: set[Kind] = set()
        for look in range(claim.limit + _LIMITED_LOOKS):
            wanted = min(CLAIM_CHUNK, claim.limit - len(tasks))
            if wanted <= 0:
                break
            lanes = await self._lanes(claim, shut)
            limited = claim.limited or any(lane.keyed for lane, _ in lanes)
            if limited:
                wanted = 1  # what is best after it may come to light only when it is taken
            heads = await self._heads(claim, lanes, wanted, first=look == 0)
            chosen: list[TaskId] = [head[1] for head in merge(_turned(claim, len(tasks), wanted), heads)]
            if limited:
                taken, closed = await self._take_limited(claim, chosen)
                shut |= closed
            else:
                taken = await self._take(claim, chosen)
            tasks += [taken[task_id] for task_id in chosen if task_id in taken]
            if not chosen if limited else look + 1 == _LOOKS or len(taken) == len(chosen) < wanted:
                break
        return tasks

    async def _lanes(self, claim: Claim, shut: Container[Kind]) -> list[tuple[Lane, bytes]]:
        """The lanes that the claim may take from, and their names."""
        queues = {order.queue: self._base(order.queue) for order in claim.queues}
        listing = [Call(base, ("HGETALL", base + b"q" + queue.encode())) for queue, base in queues.items()]
        return [
            (lane, name)
            for reply in await self._client.run(listing, repeatable=True)
            for name, descriptor in zip(reply[::2], reply[1::2], strict=True)
            if claim.admits(lane := lane_of(descriptor, name[8:])) and (lane.queue, lane.type) not in shut
        ]

    async def _heads(
        self, claim: Claim, lanes: Sequence[tuple[Lane, bytes]], count: int, *, first: bool
    ) -> list[tuple[Lane, Iterator[Head]]]:
        """The first tasks of each lane."""
        keyed = {lane.queue for lane, _ in lanes if lane.keyed}
        if keyed and first:
            await self._client.run(
                [
                    Call(base, (1, base, claim.now, *(order.queue, *limit_words(order))), scripts.LOOK)
                    for order, base in ((order, self._base(order.queue)) for order in claim.queues)
                    if order.queue in keyed
                ]
            )
        calls = [
            Call(base, ("ZRANGE", base + (b"f" if lane.keyed else b"l") + name, 0, count - 1, "WITHSCORES"))
            for lane, name, base in ((lane, name, self._base(lane.queue)) for lane, name in lanes)
        ]
        replies = await self._client.run(calls, repeatable=True) if calls else []
        return [
            (lane, iter([(int(float(score)), id_text(binary)) for binary, score in zip(r[::2], r[1::2], strict=True)]))
            for (lane, _), r in zip(lanes, replies, strict=True)
        ]

    async def _take(self, claim: Claim, chosen: Sequence[TaskId]) -> dict[TaskId, Task]:
        calls = [Call(base, (1, base, *_lease(claim), *ids), self._writers.take) for base, ids in self._by_base(chosen)]
        replies = await self._client.run(calls) if calls else []
        return {task.id: task for reply in replies for task in _tasks_in(reply)}

    async def _take_limited(self, claim: Claim, chosen: Sequence[TaskId]) -> tuple[dict[TaskId, Task], set[Kind]]:
        """What was taken, and the types of queues that let no more start for now."""
        words = {
            base: [word for order in claim.queues if self._base(order.queue) == base for word in _queue_words(order)]
            for base in {self._base(order.queue) for order in claim.queues}
        }
        calls = [
            Call(base, (1, base, *_lease(claim), len(words[base]) // 3, *words[base], *ids), self._writers.take_limited)
            for base, ids in self._by_base(chosen)
        ]
        taken: dict[TaskId, Task] = {}
        shut: set[Kind] = set()
        for found, closed in await self._client.run(calls) if calls else []:
            taken |= {task.id: task for task in _tasks_in(found)}
            shut |= {(lane.queue, lane.type) for lane in (lane_of(descriptor, b"0") for descriptor in closed)}
        return taken, shut

    def _base(self, queue: str) -> bytes:
        return self._keys.base(self._keys.slot(queue))

    def _by_base(self, chosen: Sequence[TaskId]) -> list[tuple[bytes, list[bytes]]]:
        """Ids by the slot they are in, as Redis has them."""
        by_slot: dict[int, list[bytes]] = {}
        for task_id in chosen:
            by_slot.setdefault(slot_of_id(task_id), []).append(bytes.fromhex(task_id))
        return [(self._keys.base(slot), ids) for slot, ids in by_slot.items()]


def limit_words(order: QueueOrder) -> tuple[Word, ...]:
    """A queue's limits as scripts take them: all of them, and those of its keys by themselves."""
    limits = order.limits or NO_LIMITS
    return encode(limits), encode(limits.key)


def _queue_words(order: QueueOrder) -> tuple[Word, ...]:
    return order.queue, *limit_words(order)


def _lease(claim: Claim) -> tuple[Word, ...]:
    return claim.now, claim.until, claim.grace, claim.worker, claim.token


def _tasks_in(reply: Sequence[bytes]) -> list[Task]:
    return [task_of(id_text(binary), value) for binary, value in zip(reply[::2], reply[1::2], strict=True)]


def _turned(claim: Claim, turn: int, limit: int) -> Claim:
    """The rest of a claim: its tables go on where they were."""
    if turn == 0:
        return replace(claim, limit=limit)
    queues = tuple(
        replace(order, tables=tuple(order.tables[(turn + at) % len(order.tables)] for at in range(len(order.tables))))
        for order in claim.queues
    )
    return replace(claim, limit=limit, queues=queues)
