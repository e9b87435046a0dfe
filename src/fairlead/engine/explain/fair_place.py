"""Where a task stands whose line is shared by fair keys, and what each key has of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.explain.explanation import Cause, CauseCode, LinePlace
from fairlead.core.instant import Instant
from fairlead.core.queues.fair_place import (
    is_tied,
    others_before,
    own_before,
    promoted_between,
    starts_in,
    turn_of_other,
)
from fairlead.core.queues.fairness import STEP, FairRule
from fairlead.core.queues.order import HeadStart, Weighted, rank_after
from fairlead.core.queues.promotion import BEFORE_ALL, FIRST_ID, Place
from fairlead.core.task import Priority, State, Task
from fairlead.engine.explain.limits_left import LimitsLeft
from fairlead.engine.explain.sight import Ahead, Sight
from fairlead.storage.protocol import Sharing, Store
from fairlead.storage.values import LaneTally, LineKeys, Stretch

MOST_KEYS: Final = 100
"""Of how many keys beside the task's own the weights are looked at; the others are taken to have the default."""
_MOST_COUNTED: Final = 10_000
"""How many tasks are counted, over all lanes."""


class FairPlace(Struct, frozen=True, kw_only=True):
    """Where a task stands in a line that takes turns."""

    ahead: Ahead
    exact: bool
    key: str | None
    """Its fair key; None for one that shares the turns of all without."""
    keys: int
    """How many keys have waiting tasks in the line; all tasks without one count as one more."""
    starts_in: float
    """Its key has one of so many starts of the line."""
    own: int
    """How many of those ahead have its key, if these are as far apart as turns of its weight."""
    own_exact: bool
    """Whether it is known how far apart they are: cancels leave gaps, and others may have been given another weight."""
    others: int
    """How many have another, or a more urgent priority."""


async def fair_place(store: Store, sight: Sight, rule: FairRule | None) -> FairPlace | None:
    """Where a queued task stands by turns; None if nobody takes turns in its line."""
    task, priority = sight.task, sight.task.status.priority
    queue = task.spec.queue
    lanes = [each for each in sight.lanes if each.lane.queue == queue]
    line = [each for each in lanes if each.lane.priority is priority]
    if not isinstance(store, Sharing) or not any(each.lane.fair for each in line):
        return None
    key = task.spec.fair_key if task.spec.takes_turns else None
    known = await store.line_keys(queue, priority, named=() if key is None else (key,), most=MOST_KEYS)
    depth = sum(_ready(each) for each in line if not each.lane.fair)
    turn, others, certain = await _others_ahead(store, task, line, known, depth)
    fair, counted = await _count(
        store, [Stretch(each.lane, BEFORE_ALL, Place(turn, task.id), by_turn=True) for each in line if each.lane.fair]
    )
    urgent = {each: sum(_ready(lane) for lane in lanes if lane.lane.priority is each) for each in _above(priority)}
    before = sum(urgent.values()) + fair + others
    promoted = await _promoted(store, sight, lanes, before)
    by_priority = dict.fromkeys(Priority, 0) | urgent | {priority: fair + others + promoted}
    own = _own_ahead(task, known, turn, others)
    ahead = before + promoted
    certain = certain and counted and not promoted and not _may_differ(sight, lanes)
    return FairPlace(
        ahead=Ahead(ahead, ahead if task.spec.type in sight.limits.types else 0, 0, before, by_priority),
        exact=certain,
        key=key,
        keys=known.keys,
        starts_in=_starts_in(key, task, known, rule, unkeyed=depth > 0),
        own=own,
        own_exact=key is None or known.waiting.get(key, 1) <= 1,
        others=max(0, ahead - own),
    )


def fair_cause(place: FairPlace, line: LinePlace, by: str) -> Cause:
    """How its line is shared, and who is ahead; keys of others appear as numbers only."""
    count = place.keys + (place.key is None)
    words = _WORDS.get(by, "keys") if count != 1 else _WORDS.get(by, "keys")[:-1]
    turn = f"1 turn in {place.starts_in:.3g}"
    gets = f"those without a key get {turn} together" if place.key is None else f"{place.key} gets {turn}"
    shared = f"{count:,} {words} share{'s' if count == 1 else ''} this line, {gets}"
    about = "" if line.exact else "about "
    ahead = f"{place.others:,} tasks of others and {place.own:,} of its own are ahead"
    if not place.own_exact:
        ahead = f"{place.others + place.own:,} tasks are ahead, about {place.own:,} of them its own"
    return Cause(
        CauseCode.TAKES_TURNS,
        f"{shared}; {about}{ahead}",
        {
            "fair_key": place.key,
            "keys": count,
            "turn_in": round(place.starts_in, 3),
            "ahead_of_others": place.others,
            "ahead_of_own": place.own,
            "exact": line.exact and place.own_exact,
        },
    )


