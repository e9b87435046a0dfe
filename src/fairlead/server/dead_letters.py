"""The dead letters: tasks whose retries are used up. They can be looked at, replayed and discarded."""

from __future__ import annotations

from msgspec import Struct

from fairlead.core.errors import WrongState
from fairlead.core.identity import check_name
from fairlead.core.task import Priority, State
from fairlead.server.endpoint import Answer, Call, Empty, Endpoint
from fairlead.server.listing import PageQuery, TaskPage, own_query, page
from fairlead.server.principal import Role
from fairlead.server.tenancy import check_seen, seen_task_id, task_id_of
from fairlead.storage.values import Filter
from fairlead.wire.dead_letters import GroupsShown, groups_shown
from fairlead.wire.operations import QueryText
from fairlead.wire.shown import TaskBrief, brief
from fairlead.wire.tasks import Name, PriorityWord

REPLAYABLE = (State.DEAD_LETTER, State.FAILED, State.CANCELLED)


class DeadLetterQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters, and which page of them."""

    queue: Name | None = None
    """Only those of this queue."""
    task_type: Name | None = None
    """Only those of this type."""
    q: QueryText | None = None
    """Only those that this query means, such as `error:Timeout params.user_id:42`."""


class GroupsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters are grouped."""

    queue: Name | None = None
    """Only those of this queue."""
    task_type: Name | None = None
    """Only those of this type."""
    q: QueryText | None = None
    """Only those that this query means."""


class ReplayRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a task is queued again."""

    reset_retry_count: bool = True
    """Whether it has all its retries, and its first timeout, again."""
    new_priority: PriorityWord | None = None
    """The priority that it is queued with instead of its own."""


async def list_dead_letters(call: Call[DeadLetterQuery, None]) -> Answer:
    """List the dead letters, with their attempts, their last error and the reason, in pages like those of all tasks."""
    return Answer(await page(call, _filter(call.query), call.query, call.query.q))


async def groups(call: Call[GroupsQuery, None]) -> Answer:
    """Count the dead letters by type and by error: errors that are the same but for ids, numbers and the like are one.

    A type with as many as its alert threshold, the setting `dead_letter_alert` or `dead_letter_alerts`, says so. The
    `fingerprint` of a group finds its tasks: `q=fingerprint:…`.
    """
    sought = own_query(call, call.query.q)
    return Answer(groups_shown(await call.hub.engine.dead_letters.groups(sought, within=_filter(call.query))))


def _filter(query: DeadLetterQuery | GroupsQuery) -> Filter:
    return Filter(
        states=frozenset({State.DEAD_LETTER}),
        queue=None if query.queue is None else check_name("queue", query.queue),
        type=None if query.task_type is None else check_name("task_type", query.task_type),
    )


async def replay(call: Call[Empty, ReplayRequest]) -> Answer:
    """Queue a dead letter again; also a task that failed or was cancelled. Its crashes are forgotten."""
    hub, request = call.hub, call.body
    priority = None if request.new_priority is None else Priority.parse(request.new_priority)
    task = await hub.engine.replay(await seen_task_id(call), reset_retries=request.reset_retry_count, priority=priority)
    return Answer(brief(task, hub.engine.book.table_of(task.spec.queue), hub.engine.clock.now()))


async def discard(call: Call[Empty, None]) -> Answer:
    """Remove a dead letter for good, or a task that failed or was cancelled; the answer is how it stood."""
    hub = call.hub
    task = check_seen(call, await hub.engine.get(task_id_of(call)))
    if task.state not in REPLAYABLE:
        raise WrongState(task.id, task.state, "discard", REPLAYABLE)
    table = hub.engine.book.table_of(task.spec.queue)
    return Answer(brief(await hub.engine.discard(task.id), table, hub.engine.clock.now()))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/dlq",
        handler=list_dead_letters,
        summary="List the dead letters",
        role=Role.READ,
        query=DeadLetterQuery,
        answers={200: TaskPage},
    ),
    Endpoint(
        method="GET",
        path="/api/v1/dlq/groups",
        handler=groups,
        summary="Count the dead letters by error",
        role=Role.READ,
        query=GroupsQuery,
        answers={200: GroupsShown},
    ),
    Endpoint(
        method="POST",
        path="/api/v1/dlq/{task_id}/replay",
        handler=replay,
        summary="Queue a dead letter again",
        role=Role.SUBMIT,
        body=ReplayRequest,
        body_optional=True,
        answers={200: TaskBrief},
        problems=(404, 409),
    ),
    Endpoint(
        method="DELETE",
        path="/api/v1/dlq/{task_id}",
        handler=discard,
        summary="Discard a dead letter",
        role=Role.ADMIN,
        answers={200: TaskBrief},
        problems=(404, 409),
    ),
)
