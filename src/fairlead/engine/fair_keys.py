"""Who waits in queues that fair keys share: a few keys by name, and the rest as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.instant import Span
from fairlead.core.task import Priority, State
from fairlead.storage.protocol import Sharing, Store
from fairlead.storage.values import LaneTally

MOST_NAMED: Final = 10
"""How many keys of a queue are told apart: those of which most tasks wait."""
_MOST_LINES: Final = 50
"""In how many lines, of a queue and priority, keys are looked at: those with most tasks."""


class FairKeys(Struct, frozen=True, kw_only=True):
    """The waiting tasks of a queue that have fair keys."""

    keys: int = 0
    """How many keys they have, at least: the most that any one priority has."""
    waiting: dict[str, int] = {}
    """Those of some keys, most first."""
    others: int = 0
    """Those of all other keys."""


class TenantShare(Struct, frozen=True, kw_only=True):
    """What one fair key has of a queue, such as a tenant."""

    key: str
    waiting: int = 0
    executing: int = 0
    weight: float = 1
    part: float | None = None
    """Which part of the turns it has now, from 0 to 1; None if none of its tasks waits."""
    oldest_age: Span | None = None
    """How long its oldest waiting task has waited; None if none waits, or so many older ones of others."""
    noisy: bool = False
    """Whether nearly all that waits is its own, and others wait, too."""


class QueueShares(Struct, frozen=True, kw_only=True):
    """Who shares a queue."""

    queue: str
    by: str
    """What it is shared by: `tenant`, `type`, `tag:NAME` or `parameter:NAME`."""
    keys: int = 0
    """How many keys have waiting tasks, at least."""
    shares: tuple[TenantShare, ...] = ()
    """Those of which most tasks wait."""
    others: int = 0
    """How many tasks of all other keys wait."""


async def fair_keys(
    store: Store, lanes: Sequence[LaneTally], most: int = MOST_NAMED, named: Sequence[str] = ()
) -> dict[str, FairKeys]:
    """Who waits, by queue: the keys that are named, and of the others so many.

    There is nothing of queues in which no fair task waits, and it costs nothing where there are none.
    """
    lines: Counter[tuple[str, Priority]] = Counter()
    for each in lanes:
        if each.lane.fair and (ready := each.counts.get(State.QUEUED, 0)):
            lines[each.lane.queue, each.lane.priority] += ready
    if not lines or not isinstance(store, Sharing):
        return {}
    waiting: dict[str, Counter[str]] = {}
    keys: Counter[str] = Counter()
    for (queue, priority), _ in lines.most_common(_MOST_LINES):
        known = await store.line_keys(queue, priority, named=named, most=most)
        waiting.setdefault(queue, Counter()).update(known.waiting)
        keys[queue] = max(keys[queue], known.keys, len(waiting[queue]))
    depths: Counter[str] = Counter()
    for (queue, _), ready in lines.items():
        depths[queue] += ready
    return {queue: _told(keys[queue], counts, depths[queue], most + len(named)) for queue, counts in waiting.items()}


def _told(keys: int, counts: Counter[str], depth: int, most: int) -> FairKeys:
    named = dict(sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:most])
    return FairKeys(keys=keys, waiting=named, others=max(0, depth - sum(named.values())))
