"""The checker of a total queue: every submit has its task, every task its one end, and nothing else is there.

It looks at a history alone, so that it can be tested with faults that are planted, and used on any campaign.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import asdict

from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.task import Entry, Reason, State, Task
from tests.chaos.campaign.history import Acknowledged, Asked, Ended, History, Refused, Started
from tests.chaos.campaign.plan import MOST_RETRIES, plan

SLACK: Span = SECOND // 2
"""For how long a task must have been there, and how much later it must have been taken, to count as passed over.

A claim looks at the store as it was when it began, its moment is that of its beginning, and a process that is killed in
a claim may hold a row until the server has noticed.
"""


class Faults(Struct, frozen=True, kw_only=True):
    """What must not be, each with the numbers or ids it was seen of."""

    lost: list[str] = []
    """Acknowledged, and not there."""
    unexpected: list[str] = []
    """There, or run, and never asked for; or refused, and yet there."""
    duplicated: list[str] = []
    """Several tasks for one idempotency key."""
    accepted_twice: list[str] = []
    """More than one end in a task's history, or a result that is not that of the attempt that was accepted."""
    stuck: list[str] = []
    """Not ended, though all was quiet."""
    early: list[str] = []
    """Run before it was due."""
    out_of_order: list[str] = []
    """Taken while a better one had been waiting."""
    over_budget: list[str] = []
    """Tried more often than allowed, or given up before that."""
    leaked: list[str] = []
    """What is left of something that is gone."""

    def __bool__(self) -> bool:
        return any(asdict(self).values())


class Counts(Struct, frozen=True, kw_only=True):
    """How much happened."""

    acknowledged: int
    recovered: int
    """Asked for and never answered, as the producer was killed, and yet stored."""
    attempts: int
    crashes: int
    """Attempts that ended with what ran them."""


def check(history: History) -> Faults:
    """All that is wrong with a history."""
    by_number: dict[int, list[Task]] = defaultdict(list)
    for task in history.tasks:
        by_number[number_of(task)].append(task)
    return Faults(
        lost=list(_lost(history)),
        unexpected=list(_unexpected(history, by_number)),
        duplicated=[f"{number}: {len(tasks)} tasks" for number, tasks in by_number.items() if len(tasks) > 1],
        accepted_twice=[fault for task in history.tasks for fault in _accepted_twice(task)],
        stuck=[f"{number_of(task)} is {task.state}" for task in history.tasks if not task.state.ended],
        early=list(_early(history.tasks)),
        out_of_order=list(_out_of_order(history)),
        over_budget=[*_over_budget(history.tasks), *_run_twice(history, by_number)],
        leaked=history.leaks,
    )


def count(history: History) -> Counts:
    """How much happened in a history."""
    answered = {line.number for line in history.lines if isinstance(line, Acknowledged | Refused)}
    return Counts(
        acknowledged=len({line.number for line in history.lines if isinstance(line, Acknowledged)}),
        recovered=sum(number_of(task) not in answered for task in history.tasks),
        attempts=sum(task.status.attempts for task in history.tasks),
        crashes=sum(task.status.crashes for task in history.tasks),
    )


def number_of(task: Task) -> int:
    """The number in a task's idempotency key; -1 of one that is none of the campaign's."""
    key = task.spec.idempotency_key or ""
    return int(key) if key.isdecimal() else -1


def _lost(history: History) -> Iterator[str]:
    there = {task.id: number_of(task) for task in history.tasks}
    for line in history.lines:
        if isinstance(line, Acknowledged) and there.get(line.task) != line.number:  # type: ignore[call-overload]
            yield f"{line.number} as {line.task}"


def _unexpected(history: History, by_number: dict[int, list[Task]]) -> Iterator[str]:
    asked = Counter(line.number for line in history.lines if isinstance(line, Asked))
    asked.subtract(line.number for line in history.lines if isinstance(line, Refused))
    for number in by_number:
        if asked[number] < 1:
            yield f"{number} is stored"
    for line in history.lines:
        if isinstance(line, Started) and line.number not in by_number:
            yield f"{line.number} ran"


def _ends(task: Task) -> list[Entry]:
    return [entry for entry in task.status.history if entry.state.ended]


