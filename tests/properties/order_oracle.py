"""What the page on the order of service says that a claim takes, as a program: slow, and without the product's code.

It follows docs/explanation/order-of-service.md. Instants are microseconds; priorities go from 0, critical, to 3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND

CRITICAL, HIGH, MEDIUM, LOW = range(4)

PROMOTED_AFTER: Final = {
    CRITICAL: [],
    HIGH: [(30 * MINUTE, CRITICAL)],
    MEDIUM: [(20 * MINUTE, HIGH), (50 * MINUTE, CRITICAL)],
    LOW: [(10 * MINUTE, MEDIUM), (30 * MINUTE, HIGH), (60 * MINUTE, CRITICAL)],
}
HEAD_STARTS: Final = {CRITICAL: 60 * MINUTE, HIGH: 30 * MINUTE, MEDIUM: 10 * MINUTE, LOW: 0}

PROMOTE, PROMOTE_ALL, STRICT, HEAD_START = "promote", "promote everywhere", "strict", "head_start"
POLICIES: Final = (PROMOTE, PROMOTE_ALL, STRICT, HEAD_START)


@dataclass(eq=False)
class Told:
    """A task as somebody knows it who reads what is answered."""

    id: str
    queue: str
    type: str
    priority: int
    requires: frozenset[str]
    key: str | None
    waits_since: int


@dataclass
class Rules:
    """What is set of a queue. A rate is how far apart starts are."""

    policy: str = PROMOTE
    running: int | None = None
    apart: int | None = None
    type_running: dict[str, int] = field(default_factory=dict)
    type_apart: dict[str, int] = field(default_factory=dict)
    key_running: int = 1
    paused: bool = False


class Oracle:
    """Says which tasks a claim takes."""

    def __init__(self, rules: dict[str, Rules]) -> None:
        self.rules = rules
        self.waiting: list[Told] = []
        self.running: list[Told] = []
        self.held_types: set[str] = set()
        """Those that are paused, or whose circuit is open."""
        self._last_start: dict[tuple[str, str | None], int] = {}
        """Of a queue, or of a type in it."""
        self._in_a_row: dict[tuple[int, str], int] = {}
        """By process and queue, how many starts in a row were not of promoted tasks; at first it owes them a turn."""

    def claim(
        self, process: int, queues: Collection[str], types: Collection[str], has: Collection[str], limit: int, now: int
    ) -> list[Told]:
        """The tasks that a claim of a worker takes, made by this process."""
        taken: list[Told] = []
        while len(taken) < limit:
            able = [t for t in self.waiting if t.queue in queues and t.type in types and t.requires <= set(has)]
            ready = [task for task in able if self._may_start(task, now)]
            if not ready:
                break
            lines = [[task for task in ready if task.queue == queue] for queue in {task.queue for task in ready}]
            _, best = min((self._next_of(line, process, now) for line in lines), key=lambda each: each[0])
            self._start(best, process, now)
            taken.append(best)
        return taken

    def _may_start(self, task: Told, now: int) -> bool:
        rules = self.rules[task.queue]
        beside = [other for other in self.running if other.queue == task.queue]
        alike = [other for other in beside if other.type == task.type]
        return (
            not rules.paused
            and task.type not in self.held_types
            and (rules.running is None or len(beside) < rules.running)
            and len(alike) < rules.type_running.get(task.type, len(alike) + 1)
            and (task.key is None or sum(other.key == task.key for other in beside) < rules.key_running)
            and self._is_far_enough(task.queue, None, rules.apart, now)
            and self._is_far_enough(task.queue, task.type, rules.type_apart.get(task.type), now)
        )

    def _is_far_enough(self, queue: str, task_type: str | None, apart: int | None, now: int) -> bool:
        last = self._last_start.get((queue, task_type))
        return apart is None or last is None or now - last >= apart

    def _next_of(self, ready: list[Told], process: int, now: int) -> tuple[tuple[int, int, str], Told]:
        """The next of one queue's tasks, and what it is compared by with those of others."""
        queue = ready[0].queue
        policy, in_a_row = self.rules[queue].policy, self._in_a_row.get((process, queue), 3)

        def by_wait(task: Told) -> tuple[int, int, str]:
            head_start = HEAD_STARTS[task.priority] if policy == HEAD_START else 0
            return _rank(policy, task, now), task.waits_since - head_start, task.id

        def by_priority(task: Told) -> tuple[int, int, str]:
            return task.priority, task.waits_since, task.id

        promoted = [task for task in ready if _rank(policy, task, now) < task.priority]
        if policy == PROMOTE:
            own = [task for task in ready if task.priority == CRITICAL]
            on_top = [task for task in promoted if _rank(policy, task, now) == CRITICAL]
            if own and on_top:
                ready = on_top if in_a_row >= 3 else own
        elif policy == PROMOTE_ALL:
            first = min(ready, key=by_priority)
            oldest = min(promoted, key=by_wait, default=None)
            if oldest is None or in_a_row < 3 or by_wait(oldest)[0] > first.priority:
                return by_priority(first), first
            return by_wait(oldest), oldest
        best = min(ready, key=by_wait)
        return by_wait(best), best

    def _start(self, task: Told, process: int, now: int) -> None:
        self.waiting.remove(task)
        self.running.append(task)
        self._last_start[task.queue, None] = self._last_start[task.queue, task.type] = now
        policy = self.rules[task.queue].policy
        rank = _rank(policy, task, now)
        before = self._in_a_row.get((process, task.queue), 3)
        promoted = rank < task.priority
        if policy == PROMOTE_ALL:
            self._in_a_row[process, task.queue] = 0 if promoted and before >= 3 else before + 1
        elif policy == PROMOTE and rank == CRITICAL:
            self._in_a_row[process, task.queue] = 0 if promoted else before + 1


def _rank(policy: str, task: Told, now: int) -> int:
    """What a task is treated as: the first of equals, if there is one line for all."""
    if policy == HEAD_START:
        return 0
    rank = task.priority
    for after, better in PROMOTED_AFTER[task.priority] if policy in (PROMOTE, PROMOTE_ALL) else ():
        if now - task.waits_since >= after:
            rank = better
    return rank


def ids(tasks: Iterable[Told]) -> list[str]:
    return [task.id for task in tasks]
