"""Which ready tasks no live worker could run, and what they lack: one rule for all that tell of it.

It costs one look-up for each lane, however many workers and task types there are, and names a bounded number of kinds.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.explain.explanation import CauseCode
from fairlead.core.instant import Instant, Span
from fairlead.core.task import Lane

MOST_NAMED: Final = 10
"""How many kinds of tasks of a queue are told apart; the rest is only counted."""


LACKS: Final = frozenset(
    {CauseCode.NO_WORKERS, CauseCode.QUEUE_UNSERVED, CauseCode.TYPE_UNKNOWN, CauseCode.CAPABILITY_MISSING}
)
"""What a `Lack` may be."""


class Ability(Struct, frozen=True):
    """What a worker can run; mostly many can run the same."""

    queues: tuple[str, ...]
    types: tuple[str, ...] | None
    """None for any."""
    capabilities: tuple[str, ...]
    tenant: str | None = None
    """The tenant that it is bound to: it does not serve the queues that are bound to others."""


class Lack(Struct, frozen=True):
    """Why no worker could run a task."""

    code: str
    """One of `LACKS`; a server may know more of them than its client."""
    missing: tuple[str, ...] = ()
    """The capabilities that the workers which come nearest do not have."""


class _Served(Struct):
    """What the workers of one queue can run."""

    any_type: set[frozenset[str]]
    """The capabilities of those that run any type."""
    by_type: dict[str, set[frozenset[str]]]

    def capabilities_for(self, task_type: str) -> set[frozenset[str]]:
        known = self.by_type.get(task_type)
        return self.any_type if known is None else known | self.any_type if self.any_type else known


class Fleet:
    """What the live workers can run, together."""

    def __init__(self, abilities: Collection[Ability], tenants: Mapping[str, str] | None = None) -> None:
        """`tenants` are those that queues are bound to, by queue."""
        self._queues: dict[str, _Served] = {}
        for each in set(abilities):
            capabilities = frozenset(each.capabilities)
            for queue in each.queues:
                bound = None if tenants is None else tenants.get(queue)
                if bound is not None and each.tenant not in (None, bound):
                    continue
                served = self._queues.setdefault(queue, _Served(set(), {}))
                if each.types is None:
                    served.any_type.add(capabilities)
                for task_type in each.types or ():
                    served.by_type.setdefault(task_type, set()).add(capabilities)
        self._empty: Final = not abilities

    def serves(self, queue: str) -> bool:
        """Whether any worker serves a queue."""
        return queue in self._queues

    def can_run(self, lane: Lane) -> bool:
        """Whether any worker could run the tasks of a lane."""
        served = self._queues.get(lane.queue)
        able = () if served is None else served.capabilities_for(lane.type)
        if not lane.requires:
            return bool(able)
        return any(each.issuperset(lane.requires) for each in able)

    def lack_of(self, lane: Lane) -> Lack | None:
        """Why no worker could run the tasks of a lane; None if one could."""
        served = self._queues.get(lane.queue)
        if served is None:
            return Lack(CauseCode.NO_WORKERS if self._empty else CauseCode.QUEUE_UNSERVED)
        if self.can_run(lane):
            return None
        able = served.capabilities_for(lane.type)
        if not able:
            return Lack(CauseCode.TYPE_UNKNOWN)
        return Lack(CauseCode.CAPABILITY_MISSING, _nearest(frozenset(lane.requires), able))


def _nearest(required: frozenset[str], able: Iterable[frozenset[str]]) -> tuple[str, ...]:
    """The fewest capabilities that are missing; whatever order a set has, the same for the same workers."""
    missing = [tuple(sorted(required - each)) for each in able]
    return min(missing, key=lambda each: (len(each), each))


class Unserved(Struct, frozen=True, kw_only=True):
    """Ready tasks of one kind in a queue that no live worker could run."""

    type: str | None
    """None for all of the queue, whatever their type: no worker serves it."""
    requires: tuple[str, ...] = ()
    lack: Lack
    tasks: int
    oldest_age: Span
    """How long the one has waited that has waited longest."""

    @property
    def reason(self) -> str:
        """What is lacking, in words; the queue is named by whoever says this."""
        match self.lack.code:
            case CauseCode.NO_WORKERS:
                return "no worker is running"
            case CauseCode.QUEUE_UNSERVED:
                return "no worker serves it"
            case CauseCode.TYPE_UNKNOWN:
                return f"no worker of it has a handler for {self.type}"
            case _:
                return f"no worker of it with a handler for {self.type} has {' and '.join(self.lack.missing)}"

    def remedy(self, queue: str) -> str:
        """What to do about it."""
        start = f"start one: `fairlead worker app.tasks:app --queues {queue}"
        match self.lack.code:
            case CauseCode.NO_WORKERS | CauseCode.QUEUE_UNSERVED:
                return f"{start}`"
            case CauseCode.TYPE_UNKNOWN:
                return f"start a worker of {queue} whose program has that handler"
            case _:
                return f"{start} --capabilities {','.join(sorted({*self.requires, *self.lack.missing}))}`"


class UnservedTasks(Struct, frozen=True, kw_only=True):
    """The ready tasks of one queue that no live worker could run."""

    tasks: int = 0
    kinds: int = 0
    """How many pairs of a task type and a capability set they are of."""
    first: tuple[Unserved, ...] = ()
    """Those of which most wait."""

    def for_tenant(self) -> UnservedTasks:
        """The same without saying whether there are workers that are not the tenant's."""
        lack = Lack(CauseCode.QUEUE_UNSERVED)
        return replace(
            self, first=tuple(replace(each, lack=lack) if each.type is None else each for each in self.first)
        )