def _accepted_twice(task: Task) -> Iterator[str]:
    ends = _ends(task)
    if len(ends) > 1:
        yield f"{number_of(task)} ended {len(ends)} times"
    elif task.state is State.COMPLETED and task.status.result != b"%d" % ends[-1].attempt:
        yield f"{number_of(task)}: attempt {ends[-1].attempt} was accepted with result {task.status.result!r}"
    attempts = Counter(entry.attempt for entry in task.status.history if entry.attempt)
    for attempt, times in attempts.items():
        if times > 1:
            yield f"{number_of(task)}: attempt {attempt} ended {times} times"


def _early(tasks: list[Task]) -> Iterator[str]:
    """Among tasks that were delayed: their alarm is judged by the store's clock, as their claim is.

    Of the others the producer says when they came, by what it takes for that clock, which may differ a little.
    """
    for task in tasks:
        claimed, delay = _first_claim(task), plan(number_of(task)).delay
        if claimed is not None and delay and claimed < task.spec.created_at + delay:
            yield f"{number_of(task)} was taken at {claimed}"


def _first_claim(task: Task) -> Instant | None:
    """When the task was first taken; None if that cannot be told any more."""
    if task.status.attempts == 1:
        return task.status.started_at or next(
            (entry.started_at for entry in task.status.history if entry.attempt), None
        )
    return next((entry.started_at for entry in task.status.history if entry.attempt == 1), None)


def _out_of_order(history: History) -> Iterator[str]:
    """Among first attempts, as nothing tells when a retry became ready; a full kind of slots holds up no other kind."""
    seen: dict[str, Instant] = {}
    for line in history.lines:
        if isinstance(line, Acknowledged):
            seen.setdefault(line.task, line.at)
    # Where fair keys share the queue, each has an order of its own.
    waiting_for: defaultdict[tuple[str, str | None], list[tuple[int, Instant, str, Instant]]] = defaultdict(list)
    events: list[tuple[Instant, int, Task, Instant]] = []
    for task in history.tasks:
        claimed = _first_claim(task)
        if claimed is None or task.id not in seen or plan(number_of(task)).delay:
            continue
        events.append((claimed, 1, task, claimed))
        if seen[task.id] + SLACK < claimed:
            events.append((seen[task.id] + SLACK, 0, task, claimed))
    for at, is_claim, task, claimed in sorted(events, key=lambda event: event[:2]):
        asked = plan(number_of(task))
        waiting = waiting_for[asked.place, task.spec.fair_key]
        place = (int(asked.priority), task.spec.created_at, task.id)
        if not is_claim:
            heapq.heappush(waiting, (*place, claimed))
            continue
        while waiting and waiting[0][3] <= at + SLACK:
            heapq.heappop(waiting)
        if waiting and waiting[0][:3] < place:
            better = waiting[0]
            yield f"{number_of(task)} was taken {(better[3] - at) / SECOND:.3f} s before {better[2]}, which was better"


def _over_budget(tasks: list[Task]) -> Iterator[str]:
    for task in tasks:
        number, status = number_of(task), task.status
        failed = [entry for entry in status.history if entry.attempt and _spends_retry(entry)]
        wanted = State.DEAD_LETTER if plan(number).type == "never" else State.COMPLETED
        if status.state.ended and status.state is not wanted:
            yield f"{number}, a {plan(number).type}, ended {status.state}: {status.reason}"
        elif status.retries > MOST_RETRIES or len(failed) > MOST_RETRIES + 1:
            yield f"{number}: {len(failed)} attempts failed, where {MOST_RETRIES} retries are allowed"
        elif status.state is State.DEAD_LETTER and len(failed) < MOST_RETRIES + 1:
            yield f"{number} was given up after {len(failed)} failed attempts"


def _spends_retry(entry: Entry) -> bool:
    return entry.reason in {Reason.FAILED, Reason.TIMED_OUT, Reason.RETRIES_USED_UP}


def _run_twice(history: History, by_number: dict[int, list[Task]]) -> Iterator[str]:
    starts = Counter((line.number, line.attempt) for line in history.lines if isinstance(line, Started))
    ends = Counter((line.number, line.attempt) for line in history.lines if isinstance(line, Ended))
    for (number, attempt), times in starts.items():
        if times > 1 or ends[number, attempt] > 1:
            yield f"{number}: attempt {attempt} ran {times} times"
        for task in by_number.get(number, ()):
            if attempt > task.status.attempts:
                yield f"{number}: attempt {attempt} ran, and the store knows of {task.status.attempts}"
