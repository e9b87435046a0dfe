"""The order of service, as data.

A policy becomes tables; a store only merges lane heads by them. A table gives each priority a line: a rank, a head
start, and steps at which a task that has waited long enough is treated as a better rank. The task served next is the
one with the least

    (rank after the wait, ready_at - head start, id)

but where promoted tasks and others want the same place, they take turns (`Share`). Ranks never worsen with age and
lanes are first in, first out, so the head of a lane is always the best of its lane. Where tasks have fair keys, this
chooses the priority by its oldest task; within it, whoever's turn it is is served, but for a task that age has brought
forward.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings
from fairlead.core.identity import TaskId
from fairlead.core.instant import LONGEST, MINUTE, SECOND, Instant, Span
from fairlead.core.queues.fairness import LineTurns, next_by_turn
from fairlead.core.task import Priority, State, Task
from fairlead.core.validation import bad_setting, check_count, check_span, shown

_MOST_WEIGHT: Final = 1_000_000


class Step(Struct, frozen=True, array_like=True, gc=False):
    """From this wait on, a task is treated as this rank."""

    after: Span
    rank: int


class Line(Struct, frozen=True, array_like=True):
    """How one priority is treated."""

    rank: int
    head_start: Span = 0
    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        after, rank = 0, self.rank
        for step in self.steps:
            if step.after < after or step.rank > rank:
                raise InvalidSettings(
                    f"order step {step} follows ({after} µs, rank {rank}); a longer wait must come later and never "
                    f"worsen the rank"
                )
            after, rank = step.after, step.rank


Table: TypeAlias = tuple[Line, Line, Line, Line]
"""One line per priority, most urgent first."""

ServiceKey: TypeAlias = tuple[int, int, TaskId]


def rank_after(line: Line, waited: Span) -> int:
    """The rank of a task of this line that has waited so long."""
    rank = line.rank
    for step in line.steps:
        if waited < step.after:
            break
        rank = step.rank
    return rank


def service_key(table: Table, priority: Priority, ready_at: Instant, task: TaskId, now: Instant) -> ServiceKey:
    """What the order of service compares; the least is served first."""
    line = table[priority]
    return rank_after(line, now - ready_at), ready_at - line.head_start, task


def effective_priority(table: Table, priority: Priority, waited: Span) -> Priority:
    """The priority that a task is treated as after this wait: its own, unless a step has changed its rank."""
    line = table[priority]
    rank = rank_after(line, waited)
    if rank == line.rank:
        return priority
    return next((other for other in Priority if table[other].rank == rank), priority)


def treated_as(table: Table, task: Task, now: Instant) -> Priority:
    """The priority that a waiting task is treated as, or that a task was treated as when it was claimed."""
    status = task.status
    until = now if status.state is State.QUEUED else status.started_at
    if until is None:
        return status.priority
    return effective_priority(table, status.priority, until - status.ready_at)


class Share(Struct, frozen=True, array_like=True):
    """How tasks that were promoted and those of the rank they have come to take turns.

    Without it a backlog that has come to the top is in front of every new critical task. Of every `of` turns that both
    want, one goes to the promoted task that has waited longest, and the others to what has its rank by its priority;
    when either has nothing, the other takes its turns.
    """

    of: int = 4
    everywhere: bool = False
    """At every rank; otherwise at the best one only, and below it by the rank after the wait."""

    @property
    def due(self) -> int:
        """How many turns in a row the others have when it is a promoted task's turn."""
        return self.of - 1

    def promoted_before(self, others: int, passed: int) -> int:
        """How many promoted tasks are served before one with so many others of its own kind ahead, if enough wait."""
        first = self.due - passed
        return 0 if others < first else (others - first) // self.due + 1

    def others_before(self, promoted: int, passed: int) -> int:
        """How many others are served before a promoted task with so many promoted ones ahead, if enough wait."""
        return self.due - passed + promoted * self.due

    def after(self, passed: int, *, promoted: bool) -> int:
        """How often others were served since a promoted task was, once one more task is served."""
        return 0 if promoted else min(passed + 1, self.due)


class QueueTurns(Struct, frozen=True):
    """How a queue's tasks are served: what the reference needs to know of a claim."""

    tables: Sequence[Table]
    share: Share | None = None
    passed: int = 0
    """How often others were served since a promoted task was."""


Candidate: TypeAlias = tuple[Priority, ServiceKey]
"""The oldest waiting task of a priority."""
Pick: TypeAlias = tuple[int, ServiceKey, bool]
"""Which priority is served next, the key by which it is compared with other queues, and whether it is served by age.

Then its oldest task is taken, and else the one whose turn it is (`fairlead.core.queues.fairness`), which is the oldest
where no fair task waits.
"""


def pick_line(turns: QueueTurns, turn: int, heads: Sequence[Candidate]) -> Pick:
    """Which of the priorities of a queue is served next, at this turn of a claim."""
    table = turns.tables[turn % len(turns.tables)]
    if turns.share is not None:
        return next_by_turns(table, turns.share, turns.passed, heads)
    best = min(range(len(heads)), key=lambda at: heads[at][1])
    return best, heads[best][1], heads[best][1][0] < table[heads[best][0]].rank


