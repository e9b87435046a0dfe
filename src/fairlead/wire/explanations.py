"""Explanations: why a task waits or ran when it ran, over HTTP and by `--json` of the command line."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from fairlead.core.explain.explanation import Cause, Explanation, Forecast, LinePlace
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.queues.promotion import Promotion
from fairlead.core.task import Priority, State
from fairlead.wire.text import iso, maybe_iso, parse_iso
from fairlead.wire.words import ByPriority, PriorityName, StateName


class CauseShown(Struct, frozen=True, kw_only=True):
    """One reason why a task waits, or why it ran when it did."""

    code: str
    """What it is about, for programs: `queue_paused`, `type_unknown`, `tasks_ahead` …"""
    text: str
    """The same for people, in one sentence."""
    blocks: bool
    """Whether the task cannot start while this lasts, however long it waits."""
    data: dict[str, Any]
    """The numbers and names in it; spans are in seconds."""


class PromotionShown(Struct, frozen=True, kw_only=True):
    """A task is treated as another priority from a moment on."""

    at: str
    to: PriorityName


class LinePlaceShown(Struct, frozen=True, kw_only=True):
    """Where a queued task stands in the line of its queue."""

    position: int | None
    """Its number in the line, from 1; null if no claim reaches it as things stand, see `unreached`."""
    ahead: int
    """How many ready tasks the workers that could take it would take before it, if they claimed now and nothing
    ended."""
    exact: bool
    """Whether they were counted; where each turn is drawn at random, their number is the expected one."""
    ahead_by_effective_priority: ByPriority[int]
    next_promotion: PromotionShown | None
    """When it is next treated as a higher priority because of its wait; null if it never is."""
    unpassable_from: str | None
    """The moment after which no task that is submitted can be served before it; null if there is none."""
    turns_from: str | None = None
    """From when on it takes turns with the most urgent tasks, whatever is submitted; null if none are taken."""
    unreached: str | None = None
    """Why no claim reaches it as things stand; null if one does."""


class ForecastShown(Struct, frozen=True, kw_only=True):
    """Who could take a waiting task, and when."""

    workers: int
    """How many live workers could take it."""
    worker_ids: list[str]
    """The first of them, by id."""
    free_slots: int
    """How many more tasks they could run right now, as last reported."""
    rate_per_second: float | None
    """How many tasks they ended per second lately; null if they ended none."""
    estimated_start: str | None
    latest_start: str | None
    """The latest moment at which it starts, given the assumptions, whatever else is submitted."""
    assumptions: list[str]
    """What must hold for these two."""
    no_estimate: str | None
    """Why no start can be estimated, if none can."""
    no_latest: str | None
    """Why no latest start is known, if none is."""


class ExplanationShown(Struct, frozen=True, kw_only=True):
    """Why a task waits, or why it ran when it did, as known at one moment."""

    task_id: str
    task_type: str
    queue: str
    status: StateName
    at: str
    priority: PriorityName
    effective_priority: PriorityName
    """What it is treated as because of its wait; once it is claimed, what it was treated as then."""
    summary: str
    """The explanation in one sentence."""
    causes: list[CauseShown]
    """For a waiting task, the most important first; for its past, the oldest first."""
    due_at: str | None
    """When it begins to wait in line, while it is scheduled."""
    line: LinePlaceShown | None
    """Its place, while it is queued."""
    forecast: ForecastShown | None
    """Its start, while it waits."""


def explanation_shown(told: Explanation) -> ExplanationShown:
    """An explanation as it is shown."""
    return ExplanationShown(
        task_id=told.task_id,
        task_type=told.type,
        queue=told.queue,
        status=told.state.value,
        at=iso(told.at),
        priority=told.priority.word,
        effective_priority=told.effective_priority.word,
        summary=told.summary,
        causes=[cause_shown(cause) for cause in told.causes],
        due_at=maybe_iso(told.due_at),
        line=None if told.line is None else _line_shown(told.line),
        forecast=None if told.forecast is None else _forecast_shown(told.forecast),
    )


def cause_shown(cause: Cause) -> CauseShown:
    """A cause as it is shown."""
    return CauseShown(code=cause.code, text=cause.text, blocks=cause.blocks, data=dict(cause.data))


def explanation_of(shown: ExplanationShown) -> Explanation:
    """The explanation that is shown like this."""
    return Explanation(
        task_id=TaskId(shown.task_id),
        type=shown.task_type,
        queue=shown.queue,
        state=State(shown.status),
        at=parse_iso(shown.at),
        priority=Priority.parse(shown.priority),
        effective_priority=Priority.parse(shown.effective_priority),
        causes=tuple(cause_of(cause) for cause in shown.causes),
        due_at=None if shown.due_at is None else parse_iso(shown.due_at),
        line=None if shown.line is None else _line_of(shown.line),
        forecast=None if shown.forecast is None else _forecast_of(shown.forecast),
    )


def cause_of(shown: CauseShown) -> Cause:
    """The cause that is shown like this."""
    return Cause(shown.code, shown.text, shown.data, shown.blocks)


def _line_shown(line: LinePlace) -> LinePlaceShown:
    promotion = line.next_promotion
    return LinePlaceShown(
        position=line.position,
        ahead=line.ahead,
        exact=line.exact,
        ahead_by_effective_priority={priority.word: count for priority, count in line.ahead_by_priority.items()},
        next_promotion=None if promotion is None else PromotionShown(at=iso(promotion.at), to=promotion.to.word),
        unpassable_from=maybe_iso(line.unpassable_from),
        turns_from=maybe_iso(line.turns_from),
        unreached=line.unreached,
    )


def _line_of(shown: LinePlaceShown) -> LinePlace:
    promotion = shown.next_promotion
    return LinePlace(
        ahead=shown.ahead,
        exact=shown.exact,
        ahead_by_priority={Priority.parse(word): count for word, count in shown.ahead_by_effective_priority.items()},
        next_promotion=None if promotion is None else Promotion(parse_iso(promotion.at), Priority.parse(promotion.to)),
        unpassable_from=None if shown.unpassable_from is None else parse_iso(shown.unpassable_from),
        turns_from=None if shown.turns_from is None else parse_iso(shown.turns_from),
        unreached=shown.unreached,
    )


def _forecast_shown(forecast: Forecast) -> ForecastShown:
    return ForecastShown(
        workers=forecast.workers,
        worker_ids=list(forecast.worker_ids),
        free_slots=forecast.free_slots,
        rate_per_second=forecast.rate,
        estimated_start=maybe_iso(forecast.estimated_start),
        latest_start=maybe_iso(forecast.latest_start),
        assumptions=list(forecast.assumptions),
        no_estimate=forecast.no_estimate,
        no_latest=forecast.no_latest,
    )


def _forecast_of(shown: ForecastShown) -> Forecast:
    return Forecast(
        workers=shown.workers,
        worker_ids=tuple(WorkerId(worker) for worker in shown.worker_ids),
        free_slots=shown.free_slots,
        rate=shown.rate_per_second,
        estimated_start=None if shown.estimated_start is None else parse_iso(shown.estimated_start),
        latest_start=None if shown.latest_start is None else parse_iso(shown.latest_start),
        assumptions=tuple(shown.assumptions),
        no_estimate=shown.no_estimate,
        no_latest=shown.no_latest,
    )
