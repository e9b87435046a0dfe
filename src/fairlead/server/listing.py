"""Lists of tasks in pages: what they can be narrowed by, and how one page leads to the next."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

from fairlead.core.identity import TaskId, WorkerId, check_name
from fairlead.core.query import EVERYTHING, Query, term
from fairlead.core.query_text import parse_query
from fairlead.core.task import Priority, State
from fairlead.server.endpoint import Call
from fairlead.server.refusals import Refusal
from fairlead.server.tenancy import may_see
from fairlead.storage.values import Filter
from fairlead.wire.cursors import Order, cursor_after, place_of
from fairlead.wire.moments import instant_of
from fairlead.wire.operations import QueryText
from fairlead.wire.shown import TaskBrief, brief
from fairlead.wire.tasks import Moment, Name, PriorityWord

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=1_000)]
States: TypeAlias = Annotated[
    str, Meta(extra_json_schema={"pattern": f"^({'|'.join(State)})(,({'|'.join(State)})){{0,20}}$"})
]
WorkerName: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": "^[!-~]{1,200}$"})]


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of a list."""

    limit: Limit = 50
    """How many at most."""
    order: Order = "newest"
    """Which come first."""
    cursor: str | None = None
    """The `next_cursor` of the page before, which must have been asked for in the same order."""


class ListQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks, and which page of them."""

    status: States | None = None
    """Only those with this status; several are separated by commas."""
    queue: Name | None = None
    """Only those of this queue."""
    task_type: Name | None = None
    """Only those of this type."""
    priority: PriorityWord | None = None
    """Only those of this priority."""
    worker: WorkerName | None = None
    """Only those that this worker executes."""
    tag: Name | None = None
    """Only those with this tag."""
    created_from: Moment | None = None
    """Only those submitted at this moment or later."""
    created_before: Moment | None = None
    """Only those submitted before this moment."""
    q: QueryText | None = None
    """Only those that this query means, such as `state:dead_letter error:Timeout`."""

    def filter(self) -> Filter:
        """The tasks asked for."""
        return Filter(
            states=frozenset(_state(word) for word in self.status.split(","))
            if self.status is not None
            else frozenset(),
            queue=_name("queue", self.queue),
            type=_name("task_type", self.task_type),
            priority=None if self.priority is None else Priority.parse(self.priority),
            worker=None if self.worker is None else _worker(self.worker),
            tag=_name("tag", self.tag),
            created_from=None if self.created_from is None else instant_of(self.created_from),
            created_before=None if self.created_before is None else instant_of(self.created_before),
        )


class TaskPage(Struct, frozen=True, kw_only=True):
    """One page of a list."""

    tasks: list[TaskBrief]
    next_cursor: str | None
    """What leads to the next page; null on the last."""


async def page(call: Call[Any, Any], matching: Filter, query: PageQuery, q: str | None = None) -> TaskPage:
    """The page that is asked for, of what is there for the caller."""
    hub = call.hub
    if q is not None:
        return await _searched(call, matching, query, own_query(call, q))
    # One more than wanted tells whether there is a next page.
    found = await hub.engine.find(
        matching,
        limit=query.limit + 1,
        newest_first=query.order == "newest",
        after=None if query.cursor is None else _place(query.cursor, query.order),
    )
    shown = found[: query.limit]
    now, table_of = hub.engine.clock.now(), await hub.tables()
    return TaskPage(
        tasks=[brief(task, table_of(task.spec.queue), now) for task in shown if may_see(call.principal, task)],
        next_cursor=cursor_after(shown[-1].id, query.order) if len(found) > query.limit else None,
    )


async def _searched(call: Call[Any, Any], matching: Filter, query: PageQuery, sought: Query) -> TaskPage:
    """The same with a query. It looks at a bounded number of tasks, so it may not be full and still not be the last."""
    hub = call.hub
    found = await hub.engine.search(
        sought,
        within=matching,
        limit=query.limit,
        newest_first=query.order == "newest",
        after=None if query.cursor is None else _place(query.cursor, query.order),
    )
    now, table_of = hub.engine.clock.now(), await hub.tables()
    return TaskPage(
        tasks=[brief(task, table_of(task.spec.queue), now) for task in found.tasks],
        next_cursor=None if found.cursor is None else cursor_after(found.cursor, query.order),
    )


def own_query(call: Call[Any, Any], q: str | None) -> Query:
    """What a query means for the caller: of the tasks that are there for it."""
    sought = EVERYTHING if q is None else parse_query(q)
    tenant = call.principal.tenant
    return sought if tenant is None else sought.and_(term("tenant", tenant))


def _place(cursor: str, order: Order) -> TaskId:
    place = place_of(cursor, order)
    if place is not None:
        return place
    remedy = "use next_cursor of the page before, in the same order, or leave it out"
    raise Refusal(
        "invalid-value",
        f"cursor {cursor[:64]!r} leads to no page in this order; {remedy}",
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