SERVED: Final = UnservedTasks()
"""All tasks could be run."""


def unserved(fleet: Fleet, ready: Iterable[tuple[Lane, int, Instant]], now: Instant) -> dict[str, UnservedTasks]:
    """What nobody could run, by queue, given of each lane how many are ready and since when the first waits."""
    found: dict[str, dict[_Kind, tuple[int, Instant, Lane]]] = defaultdict(dict)
    for lane, tasks, since in ready:
        if fleet.can_run(lane):
            continue
        kinds = found[lane.queue]
        kind = (lane.type, lane.requires) if fleet.serves(lane.queue) else None
        before = kinds.get(kind)
        kinds[kind] = (tasks, since, lane) if before is None else (tasks + before[0], min(since, before[1]), lane)
    return {queue: _told(fleet, kinds, now) for queue, kinds in found.items()}


_Kind: TypeAlias = tuple[str, tuple[str, ...]] | None
"""A task type and a capability set; None for all of a queue that nobody serves."""


def _told(fleet: Fleet, kinds: Mapping[_Kind, tuple[int, Instant, Lane]], now: Instant) -> UnservedTasks:
    first = heapq.nsmallest(MOST_NAMED, kinds.items(), key=lambda each: (-each[1][0], each[1][1], each[0] or ()))
    return UnservedTasks(
        tasks=sum(tasks for tasks, _, _ in kinds.values()),
        kinds=len(kinds),
        first=tuple(
            Unserved(
                type=None if kind is None else kind[0],
                requires=() if kind is None else kind[1],
                lack=lack,
                tasks=tasks,
                oldest_age=max(0, now - since),
            )
            for kind, (tasks, since, lane) in first
            if (lack := fleet.lack_of(lane)) is not None
        ),
    )


class LastSeen:
    """What workers could run that have been here lately: one that starts again is not missed meanwhile."""

    def __init__(self) -> None:
        self._until: dict[Ability, Span] = {}

    def with_those_of_late(self, abilities: Collection[Ability], now: Span, grace: Span) -> set[Ability]:
        """These, and those that were seen within a grace; `now` is of a clock that does not step."""
        self._until = {each: until for each, until in self._until.items() if until > now}
        self._until.update(dict.fromkeys(abilities, now + grace))
        return set(self._until)
