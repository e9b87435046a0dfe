"""Tasks as `--json` writes them: in the shapes of the API, as they stand in an engine's order of service now."""

from __future__ import annotations

from fairlead.admin.facade import Facade
from fairlead.core.queues.order import Table
from fairlead.core.task import Task
from fairlead.wire import task_shown
from fairlead.wire.task_shown import TaskBrief, TaskListed, TaskWhole, with_field


def brief(task: Task, engine: Facade) -> TaskBrief:
    """A task without what can be large."""
    return task_shown.brief(task, _table(engine), engine.clock.now())


def listed(task: Task, engine: Facade) -> TaskListed:
    """A task with all that a submit takes."""
    return task_shown.listed(task, _table(engine), engine.clock.now())


def whole(task: Task, engine: Facade) -> TaskWhole:
    """A task with everything."""
    return task_shown.whole(task, _table(engine), engine.clock.now())


def _table(engine: Facade) -> Table:
    # Luck only moves the turns of a weighted order, and no wait changes those.
    (table, *_) = engine.settings.order.tables(1, lambda: 0.0)
    return table


__all__ = ["brief", "listed", "whole", "with_field"]
