"""What can be said of one queue beyond the settings of all, and changed while everything runs."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import LATEST, LONGEST, SECOND, Span
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
