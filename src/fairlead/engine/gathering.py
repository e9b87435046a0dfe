"""Whole pages, wherever the engine is that is asked."""

from __future__ import annotations

from fairlead.core.identity import TaskId
from fairlead.core.query import Query
from fairlead.core.task import Task
from fairlead.engine.facade import Facade
from fairlead.engine.searching import Found
from fairlead.storage.values import Filter


async def gather(
    engine: Facade,
    query: Query,
    within: Filter | None = None,
    *,
    limit: int,
    after: TaskId | None = None,
    newest_first: bool = True,
) -> Found:
    """A whole page of what a query means, however many tasks must be looked at; its cursor leads to the next."""
    tasks: list[Task] = []
    while True:
        rest = limit - len(tasks)
        found = await engine.search(query, within=within, limit=rest, newest_first=newest_first, after=after)
        tasks += found.tasks
        after = found.cursor
        if after is None or len(tasks) >= limit:
            return Found(tasks, after)
