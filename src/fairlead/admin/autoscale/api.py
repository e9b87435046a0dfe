"""What a scaler is told."""

from __future__ import annotations

from msgspec import Struct

from fairlead.core.instant import SECOND, span
from fairlead.core.scaling import Advice, Load
from fairlead.engine.scaling import Scaling


class Autoscale(Struct, frozen=True, kw_only=True):
    """How much a queue has to do, and how many workers that takes."""

    queue: str | None
    """The queue; null for all together."""
    suggested_workers: int
    """How many workers there should be."""
    backlog_seconds: float | None
    """How long one slot of a worker would need for what is ready; null while no task has ended within a minute."""
    oldest_claimable_age_seconds: float
    """How long the task that could be claimed now and has waited longest has waited; 0 if none waits."""
    ready: int
    """How many tasks could be claimed now; those of paused queues and types could not."""
    executing: int
    seconds_per_task: float | None
    """How long a task takes, from those that ended within a minute; null if none did."""
    tasks_per_second: float
    """How many tasks ended, over the last minute."""
    workers: int
    """How many workers claim tasks here."""
    capacity_per_worker: float
    """How many tasks each is taken to run at once."""


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
