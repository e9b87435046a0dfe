"""Schedules as an app declares them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import Any, Final, ParamSpec, Protocol, TypedDict, TypeVar, overload

from fairlead.app.task_type import Call, CoroutineTask, FunctionTask, TaskDefinition
from fairlead.core.errors import InvalidSchedule
from fairlead.core.schedule import Missed, Overlap, Schedule, check
from fairlead.core.submission import Submission
from fairlead.core.validation import Duration, Refuse, instant_of, member_of, shown, span_of

P = ParamSpec("P")
R = TypeVar("R")
Definition = TypeVar("Definition", bound=TaskDefinition[..., Any])


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
    jitter: Duration
    """How much later a submit may come, to spread the load: seconds, or a timedelta."""
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


def submission_of(call: object) -> Submission:
    """What a call submits; raises InvalidSchedule for what is none."""
    if not isinstance(call, Call):
        raise InvalidSchedule("call", f"call {shown(call)} is not a call; make one with task.call(…)")
    return call.submission


def schedule_of(name: str, cron: str, submission: Submission, options: Mapping[str, Any]) -> Schedule:
    """The schedule that these options describe; raises InvalidSchedule if it can never fire."""
    fields = {field: value for field, value in options.items() if value is not None}
    unknown = fields.keys() - ScheduleOptions.__annotations__.keys()
    if unknown:
        known = ", ".join(sorted(ScheduleOptions.__annotations__))
        raise InvalidSchedule(
            min(unknown), f"option {min(unknown)!r} of a schedule is unknown; the options are {known}"
        )
    for field, meaning in _MEANINGS.items():
        if field in fields:
            fields[field] = meaning(field, fields[field], InvalidSchedule)
    return check(Schedule(name=name, cron=cron, submission=submission, **fields))


_MEANINGS: Final[Mapping[str, Callable[[str, Any, Refuse], Any]]] = {
    "missed": lambda field, said, refuse: member_of(field, said, Missed, refuse),
    "overlap": lambda field, said, refuse: member_of(field, said, Overlap, refuse),
    "jitter": span_of,
    "start": instant_of,
    "end": instant_of,
}
"""What users mean by an option, where the engine has it in another form."""
