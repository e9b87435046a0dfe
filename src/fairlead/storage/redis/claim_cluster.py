"""Claims from queues whose tasks are on different servers of a Cluster.

No single step can compare them, so the heads of their lanes are read first, merged here as one server would merge them,
and what is best is taken where it is. A task that someone else took meanwhile is left out, and the claim looks again.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from fairlead.core.errors import StoreError
from fairlead.core.identity import TaskId, slot_of_id
from fairlead.core.instant import SECOND, Instant
from fairlead.core.queues.limits import NO_LIMITS
from fairlead.core.queues.order import passed_after
from fairlead.core.task import Lane, Task
from fairlead.storage.lane_merge import Head, merge
from fairlead.storage.quarantine import Quarantine
from fairlead.storage.redis import scripts
from fairlead.storage.redis.client.calls import Call, Client
from fairlead.storage.redis.client.resp import Reply, Word
from fairlead.storage.redis.keys import Keys, encode, id_text, lane_of, moment_word, tasks_in
from fairlead.storage.redis.scripts import CLAIM_CHUNK, Writers
from fairlead.storage.values import Claim, QueueOrder

Kind: TypeAlias = tuple[str, str]
"""A queue and a task type in it."""

_LOOKS: Final = 5
"""How often a claim looks when others are quicker."""
_LIMITED_LOOKS: Final = 50
"""How often more it looks under limits: what they hold back is out of sight then, and others may be behind it."""


class Spread:
    """Claims over several servers."""

    def __init__(self, client: Client, keys: Keys, writers: Writers, quarantine: Quarantine) -> None:
        self._client = client
        self._keys = keys
        self._writers = writers
        self._quarantine = quarantine

    async def claim(self, claim: Claim) -> list[Task]:
        """The best ready tasks of all queues together."""
        tasks: list[Task] = []
        try:
            await self._fill(claim, tasks)
        except StoreError:
            # What was taken goes to the caller, or nobody would run it. Whoever looks next meets the same trouble.
            if not tasks:
                raise
        return tasks

    async def _fill(self, claim: Claim, tasks: list[Task]) -> None:
        """Take the best ready tasks, beside those that were taken."""
        shut: set[Kind] = set()
        paused: set[bytes] = set()
        for look in range(claim.limit + _LIMITED_LOOKS):
            wanted = min(CLAIM_CHUNK, claim.limit - len(tasks))
            if wanted <= 0:
                break
            lanes = await self._lanes(claim, shut, paused)
            limited = claim.limited or any(lane.keyed for lane, _ in lanes)
            if limited:
                wanted = 1  # what is best after it may come to light only when it is taken
            heads = await self._heads(claim, lanes, wanted, paused, first=look == 0)
            dated = replace(_tables_turned(turned(claim, tasks), len(tasks)), limit=wanted).dated(
                await self._time(claim)
            )
            chosen: list[TaskId] = [head[1] for head in merge(dated, heads)]
            if limited:
                found, closed = await self._take_limited(claim, chosen, paused)
                shut |= closed
            else:
                found = await self._take(claim, chosen, paused)
            sound, met = tasks_in(found)
            taken = {task.id: task for task in sound}
            tasks += [taken[task_id] for task_id in chosen if task_id in taken]
            if met:
                await self._quarantine.clear(met)
            if not chosen if limited else look + 1 == _LOOKS or len(taken) == len(chosen) < wanted:
                break

    async def _lanes(self, claim: Claim, shut: Container[Kind], paused: set[bytes]) -> list[tuple[Lane, bytes]]:
        """The lanes that the claim may take from, and their names."""
        bases = ((order.queue, self._base(order.queue)) for order in claim.queues)
        queues = {queue: base for queue, base in bases if base not in paused}
        listing = [Call(base, ("HGETALL", base + b"q" + queue.encode())) for queue, base in queues.items()]
        return [
            (lane, name)
            for reply in await self._run(listing, paused)
            for name, descriptor in zip(reply[::2], reply[1::2], strict=True)
            if claim.admits(lane := lane_of(descriptor, name[8:])) and (lane.queue, lane.type) not in shut
        ]

    async def _heads(
        self, claim: Claim, lanes: Sequence[tuple[Lane, bytes]], count: int, paused: set[bytes], *, first: bool
    ) -> list[tuple[Lane, Iterator[Head]]]:
        """The first tasks of each lane."""
        keyed = {lane.queue for lane, _ in lanes if lane.keyed}
        if keyed and first:
            looks = [
                Call(base, (moment_word(claim.now), *(order.queue, *limit_words(order))), scripts.LOOK)
                for order, base in ((order, self._base(order.queue)) for order in claim.queues)
                if order.queue in keyed
            ]
            await self._run(looks, paused)
        calls = [
            Call(base, ("ZRANGE", base + (b"f" if lane.keyed else b"l") + name, 0, count - 1, "WITHSCORES"))
            for lane, name, base in ((lane, name, self._base(lane.queue)) for lane, name in lanes)
        ]
        replies = await self._client.run(calls, repeatable=True) if calls else []
        return [
            (lane, iter([(int(float(score)), id_text(binary)) for binary, score in zip(r[::2], r[1::2], strict=True)]))
            for (lane, _), r in zip(lanes, replies, strict=True)
        ]

    async def _run(self, calls: Sequence[Call], paused: set[bytes]) -> list[Reply]:
        """What was answered about slots that are where they belong; the others are noted.

        One queue that is on its way to another node does not keep a worker from the others.
        """
        # Only what changes nothing may be repeated, and that is what is no script here.
        repeatable = all(call.script is None for call in calls)
        replies = await self._client.run(calls, repeatable=repeatable, leaving_out=True) if calls else []
        paused.update(call.key for call, reply in zip(calls, replies, strict=True) if reply is None)
        return [reply for reply in replies if reply is not None]

    async def _take(self, claim: Claim, chosen: Sequence[TaskId], paused: set[bytes]) -> list[bytes]:
        """What was taken, as `tasks_in` reads it."""
        calls = [Call(base, (*_lease(claim), *ids), self._writers.take) for base, ids in self._by_base(chosen)]
        return [each for reply in await self._run(calls, paused) for each in reply]

    async def _take_limited(
        self, claim: Claim, chosen: Sequence[TaskId], paused: set[bytes]
    ) -> tuple[list[bytes], set[Kind]]:
        """What was taken, as `tasks_in` reads it, and the types of queues that let no more start for now."""
        words = {
            base: [word for order in claim.queues if self._base(order.queue) == base for word in _queue_words(order)]
            for base in {self._base(order.queue) for order in claim.queues}
        }
        calls = [
            Call(base, (*_lease(claim), len(words[base]) // 3, *words[base], *ids), self._writers.take_limited)
            for base, ids in self._by_base(chosen)
        ]
        taken: list[bytes] = []
        shut: set[Kind] = set()
        for found, closed in await self._run(calls, paused):
            taken += found
            shut |= {(lane.queue, lane.type) for lane in (lane_of(descriptor, b"0") for descriptor in closed)}
        return taken, shut

    async def _time(self, claim: Claim) -> Instant:
        """When the claim compares the heads of lanes; each server that gives a task goes by its own clock."""
        if claim.now is not None:
            return claim.now
        base = self._base(claim.queues[0].queue)
        # A plain command: the first queue may be on its way to another node, and its clock is as good as any.
        seconds, part = await self._client.run_one(Call(base, ("TIME",)), repeatable=True)
        return int(seconds) * SECOND + int(part)

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
    return moment_word(claim.now), claim.lease, claim.grace, claim.worker, claim.token


def turned(claim: Claim, tasks: Sequence[Task]) -> Claim:
    """The rest of a claim that has taken these tasks: whose turn it is next follows from them."""
    if not tasks or all(order.share is None for order in claim.queues):
        return claim
    return replace(claim, queues=tuple(_passed_on(order, tasks) for order in claim.queues))


def _passed_on(order: QueueOrder, tasks: Sequence[Task]) -> QueueOrder:
    served = (task.status for task in tasks if task.spec.queue == order.queue)
    waits = [(status.priority, (status.started_at or status.ready_at) - status.ready_at) for status in served]
    return replace(order, passed=passed_after(order.turns, waits))


def _tables_turned(claim: Claim, turn: int) -> Claim:
    """The rest of a claim that has had so many turns: its tables go on where they were."""
    if turn == 0:
        return claim
    queues = tuple(
        replace(order, tables=tuple(order.tables[(turn + at) % len(order.tables)] for at in range(len(order.tables))))
        for order in claim.queues
    )
    return replace(claim, queues=queues)