def next_by_turns(table: Table, share: Share, passed: int, heads: Sequence[Candidate]) -> Pick:
    """The same where promoted tasks and others take turns.

    A claim finds this once for each task, so there is one head for each priority that has waiting tasks.
    """
    best = min(range(len(heads)), key=lambda at: heads[at][1])
    rank = heads[best][1][0]
    if share.everywhere:
        own_keys = [(table[priority].rank, mark, task) for priority, (_, mark, task) in heads]
        own = min(range(len(heads)), key=own_keys.__getitem__)
        promoted = [at for at, (priority, key) in enumerate(heads) if key[0] < table[priority].rank]
        oldest = min(promoted, key=lambda at: heads[at][1], default=None)
        if oldest is not None and heads[oldest][1][0] <= own_keys[own][0] and passed >= share.due:
            return oldest, heads[oldest][1], True
        return own, own_keys[own], False
    if rank == top_rank(table):
        contenders = [at for at, (_, key) in enumerate(heads) if key[0] == rank]
        turn = [at for at in contenders if (table[heads[at][0]].rank > rank) == (passed >= share.due)]
        best = min(turn or contenders, key=lambda at: heads[at][1])
    return best, heads[best][1], heads[best][1][0] < table[heads[best][0]].rank


def passed_after(turns: QueueTurns, served: Sequence[tuple[Priority, Span]]) -> int:
    """How often others were served since a promoted task was, once tasks of these priorities and waits are served.

    It follows from the tasks alone, best first, so a store need not tell. Where turns are taken at every rank, a
    promoted task may also be served as what it was submitted as: until a turn of theirs is due, each task counts.
    """
    share, passed = turns.share, turns.passed
    if share is None:
        return passed
    table = turns.tables[0]
    top = top_rank(table)
    if len(served) > share.due and not share.everywhere:
        priority, waited = served[-1]
        if rank_after(table[priority], waited) == top:
            served = served[-share.due :]  # All are at the top, and whatever came before these, they count the same.
    for priority, waited in served:
        rank = rank_after(table[priority], waited)
        if rank != top and not share.everywhere:
            break  # What comes behind is not at the top either.
        of_theirs = passed >= share.due or not share.everywhere
        passed = share.after(passed, promoted=of_theirs and rank < table[priority].rank)
    return passed


def top_rank(table: Table) -> int:
    """The best rank that a task can have by its priority."""
    return min(line.rank for line in table)


def serve(
    tasks: Iterable[Task],
    queues: Mapping[str, QueueTurns],
    now: Instant,
    limit: int,
    lines: dict[tuple[str, Priority], LineTurns] | None = None,
) -> list[Task]:
    """The tasks a claim must take, best first.

    The reference that every store is held to: slow and obvious. The k-th task is chosen by table k of its queue, and
    round again when a queue has fewer tables than that. `lines` says how far the turns of fair tasks have come, and is
    moved on.
    """
    waiting = list(tasks)
    lines = {} if lines is None else lines
    queues = dict(queues)
    served: list[Task] = []
    while waiting and len(served) < limit:
        offered: list[tuple[ServiceKey, str, Priority, Task | None]] = []
        for queue, turns in queues.items():
            heads = _heads([task for task in waiting if task.spec.queue == queue], turns, len(served), now)
            if heads:
                candidates = [(task.status.priority, key) for key, task in heads]
                at, key, by_age = pick_line(turns, len(served), candidates)
                offered.append((key, queue, candidates[at][0], heads[at][1] if by_age else None))
        _, queue, priority, best = min(offered, key=lambda each: each[0])
        if best is None:
            line = [task for task in waiting if (task.spec.queue, task.status.priority) == (queue, priority)]
            best, lines[queue, priority] = next_by_turn(line, lines.get((queue, priority), LineTurns()))
        waited = [(priority, now - best.status.ready_at)]
        queues[queue] = replace(queues[queue], passed=passed_after(queues[queue], waited))
        waiting.remove(best)
        served.append(best)
    return served


def _heads(waiting: Sequence[Task], turns: QueueTurns, turn: int, now: Instant) -> list[tuple[ServiceKey, Task]]:
    """The oldest waiting task of each priority."""
    table = turns.tables[turn % len(turns.tables)]
    keyed = [(service_key(table, task.status.priority, task.status.ready_at, task.id, now), task) for task in waiting]
    priorities = {task.status.priority for task in waiting}
    return [min(each for each in keyed if each[1].status.priority == priority) for priority in sorted(priorities)]


class Draw(Protocol):
    """A source of luck: the next number from 0.0 up to but not including 1.0."""

    def __call__(self) -> float: ...


SharedAt: TypeAlias = Literal["critical", "all"]


