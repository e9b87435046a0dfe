"""All that a person watches, at one moment: how the queues stand, who works, what runs long and what failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from fairlead.admin.facade import Facade
from fairlead.admin.stats import Standing, standing
from fairlead.admin.workers.api import WorkerShown, worker_shown
from fairlead.core.instant import Instant
from fairlead.core.task import State, Task
from fairlead.engine.stats import Stats
from fairlead.engine.worker_records import WorkerRecord
from fairlead.storage.values import Filter
from fairlead.wire.task_shown import TaskBrief
from fairlead.wire.times import iso

SHOWN: Final = 20
"""How many tasks of each kind are kept."""
LOOKED_AT: Final = 200
"""Of how many they are chosen. A look must stay cheap however many tasks there are, so those that have run longest are
chosen among the running tasks that were submitted first, and the newest errors among those submitted last."""


class Survey(Struct, frozen=True, kw_only=True):
    """How everything stands."""

    at: Instant
    stats: Stats
    workers: tuple[WorkerRecord, ...]
    running: tuple[Task, ...]
    """Those that have run longest, the longest first."""
    failed: tuple[Task, ...]
    """The latest that ended as failed or as a dead letter, the latest first."""


async def survey(engine: Facade) -> Survey:
    """Look at everything once."""
    running = await engine.find(Filter(states=frozenset({State.EXECUTING})), limit=LOOKED_AT, newest_first=False)
    failed = await engine.find(Filter(states=frozenset({State.FAILED, State.DEAD_LETTER})), limit=LOOKED_AT)
    return Survey(
        at=engine.clock.now(),
        stats=await engine.stats(),
        workers=tuple(await engine.workers.all()),
        running=tuple(sorted(running, key=lambda task: task.status.started_at or 0)[:SHOWN]),
        failed=tuple(sorted(failed, key=lambda task: -(task.status.ended_at or 0))[:SHOWN]),
    )


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
