"""`autoscale`: how many workers there should be."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from fairlead.cli import tables
from fairlead.cli.moments import brief, check_seconds
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, reached
from fairlead.cli.output import Cell, write_json
from fairlead.core.identity import check_name
from fairlead.core.instant import SECOND, span
from fairlead.core.scaling import WITHIN
from fairlead.engine.inline import run_inline
from fairlead.wire.scaling import autoscale as shown


def autoscale(
    *,
    queue: Annotated[str | None, Parameter(help="The queue that the workers serve; all if not said.")] = None,
    within_seconds: Annotated[
        float | None, Parameter(help="How soon what waits should be worked off; 60 if not said.", metavar="S")
    ] = None,
    capacity: Annotated[
        int | None, Parameter(help="Tasks that a worker runs at once; as those that there are.", metavar="N")
    ] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Show how much work waits, and suggest how many workers there should be."""
    seconds = check_seconds("--within-seconds", within_seconds)
    with reached(common) as connection:
        scaling = run_inline(
            connection.inline().autoscale(
                None if queue is None else check_name("queue", queue),
                within=WITHIN if seconds is None else span(seconds),
                capacity=capacity,
            )
        )
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
