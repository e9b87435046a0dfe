"""The settings that rules and the engine read, with their defaults."""

from __future__ import annotations

from msgspec import Struct

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import DAY, HOUR, LONGEST, MILLISECOND, SECOND, Span
from fairlead.core.order import Policy, Promote
from fairlead.core.retry import Backoff
from fairlead.core.task import COMPLETED, Priority, State


class Retention(Struct, frozen=True, kw_only=True):
    """How long an ended task is kept."""

    completed: Span = DAY
    cancelled: Span = DAY
    failed: Span = 30 * DAY
    dead_letter: Span = 30 * DAY

    def of(self, state: State) -> Span:
        """How long a task that ended in this state is kept."""
        # What nearly always happens comes before the matching, which is slow.
        if state is COMPLETED:
            return self.completed
        match state:
            case State.CANCELLED:
                return self.cancelled
            case State.FAILED:
                return self.failed
            case State.DEAD_LETTER:
                return self.dead_letter
            case _:
                raise ValueError(f"a {state} task has not ended, so it has no retention")


class Rules(Struct, frozen=True, kw_only=True):
    """What `lifecycle.decide` needs to know beyond the task itself."""

    retention: Retention = Retention()
    timeout_growth: float = 1.5
    """After a timeout the next attempt may take this much longer."""
    timeout_ceiling: Span = HOUR
    """How far a timeout may grow."""


class PriorityDefaults(Struct, frozen=True, kw_only=True):
    """What a task of one priority gets unless it says otherwise."""

    max_retries: int
    timeout: Span


class Defaults(Struct, frozen=True, kw_only=True):
    """What a task gets unless it says otherwise."""

    critical: PriorityDefaults = PriorityDefaults(max_retries=5, timeout=300 * SECOND)
    high: PriorityDefaults = PriorityDefaults(max_retries=5, timeout=300 * SECOND)
    medium: PriorityDefaults = PriorityDefaults(max_retries=3, timeout=600 * SECOND)
    low: PriorityDefaults = PriorityDefaults(max_retries=2, timeout=900 * SECOND)
    max_crashes: int = 3
    backoff: Backoff = Backoff()
    priority: Priority = Priority.MEDIUM

    def of(self, priority: Priority) -> PriorityDefaults:
        """The defaults of one priority."""
        return (self.critical, self.high, self.medium, self.low)[priority]


class Settings(Struct, frozen=True, kw_only=True):
    """How an engine behaves."""

    rules: Rules = Rules()
    defaults: Defaults = Defaults()
    order: Policy = Promote()
    lease: Span = 30 * SECOND
    heartbeat: Span = 10 * SECOND
    grace: Span = 10 * SECOND
    """How long past its timeout an attempt may hold its lease."""
    key_retention: Span = DAY
    """How long an idempotency key answers with the task it first named."""
    payload_limit: int = 256 * 1024
    """The largest parameters or result, in bytes."""
    queue_bound: int | None = None
    """How many tasks may wait in one queue; None for as many as the store can hold."""
    sweep_interval: Span = SECOND
    dead_letter_alert: int | None = None
    """From how many dead letters of one type on an alert is shown; None for never."""
    dead_letter_alerts: tuple[tuple[str, int], ...] = ()
    """The same for single types, which goes before it."""

    def alert_at(self, task_type: str) -> int | None:
        """From how many dead letters of this type on an alert is shown; None for never."""
        return dict(self.dead_letter_alerts).get(task_type, self.dead_letter_alert)

    def __post_init__(self) -> None:
        for name, least in (
            ("lease", MILLISECOND),
            ("heartbeat", MILLISECOND),
            ("grace", 0),
            ("key_retention", 0),
            ("sweep_interval", MILLISECOND),
        ):
            value = getattr(self, name)
            if not least <= value <= LONGEST:
                raise InvalidSettings(f"{name} of {value / SECOND} s is out of range; use {least / SECOND} s to a year")
        if self.lease < 2 * self.heartbeat:
            raise InvalidSettings(
                f"lease of {self.lease / SECOND} s with a heartbeat every {self.heartbeat / SECOND} s: one late "
                f"heartbeat would lose the task; make the lease at least twice the heartbeat"
            )
        if self.queue_bound is not None and self.queue_bound < 1:
            raise InvalidSettings(f"queue_bound {self.queue_bound} lets nothing in; use 1 or more, or none at all")
        if self.payload_limit < 2:
            raise InvalidSettings(f"payload_limit {self.payload_limit} is smaller than the empty object {{}}")
