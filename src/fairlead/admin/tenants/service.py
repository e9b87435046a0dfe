"""Who shares the queues that are shared by fair keys: what waits and runs of each, and how often it has a turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from fairlead.core.identity import check_name
from fairlead.core.instant import Instant
from fairlead.core.queues.fair_place import is_noisy, starts_in
from fairlead.core.queues.fairness import TENANT, FairRule
from fairlead.core.task import State, Task
from fairlead.engine.fair_keys import FairKeys, QueueShares, TenantShare, fair_keys
from fairlead.engine.queue_cache import QueueCache
from fairlead.engine.runtime.clock import Clock
from fairlead.storage.protocol import Lagging, Store
from fairlead.storage.values import Filter, LaneTally

MOST_NAMED: Final = 50
"""How many keys of a queue are told apart: those of which most tasks wait."""
MOST_QUEUES: Final = 50
_MOST_READ: Final = 500
"""How many tasks of a queue are looked at for what runs, and as many for the oldest."""


class Tenants:
    """Who shares the queues of one store; to who is bound to a tenant, no more than that one's shares."""

    def __init__(self, store: Store, queue_cache: QueueCache, clock: Clock, tenant: str | None = None) -> None:
        self._store = store
        self._queue_cache = queue_cache
        self._clock = clock
        self._tenant = tenant

    async def all(self, queue: str | None = None) -> list[QueueShares]:
        """The queues that are shared, or one of them, by name; costs O(lanes) and a bounded number of tasks."""
        if queue is not None:
            check_name("queue", queue)
        await self._queue_cache.refresh()
        rules = self._queue_cache.fair
        names = sorted(name for name in rules if queue in (None, name))
        if self._tenant is not None:
            names = [name for name in names if rules[name].by == TENANT]
        if not names:
            return []
        lanes = [each for each in (await self._store.tally()).lanes if each.lane.queue in rules]
        named = () if self._tenant is None else (self._tenant,)
        most = MOST_NAMED if self._tenant is None else 0
        known = await fair_keys(self._store, lanes, most, named)
        found = [
            await self._shares(name, rules[name], lanes, known.get(name, FairKeys())) for name in names[:MOST_QUEUES]
        ]
        return found if self._tenant is None else [each for each in found if each.shares]

    async def _shares(self, name: str, rule: FairRule, lanes: Sequence[LaneTally], known: FairKeys) -> QueueShares:
        there = [each for each in lanes if each.lane.queue == name]
        executing: Counter[str] = Counter()
        if any(each.counts.get(State.EXECUTING) for each in there):
            executing.update(_key_of(task) for task in await self._find(name, State.EXECUTING))
        oldest: dict[str, Instant] = {}
        if known.waiting:
            for task in await self._find(name, State.QUEUED):
                at = task.status.ready_at
                oldest[_key_of(task)] = min(oldest.get(_key_of(task), at), at)
        unkeyed = any(each.counts.get(State.QUEUED) and not each.lane.fair for each in there)
        keys = {*known.waiting, *executing} - {""}
        if self._tenant is not None:
            keys &= {self._tenant}
        now, waits = self._clock.now(), sum(known.waiting.values()) + known.others
        shares = [
            TenantShare(
                key=key,
                waiting=known.waiting.get(key, 0),
                executing=executing[key],
                weight=rule.weights.get(key, rule.weight),
                part=_part(key, rule, known, unkeyed=unkeyed),
                oldest_age=max(0, now - oldest[key]) if key in oldest else None,
                noisy=is_noisy(known.waiting.get(key, 0), waits),
            )
            for key in keys
        ]
        shares.sort(key=lambda each: (-each.waiting, -each.executing, each.key))
        if self._tenant is not None:
            return QueueShares(queue=name, by=rule.by, shares=tuple(shares))
        more = sum(each.waiting for each in shares[MOST_NAMED:])
        return QueueShares(
            queue=name, by=rule.by, keys=known.keys, shares=tuple(shares[:MOST_NAMED]), others=known.others + more
        )

    async def _find(self, queue: str, state: State) -> Sequence[Task]:
        """Some tasks of a queue that stand like this, the oldest first."""
        find = self._store.find_current if isinstance(self._store, Lagging) else self._store.find
        return await find(Filter(states=frozenset({state}), queue=queue), limit=_MOST_READ, newest_first=False)


def _key_of(task: Task) -> str:
    return task.spec.fair_key or ""


def _part(key: str, rule: FairRule, known: FairKeys, *, unkeyed: bool) -> float | None:
    if key not in known.waiting:
        return None
    weights: Mapping[str, float] = {each: rule.weights.get(each, rule.weight) for each in known.waiting}
    others = max(0, known.keys - len(weights))
    return 1 / starts_in(weights[key], weights, others=others, default=rule.weight, unkeyed=unkeyed)
