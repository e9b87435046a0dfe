"""Reading: tasks by id, by alarm and by filter, and how the store stands.

What spans slots is gathered slot by slot and merged here: reads need no single step, because every change that
follows from one is a compare-and-set.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from fairlead.core.identity import TaskId, slot_of_id
from fairlead.core.instant import Instant
from fairlead.core.queues.fairness import LineTurns
from fairlead.core.task import Priority, State, Task
from fairlead.storage.claim_limits import QUEUE_NAME, key_name, type_name
from fairlead.storage.quarantine import UNDECODABLE, Damage, Location, Quarantine
from fairlead.storage.redis import scripts
from fairlead.storage.redis.client.calls import Call, Client
from fairlead.storage.redis.client.resp import Reply, Word
from fairlead.storage.redis.keys import (
    STATES,
    TREES,
    Keys,
    damage_of,
    id_bytes,
    id_text,
    kind_in,
    lane_of,
    moment_word,
    task_of,
    value_in,
)
from fairlead.storage.redis.slot_registry import Registry
from fairlead.storage.values import Filter, LaneTally, LineKeys, Stretch, Tally, Usage, Used

_GET_CHUNK: Final = 200
_LEASED_CHUNK: Final = 1_000
_HEADS_CHUNK: Final = 500
"""Lanes of which one call reads the heads: it takes a millisecond."""
_WALK_CHUNK: Final = 200
_WALK_MOST: Final = 1_000


class Finder:
    """The reading half of a store."""

    def __init__(self, client: Client, keys: Keys, registry: Registry, quarantine: Quarantine) -> None:
        self._client = client
        self._keys = keys
        self._registry = registry
        self._quarantine = quarantine
        self._paused: dict[int, float] = {}
        """When slots were last found to be on their way to another node."""
        self.lease = 30.0
        """How long a lease is, in seconds, as far as this process has heard."""

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        """The tasks with these ids."""
        return (await self._read(ids))[0]

    async def locate(self, damage: Damage) -> Location | None:
        """Where what is no task is: by its kind, or in the only queue of its slot."""
        key = self._keys.base(slot_of_id(damage.id)) + b"d"
        reply = await self._client.run_one(Call(key, ("HGETALL", key)), repeatable=True)
        kinds = dict(zip(reply[::2], reply[1::2], strict=True))
        if (kind := kind_in(value_in(damage))) in kinds:
            lane = lane_of(kinds[kind], b"0")
            return Location(lane.queue, lane.requires)
        queues = {lane_of(descriptor, b"0").queue for descriptor in kinds.values()}
        # A newer version, too, would have said its kind.
        return Location(queues.pop() if len(queues) == 1 else None, ())

    async def _read(self, ids: Sequence[TaskId]) -> tuple[list[Task | None], bool]:
        """The tasks with these ids, and whether any of them was none and is set aside."""
        tasks: list[Task | None] = [None] * len(ids)
        met: list[Damage] = []
        for together, calls in self._reads(ids):
            for chunk, values in zip(together, await self._client.run(calls, repeatable=True), strict=True):
                for at, value in zip(chunk, values, strict=True):
                    if value is not None:
                        try:
                            tasks[at] = task_of(ids[at], value)
                        except UNDECODABLE as error:
                            met.append(damage_of(ids[at], value, error))
        if met:
            await self._quarantine.set_aside(met)
        return tasks, bool(met)

    def _reads(self, ids: Sequence[TaskId]) -> Iterable[tuple[Sequence[Sequence[int]], Sequence[Call]]]:
        """The calls that read these tasks, as many as are made at once, and the places of what each of them reads."""
        if len(ids) == 1:
            # Most reads are of one task: there is nothing to sort and to cut.
            key = self._key(ids[0])
            return () if key is None else ((((0,),), (Call(key, ("MGET", key)),)),)
        by_slot: dict[int, list[int]] = {}
        packed: dict[int, bytes] = {}
        for at, task_id in enumerate(ids):
            binary = id_bytes(task_id)
            if binary is not None:
                slot = slot_of_id(task_id)
                packed[at] = self._keys.base(slot) + b"t" + binary
                by_slot.setdefault(slot if self._client.spread else 0, []).append(at)
        chunks = [
            positions[first : first + _GET_CHUNK]
            for positions in by_slot.values()
            for first in range(0, len(positions), _GET_CHUNK)
        ]
        return (
            (together, [Call(packed[chunk[0]], ("MGET", *[packed[at] for at in chunk])) for chunk in together])
            for together in _gathered(chunks)
        )

    def _key(self, task_id: TaskId) -> bytes | None:
        """The key of a task; None for what can be the id of none."""
        binary = id_bytes(task_id)
        return None if binary is None else self._keys.base(slot_of_id(task_id)) + b"t" + binary

    async def due(self, now: Instant | None, limit: int, after: tuple[Instant, TaskId] | None) -> list[Task]:
        """The tasks whose alarm has come, earliest first."""
        slots = await self._registry.slots()
        await self._registry.retire_some(slots)
        found: list[Task] = []
        while slots and len(found) < limit:
            entries = await self._alarms(slots, now, limit, after)
            tasks, is_short = await self._read([task_id for _, task_id in entries])
            # A task may have moved on since its alarm was listed; up to the last one listed, alarms have come.
            last = entries[-1][0] if entries else 0
            found += [task for task in tasks if task and task.status.alarm is not None and task.status.alarm <= last]
            if not is_short or len(entries) < limit:
                break
            # Some were no tasks, and others may be behind them.
            after = entries[-1]
        return sorted(found, key=lambda task: (task.status.alarm or 0, task.id))[: max(limit, 0)]

    async def _alarms(
        self, slots: Iterable[int], now: Instant | None, limit: int, after: tuple[Instant, TaskId] | None
    ) -> list[tuple[Instant, TaskId]]:
        """The alarms that have come, earliest first."""
        mark = ("", "") if after is None else (after[0], id_bytes(after[1]) or b"")
        renewing = self._renewing()
        indexes = [(slot, clock) for slot in slots for clock in (b"a", b"e") if clock == b"a" or slot not in renewing]
        calls = [
            Call(self._keys.base(slot) + clock, (moment_word(now), limit, *mark), scripts.DUE)
            for slot, clock in indexes
        ]
        entries: list[tuple[Instant, TaskId]] = []
        # One queue that is on its way to another node does not keep the others from being swept.
        replies = await self._client.run(calls, repeatable=True, leaving_out=True)
        for (slot, _), reply in zip(indexes, replies, strict=True):
            if reply is None:
                self._paused[slot] = time.monotonic()
                continue
            pairs = zip(reply[::2], reply[1::2], strict=True)
            entries += [(int(float(alarm)), id_text(binary)) for binary, alarm in pairs]
        return sorted(entries)[:limit]

    def _renewing(self) -> set[int]:
        """The slots in which live leases may look ended: for one lease length after nobody could renew them."""
        oldest = time.monotonic() - self.lease
        self._paused = {slot: moment for slot, moment in self._paused.items() if moment > oldest}
        return set(self._paused)

    async def find(self, matching: Filter, *, limit: int, newest_first: bool, after: TaskId | None) -> list[Task]:
        """One page of the tasks a filter admits, by id."""
        if limit <= 0:
            return []
        slots = await self._registry.slots() if matching.queue is None else [self._keys.slot(matching.queue)]
        if matching.worker is not None or matching.states == {State.EXECUTING}:
            return await self._find_leased(slots, matching, limit, newest_first, after)
        states = matching.states or frozenset(State)
        trees = [self._keys.base(slot) + b"i" + tree for slot in slots for tree in sorted({TREES[s] for s in states})]
        found: list[Task] = []
        mark = b"" if after is None else id_bytes(after) or b""
        size = min(max(limit, 16), _WALK_CHUNK)
        while trees and len(found) < limit:
            ids, trees, mark = await self._walk(trees, mark, size, newest_first)
            found += [task for task in await self.get(ids) if task is not None and matching.admits(task)]
            size = min(2 * size, _WALK_MOST)
        return found[:limit]

    async def holder(self, queue: str, key: str, now: Instant | None) -> TaskId | None:
        """The task that holds an idempotency key."""
        base = self._keys.base(self._keys.slot(queue))
        call = Call(base, (f"{queue} {key}", moment_word(now)), scripts.HOLDER)
        found = await self._client.run_one(call, repeatable=True)
        return None if found is None else id_text(found)

    async def tally(self) -> Tally:
        """How the whole store stands."""
        slots = await self._registry.slots()
        calls = [Call(base, (_HEADS_CHUNK,), scripts.TALLY) for base in map(self._keys.base, slots)]
        replies = await self._client.run(calls, repeatable=True) if calls else []
        for call, reply in zip(calls, replies, strict=True):
            if len(reply[2]) == 2 * _HEADS_CHUNK:
                reply[2] += await self._further_heads(call.key, reply[1], set(reply[2][::2]))
        lanes: list[LaneTally] = []
        alarms: list[float] = []
        for reply in replies:
            lanes += _lane_tallies(reply)
            alarms += [float(alarm) for alarm in reply[3] if alarm != b"inf"]
        return Tally(lanes, int(min(alarms)) if alarms else None)

    async def _further_heads(self, base: bytes, fields: Sequence[bytes], known: set[bytes]) -> list[bytes]:
        """The heads of the other lanes that have ready tasks, as the tally has them."""
        lanes = [field[:9] for field in fields[::2] if field[9:] == b"q" and field[:9] not in known]
        pieces = [lanes[first : first + _HEADS_CHUNK] for first in range(0, len(lanes), _HEADS_CHUNK)]
        heads: list[bytes] = []
        for piece in pieces:
            heads += await self._client.run_one(Call(base, tuple(piece), scripts.HEADS), repeatable=True)
        return heads

    async def count(self, stretches: Sequence[Stretch], most: int | None) -> list[int]:
        """How many ready tasks are in stretches of their lanes; a tree knows that without looking at them."""
        calls: list[Call] = []
        for stretch in stretches:
            kind = self._keys.kind(stretch.lane)
            key = kind.base + (b"x" if stretch.by_turn else b"l") + kind.lanes[stretch.lane.priority].encode()
            ends = [(place.ready_at, id_bytes(place.id) or b"") for place in (stretch.start, stretch.end)]
            calls.append(Call(key, (*ends[0], *ends[1]), scripts.COUNT))
        replies = await self._client.run(calls, repeatable=True) if calls else []
        return [int(reply) if most is None else min(int(reply), most) for reply in replies]

    async def line_keys(self, queue: str, priority: Priority, named: Sequence[str], most: int) -> LineKeys:
        """Who waits in a line."""
        call = Call(self._keys.line(queue, priority), (most, *named), scripts.LINE_KEYS)
        reached, others, keys, *waiting = await self._client.run_one(call, repeatable=True)
        counts = {key.decode(): int(number) for key, number in zip(waiting[::2], waiting[1::2], strict=True)}
        return LineKeys(LineTurns(int(reached), int(others)), int(keys), counts)

    async def _walk(
        self, trees: Sequence[bytes], mark: bytes, size: int, newest_first: bool
    ) -> tuple[list[TaskId], list[bytes], bytes]:
        """The next ids of all trees together, the trees that may have more, and where to go on."""
        calls = [Call(tree, (mark, size, int(newest_first)), scripts.WALK) for tree in trees]
        listed = await self._client.run(calls, repeatable=True)
        ends = [ids[-1] for ids in listed if len(ids) == size]
        merged = sorted((binary for ids in listed for binary in ids), reverse=newest_first)
        if not ends:
            return [id_text(binary) for binary in merged], [], mark
        # Beyond the nearest end of a tree that has more, others' ids may come after what is still to be listed there.
        end = max(ends) if newest_first else min(ends)
        within = [binary for binary in merged if (binary >= end if newest_first else binary <= end)]
        still = [
            tree
            for tree, ids in zip(trees, listed, strict=True)
            if ids and (len(ids) == size or (ids[-1] < end if newest_first else ids[-1] > end))
        ]
        return [id_text(binary) for binary in within], still, end

    async def _find_leased(
        self, slots: Sequence[int], matching: Filter, limit: int, newest_first: bool, after: TaskId | None
    ) -> list[Task]:
        """Tasks under a lease: few enough, being one per busy worker slot, to be sorted here."""
        listed = [binary for slot in slots for binary in await self._leased(self._keys.base(slot) + b"e")]
        ids = sorted({id_text(binary) for binary in listed}, reverse=newest_first)
        if after is not None:
            ids = [task_id for task_id in ids if (task_id < after if newest_first else task_id > after)]
        found: list[Task] = []
        for first in range(0, len(ids), _GET_CHUNK):
            tasks = await self.get(ids[first : first + _GET_CHUNK])
            found += [task for task in tasks if task is not None and matching.admits(task)]
            if len(found) >= limit:
                break
        return found[:limit]

    async def usage(self, queue: str, task_type: str, key: str | None) -> Usage:
        """What is used of the limits of a queue, of a type and of a concurrency key in it."""
        base = self._keys.base(self._keys.slot(queue))
        named = queue.encode()
        names = [QUEUE_NAME, type_name(task_type), *([] if key is None else [key_name(key)])]
        calls = [Call(base, ("HGETALL", base + b"d")), Call(base, ("HGETALL", base + b"n"))]
        calls += [Call(base, ("ZSCORE", base + b"g" + named, name)) for name in names]
        calls += [] if key is None else [Call(base, ("HGET", base + b"r" + named, key))]
        descriptors, fields, *rest = await self._client.run(calls, repeatable=True)
        running = [
            (tally.lane.type, tally.counts.get(State.EXECUTING, 0))
            for tally in _lane_tallies((descriptors, fields, (), ()))
            if tally.lane.queue == queue
        ]
        dues = [None if score is None else int(float(score)) for score in rest[: len(names)]]
        return Usage(
            queue=Used(sum(count for _, count in running), dues[0]),
            type=Used(sum(count for of_type, count in running if of_type == task_type), dues[1]),
            key=Used() if key is None else Used(int(rest[-1] or 0), dues[2]),
        )

    async def _leased(self, key: bytes) -> list[bytes]:
        """The ids in a sorted set of alarms, page by page. One whose alarm moves on meanwhile may be there twice."""
        listed: list[bytes] = []
        mark: tuple[Word, Word] = ("", "")
        while True:
            page = await self._client.run_one(Call(key, ("+inf", _LEASED_CHUNK, *mark), scripts.DUE), repeatable=True)
            listed += page[::2]
            if len(page) < 2 * _LEASED_CHUNK:
                return listed
            mark = (page[-1], page[-2])


def _gathered(chunks: Sequence[Sequence[int]]) -> Iterator[Sequence[Sequence[int]]]:
    """Chunks that are read at once: no more than a full one has, as nothing else runs while answers are decoded."""
    first, total = 0, 0
    for at, chunk in enumerate(chunks):
        if at > first and total + len(chunk) > _GET_CHUNK:
            yield chunks[first:at]
            first, total = at, 0
        total += len(chunk)
    if chunks:
        yield chunks[first:]


def _lane_tallies(reply: Sequence[Reply]) -> list[LaneTally]:
    """The lanes of one slot."""
    descriptors, fields, heads, _ = reply
    kinds: dict[bytes, bytes] = dict(zip(descriptors[::2], descriptors[1::2], strict=True))
    oldest = {lane: int(float(ready_at)) for lane, ready_at in zip(heads[::2], heads[1::2], strict=True) if ready_at}
    counts: dict[bytes, dict[State, int]] = {}
    for field, number in zip(fields[::2], fields[1::2], strict=True):
        counts.setdefault(field[:9], {})[STATES[field[9:]]] = int(number)
    return [LaneTally(lane_of(kinds[lane[:8]], lane[8:]), states, oldest.get(lane)) for lane, states in counts.items()]
