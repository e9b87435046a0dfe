"""What can be said of one queue beyond the settings of all, and changed while everything runs."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings
from fairlead.core.identity import check_name
from fairlead.core.instant import LATEST, LONGEST, SECOND, Span
from fairlead.core.limits import Limit, Limits, Rate
from fairlead.core.order import Policy
from fairlead.core.retry import Backoff
from fairlead.core.settings import Defaults, PriorityDefaults, Settings
from fairlead.core.task import Priority

UNBOUNDED: Final = 0
"""The bound of a queue that takes as many tasks as the store can hold, whatever the settings say."""

_MOST_TRIES: Final = 10_000


class QueueSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of one queue; None is what the settings of the engine say."""

    paused: bool = False
    """Whether its tasks wait however many workers are free. It still takes tasks, and what runs goes on."""
    bound: int | None = None
    """How many tasks may wait in it; `UNBOUNDED` for no bound at all."""
    order: Policy | None = None
    """The order of service of its tasks, with its table."""
    priority: Priority | None = None
    """The priority of a task that names none; likewise all that follow, whatever the task's priority."""
    timeout: Span | None = None
    max_retries: int | None = None
    max_crashes: int | None = None
    backoff: Backoff | None = None
    running: int | None = None
    """How many of its tasks may run at once; None for as many as workers take."""
    rate: Rate | None = None
    """How many of its tasks may start in a while; None for as they come."""
    type_running: dict[str, int] = {}
    """The same of single task types in it."""
    type_rate: dict[str, Rate] = {}
    key_running: int | None = None
    """How many tasks of each concurrency key may run at once: one, unless said; `UNBOUNDED` for as many as come."""
    key_rate: Rate | None = None
    """How many tasks of each concurrency key may start in a while."""

    def __post_init__(self) -> None:
        if self.bound is not None and not 0 <= self.bound <= LATEST:
            raise InvalidSettings(f"bound {self.bound} is not a number of tasks; use 1 or more, or 0 for no bound")
        if self.timeout is not None and not 0 < self.timeout <= LONGEST:
            raise InvalidSettings(
                f"timeout of {self.timeout / SECOND:g} s is out of range; use more than 0 seconds and at most a year"
            )
        for name in ("max_retries", "max_crashes"):
            count = getattr(self, name)
            if count is not None and not 0 <= count <= _MOST_TRIES:
                raise InvalidSettings(f"{name} {count} is out of range; use 0 to {_MOST_TRIES:,}")
        _check_running("running", self.running)
        if self.key_running != UNBOUNDED:
            _check_running("key_running", self.key_running)
        for task_type, running in self.type_running.items():
            _check_running(f"type_running of {check_name('task_type', task_type)}", running)
        for task_type in self.type_rate:
            check_name("task_type", task_type)

    @property
    def limits(self) -> Limits | None:
        """Its limits as a claim carries them; None if it has none of its own."""
        said = (self.running, self.rate, self.key_running, self.key_rate, self.type_running or None)
        if all(each is None for each in (*said, self.type_rate or None)):
            return None
        types = {*self.type_running, *self.type_rate}
        at_once = 1 if self.key_running is None else self.key_running or None
        return Limits(
            queue=_limit(self.running, self.rate),
            types={each: _limit(self.type_running.get(each), self.type_rate.get(each)) for each in types},
            key=_limit(at_once, self.key_rate),
        )


def _limit(running: int | None, rate: Rate | None) -> Limit:
    return Limit(running, None if rate is None else rate.pace)


def _check_running(name: str, running: int | None) -> None:
    if running is not None and not 1 <= running <= LATEST:
        raise InvalidSettings(f"{name} {running} is not a number of tasks; use 1 or more, or pause the queue")


def effective(settings: Settings, queue: QueueSettings) -> Settings:
    """The settings as they are for a queue that has these of its own."""
    bound = settings.queue_bound if queue.bound is None else queue.bound
    return replace(
        settings,
        queue_bound=None if bound == UNBOUNDED else bound,
        order=settings.order if queue.order is None else queue.order,
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
