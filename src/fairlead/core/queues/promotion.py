"""What the order of service has in store for a waiting task.

Who is ahead of it, when that changes, and from when on nothing new can pass it: all of it follows from the tables of
`fairlead.core.queues.order`, so it holds for any policy that has one table. Where each turn draws a table of its own,
nothing is certain but the order within one priority.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from fairlead.core.identity import TaskId
from fairlead.core.instant import LATEST, Instant, Span
from fairlead.core.queues.order import Line, Policy, Table, Weighted, effective_priority, rank_after, service_key
from fairlead.core.task import Priority, Task

FIRST_ID: Final = TaskId("0" * 32)
"""An id before that of every task."""


class Place(Struct, frozen=True):
    """A place in a lane: before the task whose wait began then and that has this id."""

    ready_at: Instant
    id: TaskId


BEFORE_ALL: Final = Place(0, FIRST_ID)
"""Before the first task of every lane."""


class Promotion(Struct, frozen=True):
    """A task is treated as another priority from a moment on."""

    at: Instant
    to: Priority


def steady_table(policy: Policy) -> Table | None:
    """The table by which every turn is served; None where each draws its own."""
    if isinstance(policy, Weighted):
        return None
    # No luck is needed where nothing is drawn.
    (table, *_) = policy.tables(1, lambda: 0.0)
    return table


def places_ahead(table: Table, task: Task, others: Priority, now: Instant) -> list[tuple[Priority, Place]]:
    """How far the lanes of a priority are ahead of a waiting task: all before the last place is served first.

    A lane is served in the order of (ready_at, id), and ranks never worsen with age, so those ahead are its beginning.
    Each part of that is treated as one priority, and ends at its place.
    """
    status, line = task.status, table[others]
    rank, mark, _ = service_key(table, status.priority, status.ready_at, task.id, now)
    even = Place(mark + line.head_start, task.id)
    places: list[tuple[Priority, Place]] = []
    reached = BEFORE_ALL
    for treated, own_rank in _parts(table, others):
        if own_rank <= rank:
            end = Place(_since(line, own_rank, now) + 1, FIRST_ID)
            # Of those with the same rank, only the ones that have waited longer are ahead.
            reached = max(reached, min(end, even, key=_key) if own_rank == rank else end, key=_key)
            places.append((treated, reached))
    return places


def place_among_older(table: Table, task: Task, others: Priority) -> Place | None:
    """The same for the time when the task has come to the top; None for lanes that then can no longer be ahead."""
    line, own = table[others], table[task.status.priority]
    if _best_rank(line) > _top(table):
        return None
    return Place(task.status.ready_at - own.head_start + line.head_start, task.id)


def next_promotion(table: Table, task: Task, now: Instant) -> Promotion | None:
    """When a waiting task is next treated as a better priority; None if it never is."""
    line, ready_at, priority = table[task.status.priority], task.status.ready_at, task.status.priority
    rank = rank_after(line, now - ready_at)
    for step in line.steps:
        if ready_at + step.after > now and step.rank < rank:
            return Promotion(ready_at + step.after, effective_priority(table, priority, step.after))
    return None


def on_top_from(table: Table, task: Task) -> Instant | None:
    """The moment from which a task has the best rank there is; None if it never gets there."""
    after = _on_top_after(table, task.status.priority)
    return None if after is None else task.status.ready_at + after


def starvation_bound(table: Table, priority: Priority) -> Span | None:
    """How long a task of a priority waits at most before nothing new can pass it; None if something always can.

    By then it has the best rank there is, and no head start takes a new task before it.
    """
    after = _on_top_after(table, priority)
    return None if after is None else max(after, _best_head_start(table) - table[priority].head_start)


def unpassable_from(table: Table, task: Task) -> Instant | None:
    """The moment after which no task that is submitted can be served before this one; None if one always can."""
    bound = starvation_bound(table, task.status.priority)
    return None if bound is None else task.status.ready_at + bound


def overtaken_until(table: Table, task: Task) -> Instant:
    """The moment until which a head start can take a new task before this one."""
    own = task.status.ready_at - table[task.status.priority].head_start
    return max(task.status.ready_at, own + _best_head_start(table))


def drawn_share(policy: Weighted, own: Priority, ahead: int, other: Priority, depth: int) -> int:
    """How many of another priority's tasks are served before one with so many of its own ahead, if luck is even.

    Each turn goes to a priority by its weight: while those ahead of it are served, the other gets its share, as far as
    it has tasks.
    """
    weights = (policy.critical, policy.high, policy.medium, policy.low)
    return min(depth, round((ahead + 1) * weights[other] / weights[own]))


def _parts(table: Table, priority: Priority) -> list[tuple[Priority, int]]:
    """The ranks that tasks of a priority can have, the best first, and what they are treated as then."""
    line = table[priority]
    ranks = {line.rank: priority}
    for step in line.steps:
        ranks[step.rank] = effective_priority(table, priority, step.after)
    return [(treated, rank) for rank, treated in sorted(ranks.items())]


def _since(line: Line, rank: int, now: Instant) -> Instant:
    """The latest moment at which a wait began that by now has this rank or a better one; before all if none has."""
    if line.rank <= rank:
        return LATEST
    after = next((step.after for step in line.steps if step.rank <= rank), None)
    return -1 if after is None else now - after


def _key(place: Place) -> tuple[Instant, TaskId]:
    return place.ready_at, place.id


def _best_rank(line: Line) -> int:
    return line.steps[-1].rank if line.steps else line.rank


def _on_top_after(table: Table, priority: Priority) -> Span | None:
    line, top = table[priority], _top(table)
    if _best_rank(line) > top:
        return None
    return 0 if line.rank == top else next(step.after for step in line.steps if step.rank == top)


def _best_head_start(table: Table) -> Span:
    return max(line.head_start for line in table if _best_rank(line) == _top(table))


def _top(table: Table) -> int:
    return min(_best_rank(line) for line in table)
