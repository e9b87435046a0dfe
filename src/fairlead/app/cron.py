"""Schedules as an app declares them."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import Any, Final, ParamSpec, Protocol, TypedDict, TypeVar, overload

from fairlead.core.errors import InvalidSchedule
from fairlead.core.instant import SECOND, Instant, Span, span
from fairlead.core.schedule import Missed, Overlap, Schedule, check
from fairlead.core.submission import Submission
from fairlead.sdk.definition import CoroutineTask, FunctionTask, TaskDefinition

P = ParamSpec("P")
R = TypeVar("R")
Definition = TypeVar("Definition", bound=TaskDefinition[..., Any])

_POLICIES: Final[dict[str, type[Missed] | type[Overlap]]] = {"missed": Missed, "overlap": Overlap}


class ScheduleOptions(TypedDict, total=False):
    """What can be said of a schedule beside when it recurs."""

    timezone: str
    """Whose wall clock the expression is about; UTC if not said."""
    missed: str
    """What becomes of fire times that passed while nothing ran: `skip`, `run_once` (the default) or `run_all`."""
    missed_cap: int
    """How many missed fire times `run_all` makes up for; 100 if not said."""
    overlap: str
    """What becomes of a fire time while the task before has not ended: `allow` (the default), `skip`, `replace`."""
    jitter: float
    """Seconds by which a submit may come later, to spread the load."""
    start: datetime
    """No fire time is before this; must have a time zone."""
    end: datetime
    """No fire time is after this; must have a time zone."""


class CronDecorator(Protocol):
    """Puts a task type, or a function that it makes one, on a schedule."""

    @overload
    def __call__(self, task: Definition, /) -> Definition: ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> CoroutineTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[P, R], /) -> FunctionTask[P, R]: ...


def schedule_of(name: str, cron: str, submission: Submission, options: Mapping[str, Any]) -> Schedule:
    """The schedule that these options describe; raises InvalidSchedule if it can never fire."""
    fields = {field: value for field, value in options.items() if value is not None}
    unknown = fields.keys() - ScheduleOptions.__annotations__.keys()
    if unknown:
        known = ", ".join(sorted(ScheduleOptions.__annotations__))
        raise InvalidSchedule(
            min(unknown), f"option {min(unknown)!r} of a schedule is unknown; the options are {known}"
        )
    for field, words in _POLICIES.items():
        if field in fields:
            fields[field] = _policy(field, fields[field], words)
    if "jitter" in fields:
        fields["jitter"] = _span("jitter", fields["jitter"])
    for field in ("start", "end"):
        if field in fields:
            fields[field] = _instant(field, fields[field])
    return check(Schedule(name=name, cron=cron, submission=submission, **fields))


def _policy(field: str, word: str, words: type[Missed] | type[Overlap]) -> Missed | Overlap:
    try:
        return words(word)
    except ValueError:
        raise InvalidSchedule(field, f"{field} {word!r} is unknown; use one of {', '.join(words)}") from None


def _span(field: str, seconds: float) -> Span:
    if not math.isfinite(seconds):
        raise InvalidSchedule(field, f"{field} {seconds} is not a number of seconds; leave it out for none")
    return span(seconds)


def _instant(field: str, moment: datetime) -> Instant:
    if moment.tzinfo is None:
        raise InvalidSchedule(field, f"{field} {moment.isoformat()} has no time zone; use datetime(…, tzinfo=…)")
    return round(moment.timestamp() * SECOND)
