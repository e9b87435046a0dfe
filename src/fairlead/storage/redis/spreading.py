"""Claims from queues whose tasks are on different servers of a Cluster.

No single step can compare them, so the heads of their lanes are read first, merged here as one server would merge them,
and what is best is taken where it is. A task that someone else took meanwhile is left out, and the claim looks again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from fairlead.core.identity import TaskId, slot_of_id
from fairlead.core.task import Lane, Priority, Task
from fairlead.storage.merge import Head, merge
from fairlead.storage.redis.client import Call, Client
from fairlead.storage.redis.codec import task_of
from fairlead.storage.redis.cutting import CLAIM_CHUNK
from fairlead.storage.redis.keys import Keys, id_text
from fairlead.storage.redis.scripts import Script
from fairlead.storage.values import Claim

_LOOKS: Final = 5
"""How often a claim looks when others are quicker."""


class Spread:
    """Claims over several servers."""

    def __init__(self, client: Client, keys: Keys, take: Script) -> None:
        self._client = client
        self._keys = keys
        self._taking = take

    async def claim(self, claim: Claim) -> list[Task]:
        """The best ready tasks of all queues together."""
        tasks: list[Task] = []
        for _ in range(_LOOKS):
            wanted = min(CLAIM_CHUNK, claim.limit - len(tasks))
            if wanted <= 0:
                break
            heads = await self._heads(claim, wanted)
            chosen: list[TaskId] = [head[1] for head in merge(_turned(claim, len(tasks), wanted), heads)]
            taken = await self._take(claim, chosen)
            tasks += [taken[task_id] for task_id in chosen if task_id in taken]
            if len(chosen) < wanted and len(taken) == len(chosen):
                break
        return tasks

    async def _heads(self, claim: Claim, count: int) -> list[tuple[Lane, Iterator[Head]]]:
        """The lanes that the claim may take from, and the first of each."""
        bases = {order.queue: self._keys.base(self._keys.slot(order.queue)) for order in claim.queues}
        listing = [Call(base, ("HGETALL", base + b"q" + queue.encode())) for queue, base in bases.items()]
        lanes: list[Lane] = []
        calls: list[Call] = []
        for base, reply in zip(bases.values(), await self._client.run(listing, repeatable=True), strict=True):
            for name, descriptor in zip(reply[::2], reply[1::2], strict=True):
                kind = msgspec.msgpack.decode(descriptor, type=tuple[str, str, tuple[str, ...]])
                lane = Lane(*kind, Priority(int(name[8:])))
                if claim.admits(lane):
                    lanes.append(lane)
                    calls.append(Call(base, ("ZRANGE", base + b"l" + name, 0, count - 1, "WITHSCORES")))
        replies = await self._client.run(calls, repeatable=True) if calls else []
        return [
            (lane, iter([(int(float(score)), id_text(binary)) for binary, score in zip(r[::2], r[1::2], strict=True)]))
            for lane, r in zip(lanes, replies, strict=True)
        ]

    async def _take(self, claim: Claim, chosen: Sequence[TaskId]) -> dict[TaskId, Task]:
        by_slot: dict[int, list[TaskId]] = {}
        for task_id in chosen:
            by_slot.setdefault(slot_of_id(task_id), []).append(task_id)
        numbers = (claim.now, claim.until, claim.grace)
        calls = [
            Call(base, (1, base, *numbers, claim.worker, claim.token, *map(bytes.fromhex, ids)), self._taking)
            for base, ids in ((self._keys.base(slot), ids) for slot, ids in by_slot.items())
        ]
        taken: dict[TaskId, Task] = {}
        for reply in await self._client.run(calls) if calls else []:
            for binary, value in zip(reply[::2], reply[1::2], strict=True):
                task_id = id_text(binary)
                taken[task_id] = task_of(task_id, value)
        return taken


def _turned(claim: Claim, turn: int, limit: int) -> Claim:
    """The rest of a claim: its tables go on where they were."""
    if turn == 0:
        return replace(claim, limit=limit)
    queues = tuple(
        replace(order, tables=tuple(order.tables[(turn + at) % len(order.tables)] for at in range(len(order.tables))))
        for order in claim.queues
    )
    return replace(claim, limit=limit, queues=queues)
