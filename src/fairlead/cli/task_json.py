"""Tasks as `--json` writes them: in the shapes of the API, as they stand in an engine's order of service now."""

from __future__ import annotations

from fairlead.core.order import Table
from fairlead.core.task import Task
from fairlead.engine.facade import Facade
from fairlead.wire import shown
from fairlead.wire.shown import TaskBrief, TaskWhole, with_field


def brief(task: Task, engine: Facade) -> TaskBrief:
    """A task without what can be large."""
    return shown.brief(task, _table(engine), engine.clock.now())


def whole(task: Task, engine: Facade) -> TaskWhole:
    """A task with everything."""
    return shown.whole(task, _table(engine), engine.clock.now())


def _table(engine: Facade) -> Table:
    # Luck only moves the turns of a weighted order, and no wait changes those.
    (table, *_) = engine.settings.order.tables(1, lambda: 0.0)
    return table


__all__ = ["brief", "whole", "with_field"]
