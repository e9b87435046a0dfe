"""The settings that rules and the engine read, with their defaults."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings
from fairlead.core.identity import check_name
from fairlead.core.instant import DAY, HOUR, LATEST, LONGEST, MILLISECOND, SECOND, Span
from fairlead.core.queues.admission import check_allow_list
from fairlead.core.queues.order import Policy, Promote, check_policy
from fairlead.core.queues.queue import UNBOUNDED, QueueSettings
from fairlead.core.retry import MOST_RETRIES, Backoff, check_backoff
from fairlead.core.task import COMPLETED, Priority, State
from fairlead.core.validation import bad_setting, check_count, check_flag, check_number, check_span, check_type, shown

_LEAST_PAYLOAD: Final = len(b"{}")
_MOST_GROWTH: Final = 1_000.0


class Retention(Struct, frozen=True, kw_only=True):
    """How long an ended task is kept."""

    completed: Span = DAY
    cancelled: Span = DAY
    failed: Span = 30 * DAY
    dead_letter: Span = 30 * DAY

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            check_span(f"retention of {name}", getattr(self, name), 0, LONGEST, bad_setting)

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


class DelayCeilings(Struct, frozen=True, kw_only=True):
    """The longest delay before a retry, by the priority that the task has then; None is as its backoff says.

    It holds for every backoff, also one that a task or a retry rule has of its own, but not for a delay that a handler
    asks for.
    """

    critical: Span | None = None
    high: Span | None = None
    medium: Span | None = None
    low: Span | None = None

    def __post_init__(self) -> None:
        for priority in Priority:
            if (ceiling := self.of(priority)) is not None:
                check_span(f"delay ceiling of {priority.word}", ceiling, 0, LONGEST, bad_setting)

    def of(self, priority: Priority) -> Span | None:
        """The longest delay of a task of this priority; None if there is none but its backoff's own."""
        return (self.critical, self.high, self.medium, self.low)[priority]


CEILINGS_BY_PRIORITY: Final = DelayCeilings(critical=10 * SECOND, high=30 * SECOND, medium=60 * SECOND)
"""A preset: the more urgent a task, the sooner it is tried again. A low task waits as its backoff says."""


class Rules(Struct, frozen=True, kw_only=True):
    """What `lifecycle.decide` needs to know beyond the task itself."""

    retention: Retention = Retention()
    timeout_growth: float = 1.5
    """After a timeout the next attempt may take this much longer."""
    timeout_ceiling: Span = HOUR
    """How far a timeout may grow."""
    timeout_growth_after_failure: bool = False
    """Whether it grows after any failure, and not after a timeout only."""
    delay_ceilings: DelayCeilings = DelayCeilings()

    def __post_init__(self) -> None:
        check_type("retention", self.retention, Retention, "write Retention(…)", bad_setting)
        check_type("delay_ceilings", self.delay_ceilings, DelayCeilings, "write DelayCeilings(…)", bad_setting)
        check_flag("timeout_growth_after_failure", self.timeout_growth_after_failure, bad_setting)
        check_number("timeout_growth", self.timeout_growth, 1.0, _MOST_GROWTH, bad_setting)
        check_span("timeout_ceiling", self.timeout_ceiling, 0, LONGEST, bad_setting)


class PriorityDefaults(Struct, frozen=True, kw_only=True):
    """What a task of one priority gets unless it says otherwise."""

    max_retries: int
    timeout: Span

    def __post_init__(self) -> None:
        check_count("max_retries", self.max_retries, 0, MOST_RETRIES, bad_setting)
        check_span("timeout", self.timeout, 1, LONGEST, bad_setting)