class Promote(Struct, frozen=True, kw_only=True, tag_field="policy", tag="promote"):
    """Waiting tasks are treated as the next priority after a while: nothing starves."""

    low: Span = 10 * MINUTE
    """How long a low task waits before it is treated as medium."""
    medium: Span = 20 * MINUTE
    """How long a task treated as medium waits before it is treated as high."""
    high: Span = 30 * MINUTE
    """How long a task treated as high waits before it is treated as critical."""
    share: SharedAt = "critical"
    """Where promoted tasks and others take turns."""

    def __post_init__(self) -> None:
        for name in ("low", "medium", "high"):
            check_span(f"Promote {name}", getattr(self, name), 0, LONGEST, bad_setting)
        if self.share not in ("critical", "all"):
            raise InvalidSettings(f"Promote share {shown(self.share)} is neither 'critical' nor 'all'")

    def tables(self, limit: int, draw: Draw) -> tuple[Table, ...]:
        del limit, draw
        return _promoting(self.low, self.medium, self.high)

    def bound(self, priority: Priority) -> Span:
        """After this wait a task of this priority has its turns among the most urgent."""
        return sum((self.high, self.medium, self.low)[:priority])


@functools.lru_cache(maxsize=64)
def _promoting(low: Span, medium: Span, high: Span) -> tuple[Table, ...]:
    """The tables of `Promote`: each claim asks for them."""
    return (
        (
            Line(Priority.CRITICAL),
            Line(Priority.HIGH, 0, (Step(high, Priority.CRITICAL),)),
            Line(Priority.MEDIUM, 0, (Step(medium, Priority.HIGH), Step(medium + high, Priority.CRITICAL))),
            Line(
                Priority.LOW,
                0,
                (
                    Step(low, Priority.MEDIUM),
                    Step(low + medium, Priority.HIGH),
                    Step(low + medium + high, Priority.CRITICAL),
                ),
            ),
        ),
    )


class Strict(Struct, frozen=True, kw_only=True, tag_field="policy", tag="strict"):
    """A lower priority waits for ever while a higher one has work."""

    def tables(self, limit: int, draw: Draw) -> tuple[Table, ...]:
        del limit, draw
        return ((Line(0), Line(1), Line(2), Line(3)),)


class HeadStart(Struct, frozen=True, kw_only=True, tag_field="policy", tag="head_start"):
    """One line for all priorities, by age, in which a task counts as submitted that much earlier."""

    critical: Span = 60 * MINUTE
    high: Span = 30 * MINUTE
    medium: Span = 10 * MINUTE
    low: Span = 0 * SECOND

    def __post_init__(self) -> None:
        _check_spans(self)

    def tables(self, limit: int, draw: Draw) -> tuple[Table, ...]:
        del limit, draw
        return ((Line(0, self.critical), Line(0, self.high), Line(0, self.medium), Line(0, self.low)),)


class Weighted(Struct, frozen=True, kw_only=True, tag_field="policy", tag="weighted"):
    """Each turn draws the order of the priorities by weight."""

    critical: int = 8
    high: int = 4
    medium: int = 2
    low: int = 1

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            check_count(f"weight of {name}", getattr(self, name), 0, _MOST_WEIGHT, bad_setting)
            if getattr(self, name) == 0:
                raise InvalidSettings(f"{self} leaves {name} without service; every weight must be 1 or more")

    def tables(self, limit: int, draw: Draw) -> tuple[Table, ...]:
        return tuple(self._draw_table(draw) for _ in range(limit))

    def _draw_table(self, draw: Draw) -> Table:
        weights = {
            Priority.CRITICAL: self.critical,
            Priority.HIGH: self.high,
            Priority.MEDIUM: self.medium,
            Priority.LOW: self.low,
        }
        ranks: dict[Priority, int] = {}
        while weights:
            drawn = _draw_by_weight(weights, draw())
            ranks[drawn] = len(ranks)
            del weights[drawn]
        return (
            Line(ranks[Priority.CRITICAL]),
            Line(ranks[Priority.HIGH]),
            Line(ranks[Priority.MEDIUM]),
            Line(ranks[Priority.LOW]),
        )


def _check_spans(policy: Struct) -> None:
    for name in policy.__struct_fields__:
        check_span(f"{type(policy).__name__} {name}", getattr(policy, name), 0, LONGEST, bad_setting)


def _draw_by_weight(weights: dict[Priority, int], luck: float) -> Priority:
    mark = luck * sum(weights.values())
    for priority, weight in weights.items():
        mark -= weight
        if mark < 0:
            return priority
    return next(reversed(weights))


Policy: TypeAlias = Promote | Strict | HeadStart | Weighted


def share_of(policy: Policy) -> Share | None:
    """How promoted tasks and others take turns; None where none is promoted."""
    return Share(everywhere=policy.share == "all") if isinstance(policy, Promote) else None


def check_policy(name: str, value: object) -> Policy:
    """A policy, which has checked itself when it was made."""
    if type(value) not in (Promote, Strict, HeadStart, Weighted):
        raise InvalidSettings(
            f"{name} {shown(value)} is not a policy; use Promote(), Strict(), HeadStart() or Weighted()"
        )
    policy: Policy = value  # type: ignore[assignment]
    return policy
