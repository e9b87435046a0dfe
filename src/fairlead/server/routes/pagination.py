"""Lists of tasks in pages: what they can be narrowed by, and how one page leads to the next."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from fairlead.core.identity import TaskId, WorkerId, check_name
from fairlead.core.query.parser import parse_query
from fairlead.core.task import Priority, State, Task
from fairlead.engine.runtime.event_loop import Turn
from fairlead.engine.search import Found
from fairlead.server.caller_view import View
from fairlead.server.endpoint import Call
from fairlead.server.http.problems import Refusal
from fairlead.storage.values import Filter
from fairlead.wire.task_endpoints import ListQuery, Order, PageQuery, TaskPage, cursor_after, place_of
from fairlead.wire.task_shown import TaskListed, listed
from fairlead.wire.times import instant_of

MOST_PARAMETERS = 8 * 1024 * 1024
"""How many bytes of parameters one page tells; a page that would tell more ends early."""


def filter_of(query: ListQuery) -> Filter:
    """The tasks asked for."""
    return Filter(
        states=frozenset(_state(word) for word in query.status.split(",")) if query.status is not None else frozenset(),
        queue=_name("queue", query.queue),
        type=_name("task_type", query.task_type),
        priority=None if query.priority is None else Priority.parse(query.priority),
        worker=None if query.worker is None else _worker(query.worker),
        tag=_name("tag", query.tag),
        created_from=None if query.created_from is None else instant_of(query.created_from),
        created_before=None if query.created_before is None else instant_of(query.created_before),
    )


async def page(call: Call[Any, Any], matching: Filter, query: PageQuery, q: str | None = None) -> TaskPage:
    """The page that is asked for, of what is there for the caller.

    A search looks at a bounded number of tasks, so its page may not be full and still not be the last.
    """
    view = call.view
    place = None if query.cursor is None else _place(query.cursor, query.order)
    newest_first = query.order == "newest"
    if q is None:
        found = await view.engine.find(matching, limit=query.limit, newest_first=newest_first, after=place)
    else:
        sought = parse_query(q)
        found = await view.engine.search(
            sought, within=matching, limit=query.limit, newest_first=newest_first, after=place
        )
    if query.include_parameters:
        found = _bounded(found)
    return TaskPage(
        tasks=await _shown(view, found.tasks, parameters=query.include_parameters),
        next_cursor=None if found.cursor is None else cursor_after(found.cursor, query.order),
    )


async def _shown(view: View, tasks: Sequence[Task], *, parameters: bool) -> list[TaskListed]:
    now, table_of = view.now, await view.tables()
    turn = Turn(len(tasks))
    shown: list[TaskListed] = []
    for task in tasks:
        if turn.is_over:
            await turn.next()
        shown.append(listed(task, table_of(task.spec.queue), now, parameters=parameters))
    return shown


def _bounded(found: Found) -> Found:
    """A page cut after the task with which its parameters reach their limit."""
    sizes = itertools.accumulate(len(task.spec.parameters) for task in found.tasks)
    kept = 1 + sum(size < MOST_PARAMETERS for size in sizes)
    return Found(found.tasks[:kept], found.tasks[kept - 1].id) if kept < len(found.tasks) else found


def _place(cursor: str, order: Order) -> TaskId:
    place = place_of(cursor, order)
    if place is not None:
        return place
    remedy = "use next_cursor of the page before, in the same order, or leave it out"
    raise Refusal(
        "invalid-value",
        f"cursor {cursor[:64]!r} does not belong to this order; {remedy}",
        field="cursor",
        value=cursor[:64],
        remedy=remedy,
    )


def _state(word: str) -> State:
    try:
        return State(word)
    except ValueError:
        raise _invalid("status", word, f"use one or more of {', '.join(State)}, separated by commas") from None


def _name(field: str, name: str | None) -> str | None:
    return None if name is None else check_name(field, name)


def _worker(worker: str) -> WorkerId:
    if not (1 <= len(worker) <= 200 and worker.isascii() and worker.isprintable() and " " not in worker):
        raise _invalid("worker", worker, "use the id of a worker, as a task that it executes shows it")
    return WorkerId(worker)


def _invalid(field: str, value: str, remedy: str) -> Refusal:
    shown = value[:64]
    return Refusal("invalid-value", f"{field} {shown!r} is unknown; {remedy}", field=field, value=shown, remedy=remedy)