class Defaults(Struct, frozen=True, kw_only=True):
    """What a task gets unless it says otherwise."""

    critical: PriorityDefaults = PriorityDefaults(max_retries=5, timeout=300 * SECOND)
    high: PriorityDefaults = PriorityDefaults(max_retries=5, timeout=300 * SECOND)
    medium: PriorityDefaults = PriorityDefaults(max_retries=3, timeout=600 * SECOND)
    low: PriorityDefaults = PriorityDefaults(max_retries=2, timeout=900 * SECOND)
    max_crashes: int = 3
    backoff: Backoff = Backoff()
    priority: Priority = Priority.MEDIUM

    def __post_init__(self) -> None:
        for priority in Priority:
            own = getattr(self, priority.word)
            check_type(priority.word, own, PriorityDefaults, "write PriorityDefaults(…)", bad_setting)
        check_count("max_crashes", self.max_crashes, 0, MOST_RETRIES, bad_setting)
        check_backoff("backoff", self.backoff, bad_setting)
        check_type("priority", self.priority, Priority, "use a Priority, such as Priority.HIGH", bad_setting)

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
    admission_allow: tuple[str, ...] = ()
    """The keys and tenants whose tasks are taken however many wait: `key:NAME` or `tenant:NAME`."""

    def alert_at(self, task_type: str) -> int | None:
        """From how many dead letters of this type on an alert is shown; None for never."""
        return dict(self.dead_letter_alerts).get(task_type, self.dead_letter_alert)

    def __post_init__(self) -> None:
        check_type("rules", self.rules, Rules, "write Rules(…)", bad_setting)
        check_type("defaults", self.defaults, Defaults, "write Defaults(…)", bad_setting)
        check_policy("order", self.order)
        for name, least in (
            ("lease", MILLISECOND),
            ("heartbeat", MILLISECOND),
            ("grace", 0),
            ("key_retention", 0),
            ("sweep_interval", MILLISECOND),
        ):
            check_span(name, getattr(self, name), least, LONGEST, bad_setting)
        if self.lease < 2 * self.heartbeat:
            raise InvalidSettings(
                f"lease of {self.lease / SECOND} s with a heartbeat every {self.heartbeat / SECOND} s: one late "
                f"heartbeat would lose the task; make the lease at least twice the heartbeat"
            )
        check_count("payload_limit", self.payload_limit, _LEAST_PAYLOAD, LATEST, bad_setting)
        if self.queue_bound is not None:
            check_count("queue_bound", self.queue_bound, 1, LATEST, bad_setting)
        if self.dead_letter_alert is not None:
            check_count("dead_letter_alert", self.dead_letter_alert, 1, LATEST, bad_setting)
        _check_alerts(self.dead_letter_alerts)
        check_allow_list("admission_allow", self.admission_allow)


def effective(settings: Settings, queue: QueueSettings) -> Settings:
    """The settings as they are for a queue that has these of its own."""
    bound = settings.queue_bound if queue.bound is None else queue.bound
    order = settings.order if queue.order is None else queue.order
    if queue.fair is not None and isinstance(order, Promote):
        # If all who have waited long went first, every old backlog would be served as if nobody took turns.
        order = replace(order, share="all")
    return replace(
        settings,
        queue_bound=None if bound == UNBOUNDED else bound,
        order=order,
        defaults=_defaults(settings.defaults, queue),
    )


def _defaults(defaults: Defaults, queue: QueueSettings) -> Defaults:
    def of(priority: Priority) -> PriorityDefaults:
        own = defaults.of(priority)
        return PriorityDefaults(
            max_retries=own.max_retries if queue.max_retries is None else queue.max_retries,
            timeout=own.timeout if queue.timeout is None else queue.timeout,
        )

    return Defaults(
        critical=of(Priority.CRITICAL),
        high=of(Priority.HIGH),
        medium=of(Priority.MEDIUM),
        low=of(Priority.LOW),
        max_crashes=defaults.max_crashes if queue.max_crashes is None else queue.max_crashes,
        backoff=queue.backoff or defaults.backoff,
        priority=defaults.priority if queue.priority is None else queue.priority,
    )


def _check_alerts(alerts: object) -> None:
    for alert in check_type("dead_letter_alerts", alerts, tuple, "write a tuple of (type, number)", bad_setting):
        if type(alert) is not tuple or len(alert) != len(("type", "number")):
            raise InvalidSettings(
                f"dead_letter_alerts has {shown(alert)}; write a type and a number: ('send_mail', 100)"
            )
        task_type, number = alert
        check_count(f"dead_letter_alerts of {check_name('task_type', task_type)}", number, 1, LATEST, bad_setting)
