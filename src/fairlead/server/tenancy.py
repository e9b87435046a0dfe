"""Whose tasks a caller may submit, see and change: those of its own tenant, if its key is bound to one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from fairlead.core.errors import InvalidTask, TaskNotFound
from fairlead.core.identity import TaskId, parse_task_id
from fairlead.core.submission import Submission
from fairlead.core.task import Task
from fairlead.engine.depending import unknown_parent
from fairlead.server.endpoint import Call
from fairlead.server.hub import Hub
from fairlead.server.principal import Principal
from fairlead.server.refusals import Refusal, refusal_of

_SHOWN: Final = 64


def tenant_of(principal: Principal, named: str | None) -> str | None:
    """The tenant of a task that a caller submits: the one it names, else its own; refused if that is another's."""
    own = principal.tenant
    if own is None or named == own:
        return named
    if named is None:
        return own
    raise Refusal(
        "forbidden",
        f"tenant {named[:_SHOWN]!r} is not the one that this key is for; leave it out, or use a key of that tenant",
        field="tenant",
        value=named[:_SHOWN],
        remedy="leave it out, or use a key of that tenant",
    )


def may_see(principal: Principal, task: Task) -> bool:
    """Whether a task is there for a caller."""
    return principal.tenant is None or task.spec.tenant == principal.tenant


def check_holder(principal: Principal, task: Task) -> Task:
    """The task that holds the idempotency key of a submit, which must be there for the caller."""
    if may_see(principal, task):
        return task
    raise Refusal(
        "forbidden",
        "the idempotency_key is taken in this queue by another tenant; choose another key, or a queue of your own",
        field="idempotency_key",
        remedy="choose another key, or a queue of your own",
    )


async def may_await(
    hub: Hub, principal: Principal, wishes: Sequence[Submission | Refusal]
) -> list[Submission | Refusal]:
    """The wishes; one that names in `after` what is not there for the caller is refused, as if it were not stored."""
    if principal.tenant is None:
        return list(wishes)
    named = {task_id for wish in wishes if isinstance(wish, Submission) for task_id in _named(wish)}
    tasks = await hub.engine.store.get(sorted(named)) if named else []
    hidden = {task.id for task in tasks if task is not None and not may_see(principal, task)}
    return [
        refusal_of(unknown_parent(min(found)))
        if isinstance(wish, Submission) and (found := hidden.intersection(_named(wish)))
        else wish
        for wish in wishes
    ]


def _named(wish: Submission) -> Iterator[TaskId]:
    """The ids that a wish names; what is none is for the engine to name."""
    for one in wish.after:
        with contextlib.suppress(InvalidTask):
            if not isinstance(one, int):
                yield parse_task_id(one)


def task_id_of(call: Call[Any, Any]) -> TaskId:
    """The id in the path; what cannot be one is the id of no task."""
    text = call.path["task_id"]
    try:
        return parse_task_id(text)
    except InvalidTask:
        raise TaskNotFound(repr(text[:_SHOWN])) from None


async def seen_task_id(call: Call[Any, Any]) -> TaskId:
    """The id in the path, of a task that is there for the caller as far as its key is bound to a tenant."""
    task_id = task_id_of(call)
    if call.principal.tenant is not None:
        check_seen(call, await call.hub.engine.get(task_id))
    return task_id


def check_seen(call: Call[Any, Any], task: Task) -> Task:
    """The task, which must be there for the caller: of another tenant's it learns nothing, not even that it exists."""
    if not may_see(call.principal, task):
        raise TaskNotFound(task.id)
    return task
