"""What the order of service has in store for a waiting task.

Who is ahead of it, when that changes, and from when on nothing new can pass it: all of it follows from the tables of
`fairlead.core.queues.order`, so it holds for any policy that has one table. Where each turn draws a table of its own,
nothing is certain but the order within one priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.identity import TaskId
from fairlead.core.instant import LATEST, Instant, Span
from fairlead.core.queues.order import (
    Line,
    Policy,
    QueueTurns,
    ServiceKey,
    Table,
    Weighted,
    effective_priority,
    rank_after,
    service_key,
    share_of,
    top_rank,
)
from fairlead.core.task import Priority, Task

FIRST_ID: Final = TaskId("0" * 32)
"""An id before that of every task."""


class Place(Struct, frozen=True):
    """A place in a lane: before the task whose wait began then and that has this id."""

    ready_at: Instant
    id: TaskId


class LanePart(Struct, frozen=True):
    """The tasks of a lane from the end of the part before up to a place, which are ahead of a task."""

    treated: Priority
    """What they are treated as."""
    end: Place
    by_turns: bool = False
    """Whether they and the task take turns, so that not all of them are served first."""


BEFORE_ALL: Final = Place(0, FIRST_ID)
"""Before the first task of every lane."""


class Promotion(Struct, frozen=True):
    """A task is treated as another priority from a moment on."""

    at: Instant
    to: Priority


def steady_turns(policy: Policy, passed: int = 0) -> QueueTurns | None:
    """How the tasks of a queue are served, turn after turn; None where each turn draws a table of its own."""
    table = steady_table(policy)
    return None if table is None else QueueTurns((table,), share_of(policy), passed)


def steady_table(policy: Policy) -> Table | None:
    """The table by which every turn is served; None where each draws its own."""
    if isinstance(policy, Weighted):
        return None
    # No luck is needed where nothing is drawn.
    (table, *_) = policy.tables(1, lambda: 0.0)
    return table


def parts_ahead(turns: QueueTurns, task: Task, others: Priority, now: Instant) -> list[LanePart]:
    """The parts of the lanes of a priority that are ahead of a waiting task of their queue, one after the other.

    A lane is served in the order of (ready_at, id), and ranks never worsen with age, so those ahead are its beginning.
    Each part of that is treated as one priority, and ends at its place. Where promoted tasks and others take turns, all
    that wait for the other turns are a part.
    """
    table = turns.tables[0]
    status, own, line = task.status, table[task.status.priority], table[others]
    key = service_key(table, status.priority, status.ready_at, task.id, now)
    promoted = key[0] < own.rank
    sharing = turns.share is not None and (turns.share.everywhere or key[0] == top_rank(table))
    return _parts_before(key, line, _parts(table, others), now, promoted if sharing else None)


def parts_before(key: ServiceKey, table: Table, others: Priority, now: Instant) -> list[LanePart]:
    """The same of another queue, whose own table its tasks are compared by."""
    return _parts_before(key, table[others], _parts(table, others), now, None)


def _parts_before(
    key: ServiceKey, line: Line, ranks: Sequence[tuple[Priority, int]], now: Instant, promoted: bool | None
) -> list[LanePart]:
    """`promoted`: whether the task that waits was promoted, where such tasks and others take turns."""
    rank, mark, task_id = key
    even = Place(mark + line.head_start, task_id)
    parts: list[LanePart] = []
    reached = BEFORE_ALL
    for treated, own_rank in ranks:
        if own_rank <= rank:
            end = Place(_since(line, own_rank, now) + 1, FIRST_ID)
            by_turns = promoted is not None and promoted is not (own_rank < line.rank)
            # Of those with the same rank, only the ones that have waited longer are ahead.
            within = min(end, even, key=_key) if own_rank == rank and not by_turns else end
            reached = max(reached, within, key=_key)
            parts.append(LanePart(treated, reached, by_turns))
    return parts


def place_among_older(turns: QueueTurns, task: Task, others: Priority) -> Place | None:
    """How far a lane is ahead once the task has come to the top; None for lanes that then can no longer be ahead.

    Lanes that then take turns with the task are none of these: how many of them are served first follows from the
    turns.
    """
    table = turns.tables[0]
    line, own = table[others], table[task.status.priority]
    if _best_rank(line) > _top(table):
        return None
    if turns.share is not None and (line.rank == _top(table)) is not (own.rank == _top(table)):
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
    """How long a task of a priority waits at most before its start is certain; None if something always can pass it.

    By then it has the best rank there is, or its turns there, and no head start takes a new task before it.
    """
    after = _on_top_after(table, priority)
    return None if after is None else max(after, _best_head_start(table) - table[priority].head_start)


def unpassable_from(turns: QueueTurns, task: Task) -> Instant | None:
    """The moment after which no task that is submitted can be served before this one; None if one always can."""
    if turns.share is not None:
        return None
    bound = starvation_bound(turns.tables[0], task.status.priority)
    return None if bound is None else task.status.ready_at + bound


def turns_from(turns: QueueTurns, task: Task) -> Instant | None:
    """The moment from which a task has its turns at the top, whatever is submitted; None where none are taken."""
    return None if turns.share is None else on_top_from(turns.tables[0], task)


def starts_at_the_top(turns: QueueTurns, task: Task, older: int, claimers: int) -> int:
    """How many starts it takes at most once a task is at the top with so many of its own kind ahead.

    Each of the processes that claim keeps its own count of whose turn it is.
    """
    share, table = turns.share, turns.tables[0]
    if share is None:
        return older + 1
    if table[task.status.priority].rank == _top(table):
        return older + 1 + older // share.due + max(1, claimers)
    return share.of * (older + 1) + share.due * max(0, claimers - 1)


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
