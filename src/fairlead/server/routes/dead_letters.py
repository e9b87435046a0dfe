"""The dead letters: tasks whose retries are used up. They can be looked at, replayed and discarded."""

from __future__ import annotations

from fairlead.admin.dead_letters import api
from fairlead.admin.dead_letters.api import DeadLetterPage, DeadLetterQuery, GroupsQuery, ReplayRequest, groups_shown
from fairlead.core.errors import WrongState
from fairlead.core.identity import check_name
from fairlead.core.query.parser import parse_query
from fairlead.core.query.query import EVERYTHING
from fairlead.core.task import Priority, State
from fairlead.server.endpoint import Answer, Call, serve, task_id_of
from fairlead.server.routes.pagination import page
from fairlead.storage.values import Filter
from fairlead.wire.endpoint import Empty
from fairlead.wire.task_shown import brief

REPLAYABLE = (State.DEAD_LETTER, State.FAILED, State.CANCELLED)


async def list_dead_letters(call: Call[DeadLetterQuery, None]) -> Answer:
    """List the dead letters, with their attempts, their last error and the reason, in pages like those of all tasks."""
    query, matching = call.query, _filter(call.query)
    found = await page(call, matching, query, query.q)
    sought = EVERYTHING if query.q is None else parse_query(query.q)
    total = await call.view.engine.count_dead_letters(sought, within=matching)
    return Answer(DeadLetterPage(tasks=found.tasks, next_cursor=found.next_cursor, total_count=total))


async def groups(call: Call[GroupsQuery, None]) -> Answer:
    """Count the dead letters by type and by error: errors that differ only in ids, numbers and the like are one.

    A type that has reached its alert threshold, the setting `dead_letter_alert` or `dead_letter_alerts`, is marked. The
    `fingerprint` of a group finds its tasks: `q=fingerprint:…`.
    """
    sought = EVERYTHING if call.query.q is None else parse_query(call.query.q)
    return Answer(groups_shown(await call.view.engine.groups(sought, within=_filter(call.query))))


def _filter(query: DeadLetterQuery | GroupsQuery) -> Filter:
    return Filter(
        states=frozenset({State.DEAD_LETTER}),
        queue=None if query.queue is None else check_name("queue", query.queue),
        type=None if query.task_type is None else check_name("task_type", query.task_type),
    )


async def replay(call: Call[Empty, ReplayRequest]) -> Answer:
    """Queue a dead letter again; also a task that failed or was cancelled. Its crashes are forgotten."""
    view, request = call.view, call.body
    priority = None if request.new_priority is None else Priority.parse(request.new_priority)
    task = await view.engine.replay(task_id_of(call), reset_retries=request.reset_retry_count, priority=priority)
    return Answer(brief(task, (await view.tables())(task.spec.queue), view.now))


async def discard(call: Call[Empty, None]) -> Answer:
    """Remove a dead letter for good, or a task that failed or was cancelled; the answer is how it stood."""
    view = call.view
    task = await view.engine.get(task_id_of(call))
    if task.state not in REPLAYABLE:
        raise WrongState(task.id, task.state, "discard", REPLAYABLE)
    table = (await view.tables())(task.spec.queue)
    return Answer(brief(await view.engine.discard(task.id), table, view.now))


ENDPOINTS = (
    serve(api.LIST_DEAD_LETTERS, list_dead_letters),
    serve(api.GROUPS, groups),
    serve(api.REPLAY, replay),
    serve(api.DISCARD, discard),
)
