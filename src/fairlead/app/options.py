"""The core's values as users write them: every span in seconds, or as a timedelta.

The core counts whole microseconds, in memory and in what is stored. Here a user's spans become that, once, when a value
is made: `Backoff(initial=5)` is the core's `Backoff` of 5,000,000 µs. What is read from a store never comes by here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec import StructMeta, structs

from fairlead.core import circuit, retry, settings
from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import SECOND as MICROSECONDS
from fairlead.core.instant import Span
from fairlead.core.queues import order
from fairlead.core.task import Priority
from fairlead.core.validation import Duration, bad_setting, span_of

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)


class InSeconds(StructMeta):
    """Makes values of the struct that a class derives from; its `spans` are given in seconds or as a timedelta."""

    spans: tuple[str, ...]

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        /,
        *,
        spans: tuple[str, ...] = (),
        **more: Any,
    ) -> InSeconds:
        for base in bases:
            if isinstance(base, InSeconds):
                raise InvalidSettings(
                    f"{name} cannot derive from {base.__name__}, which makes values of another class; "
                    f"write a function that returns {base.__name__}(…)"
                )
        made = super().__new__(cls, name, bases, namespace, **more)
        made.spans = spans
        return made

    def __instancecheck__(cls, value: object) -> bool:  # noqa: N805 - a class is its own self here
        return isinstance(value, cls.__base__ or object)

    if not TYPE_CHECKING:

        def __call__(cls, *args, **said):  # noqa: N805
            kept = cls.__base__
            _check_names(cls.__name__, args, said, kept)
            unsaid = {field.name for field in structs.fields(kept) if field.default is None}
            return kept(
                **{
                    name: value
                    if name not in cls.spans or (value is None and name in unsaid)
                    else _span(f"{cls.__name__} {name}", value)
                    for name, value in said.items()
                }
            )


def _span(name: str, said: object) -> Span:
    """The span that a user means; microseconds of the core's, which would be a million times too long, are none."""
    if type(said) is int and said and said % MICROSECONDS == 0:
        raise InvalidSettings(
            f"{name} {said:,} is a number of seconds, {said // 86_400:,} days; write timedelta(seconds={said}) if "
            f"that is meant, and import SECOND from fairlead, where it is a timedelta"
        )
    return span_of(name, said, bad_setting)


def _check_names(made: str, args: tuple[object, ...], said: dict[str, object], kept: type[Any]) -> None:
    fields = kept.__struct_fields__
    if args:
        raise InvalidSettings(f"{made} takes its settings by name; write {made}({fields[0]}=…)")
    if unknown := sorted(said.keys() - set(fields)):
        raise InvalidSettings(f"{made} has no setting {unknown[0]!r}; they are {', '.join(fields) or 'none'}")
    if missing := [field.name for field in structs.fields(kept) if field.required and field.name not in said]:
        raise InvalidSettings(f"{made} leaves {missing[0]} out; write {made}({missing[0]}=…)")


class Backoff(retry.Backoff, metaclass=InSeconds, frozen=True, spans=("initial", "ceiling")):
    """How long to wait before a retry: `initial · factor^n`, at most `ceiling`, give or take `jitter`.

    `initial` and `ceiling` are seconds, or timedeltas; `jitter` is a share of the wait, from 0 to 1.
    """

    if TYPE_CHECKING:

        def __init__(
            self, *, initial: Duration = 1.0, factor: float = 2.0, ceiling: Duration = 300.0, jitter: float = 0.1
        ) -> None: ...


class CircuitSettings(circuit.CircuitSettings, metaclass=InSeconds, frozen=True, spans=("window", "open_for")):
    """When the circuit of a task type opens, and how it closes again; spans are seconds, or timedeltas."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            failure_ratio: float = 0.5,
            window: Duration = 60.0,
            min_outcomes: int = 20,
            open_for: Duration = 30.0,
            probes: int = 3,
        ) -> None: ...


class Promote(order.Promote, metaclass=InSeconds, frozen=True, spans=("low", "medium", "high")):
    """Waiting tasks are treated as the next priority after a while; spans are seconds, or timedeltas."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            low: Duration = 600.0,
            medium: Duration = 1200.0,
            high: Duration = 1800.0,
            share: order.SharedAt = "critical",
        ) -> None: ...


