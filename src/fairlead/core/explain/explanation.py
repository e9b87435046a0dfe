"""What can be said of why a task waits, or ran when it ran.

An explanation is made of causes: each has a code for programs, one sentence for people, and the numbers in it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import Instant, Span
from fairlead.core.queues.promotion import Promotion
from fairlead.core.task import Priority, State

Datum: TypeAlias = int | float | str | bool | list[str] | dict[str, int] | None


class CauseCode(enum.StrEnum):
    """What a cause is about."""

    QUEUE_PAUSED = "queue_paused"
    TYPE_PAUSED = "type_paused"
    CIRCUIT_OPEN = "circuit_open"
    LIMIT_REACHED = "limit_reached"
    NO_WORKERS = "no_workers"
    QUEUE_UNSERVED = "queue_unserved"
    TYPE_UNKNOWN = "type_unknown"
    CAPABILITY_MISSING = "capability_missing"
    ALL_DRAINING = "all_draining"
    ALL_PAUSED = "all_paused"
    TASKS_AHEAD = "tasks_ahead"
    TAKES_TURNS = "takes_turns"
    WORKERS_BUSY = "workers_busy"
    NEXT_IN_LINE = "next_in_line"
    DEPENDENT = "dependent"
    NOT_DUE = "not_due"
    BACKOFF = "backoff"
    SWEEP_LATE = "sweep_late"
    ATTEMPT_BEGAN = "attempt_began"
    ATTEMPT_ENDED = "attempt_ended"
    EXECUTING = "executing"
    CANCEL_ASKED = "cancel_asked"
    ENDED = "ended"


_SWEEPS_MISSED: Final = 2
_WORDS: Final = {State.DEAD_LETTER: "a dead letter"}
"""What a sentence says of a task in this state, where that is not its name."""


def sweep_is_late(due: Instant, now: Instant, interval: Span) -> bool:
    """Whether a task that is due has been left unqueued for longer than any sweep that runs would leave it."""
    return now - due > _SWEEPS_MISSED * interval


class Cause(Struct, frozen=True):
    """One reason why a task waits, or ran when it ran."""

    code: str
    """A `CauseCode`; a server may know more of them than its client."""
    text: str
    """One sentence, without a full stop."""
    data: Mapping[str, Datum] = {}
    """The numbers and names in it; spans are in seconds."""
    blocks: bool = False
    """Whether the task cannot start while this lasts, however long it waits."""


class LinePlace(Struct, frozen=True, kw_only=True):
    """Where a queued task stands in the line of its queue."""

    ahead: int
    """How many ready tasks the workers that could take it would take before it, if they claimed now and nothing
    ended."""
    exact: bool
    """Whether they were counted; where each turn is drawn at random, their number is the expected one."""
    ahead_by_priority: Mapping[Priority, int]
    """The same by the priority that they are treated as."""
    next_promotion: Promotion | None = None
    unpassable_from: Instant | None = None
    """The moment after which nothing that is submitted can be served before it; None if something always can."""
    turns_from: Instant | None = None
    """From when on it takes turns with the most urgent tasks, whatever is submitted; None if none are taken."""
    unreached: str | None = None
    """Why no claim reaches it as things stand; None if one does."""

    @property
    def position(self) -> int | None:
        """Its number in the line, from 1; None if no claim reaches it."""
        return None if self.unreached is not None else self.ahead + 1


class Forecast(Struct, frozen=True, kw_only=True):
    """Who could take a waiting task, and when."""

    workers: int
    """How many live workers could take it."""
    worker_ids: tuple[WorkerId, ...] = ()
    """The first of them, by id."""
    free_slots: int = 0
    """How many more tasks they could run right now, as last reported."""
    rate: float | None = None
    """How many tasks per second they ended lately; None if they ended none."""
    estimated_start: Instant | None = None
    latest_start: Instant | None = None
    """The latest moment at which it starts, given the assumptions, whatever else is submitted."""
    assumptions: tuple[str, ...] = ()
    """What must hold for these two."""
    no_estimate: str | None = None
    """Why no start can be estimated, if none can."""
    no_latest: str | None = None
    """Why no latest start is known, if none is."""


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a task waits, or ran when it ran, as far as could be said at a moment."""

    task_id: TaskId
    type: str
    queue: str
    state: State
    at: Instant
    priority: Priority
    effective_priority: Priority
    """What it is treated as because of its wait; once it was claimed, what it was treated as then."""
    causes: tuple[Cause, ...]
    """Of a waiting task, the most telling first; of its past, the oldest first."""
    due_at: Instant | None = None
    """When it begins to wait in line, while it is scheduled."""
    line: LinePlace | None = None
    """While it is queued."""
    forecast: Forecast | None = None
    """While it waits."""

    @property
    def summary(self) -> str:
        """The explanation in one sentence."""
        main = self.causes[0] if self.state.waiting else self.causes[-1]
        return f"it is {_WORDS.get(self.state, self.state.value)}: {main.text}"
