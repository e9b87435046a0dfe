"""Reading: tasks by id, by alarm and by filter, and how the store stands.

What spans slots is gathered slot by slot and merged here: reads need no single step, because every change that
follows from one is a compare-and-set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairlead.core.identity import TaskId, slot_of_id
from fairlead.core.instant import Instant
from fairlead.core.task import State, Task
from fairlead.storage.limiting import QUEUE_NAME, key_name, type_name
from fairlead.storage.redis import scripts
from fairlead.storage.redis.client import Call, Client
from fairlead.storage.redis.codec import task_of
from fairlead.storage.redis.keys import STATES, TREES, Keys, id_bytes, id_text, lane_of
from fairlead.storage.redis.registry import Registry
from fairlead.storage.redis.wire import Reply, Word
from fairlead.storage.values import Filter, LaneTally, Stretch, Tally, Usage, Used

_GET_CHUNK: Final = 200
_LEASED_CHUNK: Final = 1_000
_WALK_CHUNK: Final = 200
_WALK_MOST: Final = 1_000


class Finder:
    """The reading half of a store."""

    def __init__(self, client: Client, keys: Keys, registry: Registry) -> None:
        self._client = client
        self._keys = keys
        self._registry = registry

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        """The tasks with these ids."""
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
        calls = [Call(packed[chunk[0]], ("MGET", *[packed[at] for at in chunk])) for chunk in chunks]
        tasks: list[Task | None] = [None] * len(ids)
        if calls:
            for chunk, values in zip(chunks, await self._client.run(calls, repeatable=True), strict=True):
                for at, value in zip(chunk, values, strict=True):
                    if value is not None:
                        tasks[at] = task_of(ids[at], value)
        return tasks

    async def due(self, now: Instant, limit: int, after: tuple[Instant, TaskId] | None) -> list[Task]:
        """The tasks whose alarm has come, earliest first."""
        slots = await self._registry.slots()
        await self._registry.retire_some(slots)
        mark = ("", "") if after is None else (after[0], id_bytes(after[1]) or b"")
        calls = [
            Call(key, (1, key, now, limit, *mark), scripts.DUE)
            for slot in slots
            for key in (self._keys.base(slot) + b"a", self._keys.base(slot) + b"e")
        ]
        if not calls or limit <= 0:
            return []
        entries: list[tuple[int, bytes]] = []
        for reply in await self._client.run(calls, repeatable=True):
            entries += [(int(float(alarm)), binary) for binary, alarm in zip(reply[::2], reply[1::2], strict=True)]
        entries.sort()
        tasks = await self.get([id_text(binary) for _, binary in entries[:limit]])
        # A task may have moved on since its alarm was listed.
        found = [task for task in tasks if task and task.status.alarm is not None and task.status.alarm <= now]
        return sorted(found, key=lambda task: (task.status.alarm or 0, task.id))

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

    async def tally(self) -> Tally:
        """How the whole store stands."""
        slots = await self._registry.slots()
        calls = [Call(base, (1, base), scripts.TALLY) for base in map(self._keys.base, slots)]
        replies = await self._client.run(calls, repeatable=True) if calls else []
        lanes: list[LaneTally] = []
        alarms: list[float] = []
        for reply in replies:
            lanes += _lane_tallies(reply)
            alarms += [float(alarm) for alarm in reply[3] if alarm != b"inf"]
        return Tally(lanes, int(min(alarms)) if alarms else None)

    async def count(self, stretches: Sequence[Stretch]) -> list[int]:
        """How many ready tasks are in stretches of their lanes."""
        calls: list[Call] = []
        for stretch in stretches:
            kind = self._keys.kind(stretch.lane)
            key = kind.base + b"l" + kind.lanes[stretch.lane.priority].encode()
            ends = [(place.ready_at, id_bytes(place.id) or b"") for place in (stretch.start, stretch.end)]
            calls.append(Call(key, (1, key, *ends[0], *ends[1]), scripts.COUNT))
        return [int(reply) for reply in await self._client.run(calls, repeatable=True)] if calls else []

    async def _walk(
        self, trees: Sequence[bytes], mark: bytes, size: int, newest_first: bool
    ) -> tuple[list[TaskId], list[bytes], bytes]:
        """The next ids of all trees together, the trees that may have more, and where to go on."""
        calls = [Call(tree, (1, tree, mark, size, int(newest_first)), scripts.WALK) for tree in trees]
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
            page = await self._client.run_one(
                Call(key, (1, key, "+inf", _LEASED_CHUNK, *mark), scripts.DUE), repeatable=True
            )
            listed += page[::2]
            if len(page) < 2 * _LEASED_CHUNK:
                return listed
            mark = (page[-1], page[-2])


def _lane_tallies(reply: Sequence[Reply]) -> list[LaneTally]:
    """The lanes of one slot."""
    descriptors, fields, heads, _ = reply
    kinds: dict[bytes, bytes] = dict(zip(descriptors[::2], descriptors[1::2], strict=True))
    oldest = {lane: int(float(ready_at)) for lane, ready_at in zip(heads[::2], heads[1::2], strict=True)}
    counts: dict[bytes, dict[State, int]] = {}
    for field, number in zip(fields[::2], fields[1::2], strict=True):
        counts.setdefault(field[:9], {})[STATES[field[9:]]] = int(number)
    return [LaneTally(lane_of(kinds[lane[:8]], lane[8:]), states, oldest.get(lane)) for lane, states in counts.items()]