_WORDS: Final = {"tenant": "tenants", "type": "task types"}


async def _others_ahead(
    store: Store, task: Task, line: Sequence[LaneTally], known: LineKeys, depth: int
) -> tuple[int, int, bool]:
    """The turn at which a task is served, how many without a fair key are before it, and whether that is certain."""
    if task.spec.takes_turns:
        turn = task.status.turn
        # Without a turn it was queued by a process that gives none, and is served among the others.
        return turn, others_before(known.turns, turn, depth), turn > 0 and not is_tied(known.turns, turn, depth)
    place = Place(task.status.ready_at, task.id)
    older, certain = await _count(store, [Stretch(each.lane, BEFORE_ALL, place) for each in line if not each.lane.fair])
    return turn_of_other(known.turns, older), older, certain


async def _count(store: Store, stretches: Sequence[Stretch]) -> tuple[int, bool]:
    """How many tasks are in these stretches, and whether all were counted."""
    if not stretches:
        return 0, True
    counted = stretches[:_MOST_COUNTED]
    most = max(1, _MOST_COUNTED // len(counted))
    numbers = await store.count(counted, most)
    return sum(numbers), len(counted) == len(stretches) and max(numbers) < most


async def _promoted(store: Store, sight: Sight, lanes: Sequence[LaneTally], before: int) -> int:
    """How many promoted tasks are served at their turns before it, at most, of those that are behind it otherwise."""
    turns, priority = sight.turns, sight.task.status.priority
    if turns is None or turns.share is None:
        return 0
    stretches = []
    for each in lanes:
        own = turns.tables[0][each.lane.priority]
        after = next((step.after for step in own.steps if step.rank <= turns.tables[0][priority].rank), None)
        since: Instant = sight.now - after if after is not None else -1
        if each.lane.priority >= priority and each.oldest_ready is not None and each.oldest_ready <= since:
            stretches.append(Stretch(each.lane, BEFORE_ALL, Place(since + 1, FIRST_ID)))
    waiting, _ = await _count(store, stretches)
    own_line = turns.tables[0][priority]
    is_promoted = rank_after(own_line, sight.now - sight.task.status.ready_at) < own_line.rank
    return promoted_between(turns.share, before, max(0, waiting - is_promoted), turns.passed)


def _may_differ(sight: Sight, lanes: Sequence[LaneTally]) -> bool:
    """Whether claims may take others than are counted: by limits, keys, other queues, or turns that are drawn."""
    if isinstance(sight.policy, Weighted | HeadStart) or sight.limits != LimitsLeft() or sight.parts:
        return True
    return any(each.lane.keyed for each in lanes) or any(
        each.lane.queue != sight.task.spec.queue for each in sight.lanes
    )


def _own_ahead(task: Task, known: LineKeys, turn: int, others: int) -> int:
    fair = task.spec.fair
    if fair is None or not task.spec.takes_turns:
        return others
    return own_before(known.turns, turn, fair.step, known.waiting.get(fair.key, 1))


def _starts_in(key: str | None, task: Task, known: LineKeys, rule: FairRule | None, *, unkeyed: bool) -> float:
    rule = rule or FairRule("tenant")
    weights = {name: rule.weights.get(name, rule.weight) for name in known.waiting}
    if key is not None and task.spec.fair is not None:
        weights[key] = STEP / task.spec.fair.step
    own = 1.0 if key is None else weights[key]
    return starts_in(
        own, weights, others=max(0, known.keys - len(weights)), default=rule.weight, unkeyed=unkeyed or key is None
    )


def _ready(tally: LaneTally) -> int:
    return tally.counts.get(State.QUEUED, 0)


def _above(priority: Priority) -> list[Priority]:
    return [each for each in Priority if each < priority]
