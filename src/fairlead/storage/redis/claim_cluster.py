"""Claims from queues whose tasks are on different servers of a Cluster.

No single step can compare them, so the heads of their lanes are read first, merged here as one server would merge them,
and what is best is taken where it is. A task that someone else took meanwhile is left out, and the claim looks again.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final, TypeAlias

from msgspec.structs import replace

from fairlead.core.errors import StoreError
from fairlead.core.identity import TaskId, slot_of_id
from fairlead.core.instant import SECOND, Instant
from fairlead.core.queues.fairness import LineTurns
from fairlead.core.queues.limits import NO_LIMITS
from fairlead.core.queues.order import passed_after
from fairlead.core.task import Lane, Priority, Task
from fairlead.storage.claim_limits import OpenLanes, PlainFront
from fairlead.storage.fair_line import FairEntries
from fairlead.storage.lane_merge import Head, merge
from fairlead.storage.lane_search import Entry, LaneSearch
from fairlead.storage.quarantine import Quarantine
from fairlead.storage.redis import scripts
from fairlead.storage.redis.client.calls import Call, Client
from fairlead.storage.redis.client.resp import Reply, Word
from fairlead.storage.redis.keys import Keys, encode, id_text, lane_of, line_turns, moment_word, tasks_in
from fairlead.storage.redis.scripts import CLAIM_CHUNK, Writers
from fairlead.storage.values import Claim, QueueOrder

Kind: TypeAlias = tuple[str, str]
"""A queue and a task type in it."""

_TurnsOf: TypeAlias = tuple[list[tuple[Lane, Iterator[Head]]], dict[tuple[str, Priority], LineTurns]]
"""The first fair tasks of lanes by their turns, and how far the turns of each line have come."""
_Served: TypeAlias = tuple[Lane, LineTurns]
"""The lane of a task that is served by its turn, and how far those of its line have come then."""

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
            limited = claim.limited or any(lane.keyed or lane.fair for lane, _ in lanes)
            if limited:
                wanted = 1  # what is best after it may come to light only when it is taken
            lanes = await self._look(claim, lanes, paused, first=look == 0)
            heads = await self._heads(lanes, wanted)
            dated = replace(_tables_turned(turned(claim, tasks), len(tasks)), limit=wanted).dated(
                await self._time(claim)
            )
            served: _Served | None = None
            if any(lane.fair for lane, _ in lanes):
                chosen, served = _choose_fair(dated, heads, await self._turns(lanes))
            else:
                chosen = [head[1] for head in merge(dated, heads)]
            if limited:
                found, closed = await self._take_limited(claim, chosen, served, paused)
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

    async def _look(
        self, claim: Claim, lanes: list[tuple[Lane, bytes]], paused: set[bytes], *, first: bool
    ) -> list[tuple[Lane, bytes]]:
        """The lanes whose tasks may stand for their lines; keys that may go on come to the front, on the first look."""
        fair = {lane.queue for lane, _ in lanes if lane.fair}
        seen_to = fair | {lane.queue for lane, _ in lanes if lane.keyed and first}
        if not seen_to:
            return lanes
        calls = [
            Call(
                self._base(order.queue),
                (moment_word(claim.now), order.queue, *limit_words(order), 1 if order.queue in fair else ""),
                scripts.LOOK,
            )
            for order in claim.queues
            if order.queue in seen_to
        ]
        shut = {(reply[0].decode(), each.decode()) for reply in await self._run(calls, paused) for each in reply[1:]}
        return [
            (lane, name) for lane, name in lanes if (lane.queue, "") not in shut and (lane.queue, lane.type) not in shut
        ]

    async def _heads(self, lanes: Sequence[tuple[Lane, bytes]], count: int) -> list[tuple[Lane, Iterator[Head]]]:
        """The first tasks of each lane."""
        return await self._firsts([(lane, b"f" if lane.keyed else b"l", name) for lane, name in lanes], count)

    async def _turns(self, lanes: Sequence[tuple[Lane, bytes]]) -> _TurnsOf:
        """The fair tasks whose turn it is in each lane, and how far the turns of their lines have come."""
        fair = [(lane, name) for lane, name in lanes if lane.fair]
        fronts = await self._firsts([(lane, b"x", name) for lane, name in fair], 1)
        lines = list({(lane.queue, lane.priority) for lane, _ in fair})
        names = [self._keys.line(queue, priority) for queue, priority in lines]
        replies = await self._client.run([Call(name, ("HGET", name, "l")) for name in names], repeatable=True)
        return fronts, {line: line_turns(stored) for line, stored in zip(lines, replies, strict=True)}

    async def _firsts(
        self, lanes: Sequence[tuple[Lane, bytes, bytes]], count: int
    ) -> list[tuple[Lane, Iterator[Head]]]:
        calls = [
            Call(base, ("ZRANGE", base + of + name, 0, count - 1, "WITHSCORES"))
            for base, of, name in ((self._base(lane.queue), of, name) for lane, of, name in lanes)
        ]
        replies = await self._client.run(calls, repeatable=True) if calls else []
        return [
            (lane, iter([(int(float(score)), id_text(binary)) for binary, score in zip(r[::2], r[1::2], strict=True)]))
            for (lane, _, _), r in zip(lanes, replies, strict=True)
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
        self, claim: Claim, chosen: Sequence[TaskId], served: _Served | None, paused: set[bytes]
    ) -> tuple[list[bytes], set[Kind]]:
        """What was taken, as `tasks_in` reads it, and the types of queues that let no more start for now."""
        words = {
            base: [word for order in claim.queues if self._base(order.queue) == base for word in _queue_words(order)]
            for base in {self._base(order.queue) for order in claim.queues}
        }
        calls = [
            Call(
                base,
                (*_lease(claim), *_served_words(served), len(words[base]) // 3, *words[base], *ids),
                self._writers.take_limited,
            )
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


def _choose_fair(
    claim: Claim, heads: Sequence[tuple[Lane, Iterator[Head]]], turns: _TurnsOf
) -> tuple[list[TaskId], _Served | None]:
    """The task that a claim takes first, and how its line stands then."""
    by_turn, lines = turns
    others = OpenLanes(PlainFront(lane, each) for lane, each in heads if not lane.fair)
    others.few = len(claim.queues)  # of fair tasks alone they may be, too
    fair = _FairHeads([(lane, each) for lane, each in heads if lane.fair], by_turn, lines)
    search = LaneSearch(claim, others, lambda _: False, fair)
    front = search.best(0)
    if front is None or front.head is None:
        return [], None
    lane, task_id = front.lane, front.head[1]
    search.served(lane.queue)
    line = lane.queue, lane.priority
    after = search.turns().get(line)
    return [task_id], None if after is None or after == lines.get(line) else (lane, after)


class _FairHeads:
    """The heads of lanes of fair tasks, in both orders."""

    def __init__(
        self,
        by_age: Sequence[tuple[Lane, Iterator[Head]]],
        by_turn: Sequence[tuple[Lane, Iterator[Head]]],
        lines: Mapping[tuple[str, Priority], LineTurns],
    ) -> None:
        self._by_age, self._by_turn = [[PlainFront(*each) for each in heads] for heads in (by_age, by_turn)]
        self._lines = lines

    def fair_lines(self, queue: str) -> Mapping[Priority, FairEntries]:
        """See `FairSource`."""
        return {
            priority: FairEntries(
                self._entries(self._by_age, queue, priority), self._entries(self._by_turn, queue, priority), turns
            )
            for (of, priority), turns in self._lines.items()
            if of == queue
        }

    def _entries(self, fronts: Sequence[PlainFront], queue: str, priority: Priority) -> Iterator[Entry]:
        entries = [
            (front.head[0], front.head[1], front)
            for front in fronts
            if front.head is not None and (front.lane.queue, front.lane.priority) == (queue, priority)
        ]
        return iter(sorted(entries, key=itemgetter(0, 1)))


def _served_words(served: _Served | None) -> tuple[Word, ...]:
    """The line in which a task is served by its turn, as take_limited.lua is told of it."""
    if served is None:
        return "", 0, 0
    lane, turns = served
    return f"{int(lane.priority)}{lane.queue}", turns.reached, turns.others


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