class HeadStart(order.HeadStart, metaclass=InSeconds, frozen=True, spans=("critical", "high", "medium", "low")):
    """One line, in which a task counts as submitted that much earlier; spans are seconds, or timedeltas."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            critical: Duration = 3600.0,
            high: Duration = 1800.0,
            medium: Duration = 600.0,
            low: Duration = 0.0,
        ) -> None: ...


class Retention(
    settings.Retention, metaclass=InSeconds, frozen=True, spans=("completed", "cancelled", "failed", "dead_letter")
):
    """How long an ended task is kept; spans are seconds, or timedeltas."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            completed: Duration = DAY,
            cancelled: Duration = DAY,
            failed: Duration = 30 * DAY,
            dead_letter: Duration = 30 * DAY,
        ) -> None: ...


class DelayCeilings(
    settings.DelayCeilings, metaclass=InSeconds, frozen=True, spans=("critical", "high", "medium", "low")
):
    """The longest delay before a retry, by priority, in seconds or as timedeltas; None is as the backoff says."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            critical: Duration | None = None,
            high: Duration | None = None,
            medium: Duration | None = None,
            low: Duration | None = None,
        ) -> None: ...


class Rules(settings.Rules, metaclass=InSeconds, frozen=True, spans=("timeout_ceiling",)):
    """What becomes of a task beyond its own limits; spans are seconds, or timedeltas."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            retention: settings.Retention = ...,
            timeout_growth: float = 1.5,
            timeout_ceiling: Duration = HOUR,
            timeout_growth_after_failure: bool = False,
            delay_ceilings: settings.DelayCeilings = ...,
        ) -> None: ...


class PriorityDefaults(settings.PriorityDefaults, metaclass=InSeconds, frozen=True, spans=("timeout",)):
    """What a task of one priority gets unless it says otherwise; its timeout is seconds, or a timedelta."""

    if TYPE_CHECKING:

        def __init__(self, *, max_retries: int, timeout: Duration) -> None: ...


class Settings(
    settings.Settings,
    metaclass=InSeconds,
    frozen=True,
    spans=("lease", "heartbeat", "grace", "key_retention", "sweep_interval"),
):
    """How an engine behaves; spans are seconds, or timedeltas."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            rules: settings.Rules = ...,
            defaults: settings.Defaults = ...,
            order: order.Policy = ...,
            lease: Duration = 30.0,
            heartbeat: Duration = 10.0,
            grace: Duration = 10.0,
            key_retention: Duration = DAY,
            payload_limit: int = 256 * 1024,
            queue_bound: int | None = None,
            sweep_interval: Duration = 1.0,
            dead_letter_alert: int | None = None,
            dead_letter_alerts: tuple[tuple[str, int], ...] = (),
        ) -> None: ...


class RetryRule(retry.RetryRule, metaclass=InSeconds, frozen=True):
    """What to do after one kind of error; what is left out is what the task says for all errors."""

    if TYPE_CHECKING:

        def __init__(
            self, *, max_retries: int | None = None, backoff: retry.Backoff | None = None, reject: bool = False
        ) -> None: ...


class Defaults(settings.Defaults, metaclass=InSeconds, frozen=True):
    """What a task gets unless it says otherwise."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            critical: settings.PriorityDefaults = ...,
            high: settings.PriorityDefaults = ...,
            medium: settings.PriorityDefaults = ...,
            low: settings.PriorityDefaults = ...,
            max_crashes: int = 3,
            backoff: retry.Backoff = ...,
            priority: Priority = Priority.MEDIUM,
        ) -> None: ...
