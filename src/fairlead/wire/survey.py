"""All that a person watches, as `fairlead top --once --json` writes it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from fairlead.core.task import Task
from fairlead.engine.survey import Survey
from fairlead.wire.fleet import WorkerShown, worker_shown
from fairlead.wire.moments import iso
from fairlead.wire.shown import TaskBrief
from fairlead.wire.stats import Standing, standing


class SurveyShown(Struct, kw_only=True):
    """How everything stands."""

    at: str
    stats: Standing
    workers: list[WorkerShown]
    running_longest: list[TaskBrief]
    """At most 20, the longest first."""
    newest_errors: list[TaskBrief]
    """Failed tasks and dead letters, at most 20, the latest first."""


def survey_shown(survey: Survey, show: Callable[[Task], TaskBrief]) -> SurveyShown:
    """A survey in the shapes of the API."""
    return SurveyShown(
        at=iso(survey.at),
        stats=standing(survey.stats),
        workers=[worker_shown(worker) for worker in survey.workers],
        running_longest=[show(task) for task in survey.running],
        newest_errors=[show(task) for task in survey.failed],
    )
