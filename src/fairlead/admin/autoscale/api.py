"""Autoscaling over HTTP: its shapes and its endpoint."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from fairlead.core.health.autoscale import WITHIN, Advice, Load, Scaling
from fairlead.core.instant import LONGEST, SECOND, span
from fairlead.core.tenancy import Role
from fairlead.wire.endpoint import Endpoint
from fairlead.wire.tasks import Name


class Autoscale(Struct, frozen=True, kw_only=True):
    """How much a queue has to do, and how many workers that takes."""

    queue: str | None
    """The queue; null for all together."""
    suggested_workers: int
    """How many workers there should be."""
    backlog_seconds: float | None
    """How long one slot of a worker would need for what is ready; null while no task has ended within a minute."""
    oldest_claimable_age_seconds: float
    """The longest wait among the tasks that could be claimed now; 0 if there is none."""
    ready: int
    """How many tasks could be claimed now; tasks of paused queues and types do not count."""
    executing: int
    seconds_per_task: float | None
    """How long a task takes, from those that ended within a minute; null if none did."""
    tasks_per_second: float
    """How many tasks ended, over the last minute."""
    workers: int
    """How many workers claim tasks here."""
    capacity_per_worker: float
    """How many tasks each worker is assumed to run at once."""


def autoscale(scaling: Scaling) -> Autoscale:
    """A load and its advice, as JSON has them."""
    load, advice = scaling.load, scaling.advice
    return Autoscale(
        queue=scaling.queue,
        suggested_workers=advice.workers,
        backlog_seconds=advice.backlog_seconds,
        oldest_claimable_age_seconds=load.oldest_age / SECOND,
        ready=load.ready,
        executing=load.executing,
        seconds_per_task=advice.seconds_per_task,
        tasks_per_second=load.ended / 60,
        workers=load.workers,
        capacity_per_worker=advice.capacity,
    )


def scaling_of(shown: Autoscale) -> Scaling:
    """The same as an engine would give it."""
    ended = round(shown.tasks_per_second * 60)
    return Scaling(
        shown.queue,
        Load(
            ready=shown.ready,
            executing=shown.executing,
            oldest_age=span(shown.oldest_claimable_age_seconds),
            ended=ended,
            spent=span(ended * (shown.seconds_per_task or 0)),
            workers=shown.workers,
            slots=round(shown.workers * shown.capacity_per_worker),
        ),
        Advice(
            seconds_per_task=shown.seconds_per_task,
            backlog_seconds=shown.backlog_seconds,
            capacity=shown.capacity_per_worker,
            workers=shown.suggested_workers,
        ),
    )


class AutoscaleQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose workers, and how many tasks they should be for."""

    queue: Name | None = None
    """The queue that the workers serve; all queues by default."""
    within_seconds: Annotated[float, Meta(ge=0.001, le=LONGEST / SECOND)] = WITHIN / SECOND
    """How soon the backlog should be done."""
    capacity: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """How many tasks a worker runs at once; by default, as many as the current workers."""


SHOW_AUTOSCALE: Final = Endpoint[AutoscaleQuery, None](
    method="GET",
    path="/api/v1/autoscale",
    summary="Suggest a number of workers",
    role=Role.READ,
    query=AutoscaleQuery,
    answers={200: Autoscale},
)
