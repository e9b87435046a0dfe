"""`autoscale`: how many workers there should be."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from fairlead.admin.workers.api import autoscale as shown
from fairlead.cli import tables
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, reached, whole
from fairlead.cli.output import Cell, write_json
from fairlead.cli.times import brief
from fairlead.core.health.autoscale import WITHIN
from fairlead.core.instant import SECOND
from fairlead.core.validation import span_of
from fairlead.engine.runtime.inline import run_inline


def autoscale(
    *,
    queue: Annotated[
        str | None, Parameter(help="The queue that the workers serve; all by default.", metavar="NAME")
    ] = None,
    within_seconds: Annotated[
        float | None, Parameter(help="How soon the backlog should be done; 60 by default.", metavar="S")
    ] = None,
    capacity: Annotated[
        int | None,
        Parameter(
            converter=whole,
            help="Tasks that a worker runs at once; by default, as many as the current workers.",
            metavar="N",
        ),
    ] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Show the backlog, and suggest a number of workers."""
    within = WITHIN if within_seconds is None else span_of("--within-seconds", within_seconds)
    with reached(common) as connection:
        scaling = run_inline(connection.inline().autoscale(queue, within=within, capacity=capacity))
    if common.json:
        write_json(shown(scaling))
        return
    load, advice = scaling.load, scaling.advice
    takes = advice.seconds_per_task
    tables.write_field("workers", Cell(f"{advice.workers} suggested, {load.workers} there"))
    tables.write_field("tasks", Cell(f"{load.ready:,} ready, {load.executing:,} executing"))
    tables.write_field("oldest", Cell(f"ready for {brief(load.oldest_age)}"))
    tables.write_field(
        "backlog",
        Cell(
            "not known: no task has ended within a minute"
            if takes is None
            else f"{advice.backlog_seconds or 0:,.1f} s of work, at {brief(round(takes * SECOND))} a task"
        ),
    )
    tables.write_field("capacity", Cell(f"{advice.capacity:g} tasks at once per worker"))
