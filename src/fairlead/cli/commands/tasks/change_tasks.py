"""`cancel`, `prioritize`, `replay` and `discard`: what is done to tasks that are there."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Annotated, Any

from cyclopts import Parameter

from fairlead.admin.facade import Facade
from fairlead.cli import task_json
from fairlead.cli.commands.tasks.bulk_options import BY_QUERY, ByQueryOptions, operate
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, SharedWithStore, reached
from fairlead.cli.output import complain, write, write_json
from fairlead.core.errors import FairleadError, StoreError
from fairlead.core.identity import TaskId, parse_task_id
from fairlead.core.operation import Action
from fairlead.core.task import Priority, Task
from fairlead.engine.runtime.inline import run_inline

Ids = Annotated[str, Parameter(name="ID", help="Ids of one or more tasks.")]
Request = Callable[[Facade, TaskId], Coroutine[Any, Any, Task]]


PriorityOption = Annotated[
    str | None, Parameter(help="Queue them with this priority instead of their own.", metavar="WORD")
]
KeepRetries = Annotated[bool, Parameter(help="Do not reset their retries.")]


def cancel(*ids: Ids, options: ByQueryOptions = BY_QUERY, common: CommonWithStore = COMMON_WITH_STORE) -> int:
    """Cancel tasks: at once if they wait; if they run, their worker is asked to stop them.

    By their ids, or all that match a query; only tasks that have not ended. With a query it is an operation: this
    command, or any running worker or server, carries it out; Ctrl-C pauses it.
    """
    if options.check(ids):
        return operate(Action.CANCEL, options, common)

    def said(task: Task) -> str:
        return f"{task.id} {'is asked to stop' if not task.state.ended else task.state}"

    return _each(ids, common, lambda engine, task_id: engine.cancel(task_id), said)


def prioritize(
    priority: Annotated[str, Parameter(help="critical, high, medium or low.", metavar="PRIORITY")],
    *ids: Ids,
    options: ByQueryOptions = BY_QUERY,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> int:
    """Change the priority of waiting tasks, by their ids or by a query; they keep their waiting time.

    It is an operation: this command, or any running worker or server, carries it out; Ctrl-C pauses it.
    """
    wanted = Priority.parse(priority)
    if not options.check(ids):
        options = replace(options, query=f"id:{','.join(map(parse_task_id, ids))}", yes=True)
    return operate(Action.PRIORITIZE, options, common, priority=wanted)


def replay(
    *ids: Ids,
    priority: PriorityOption = None,
    keep_retries: KeepRetries = False,
    options: ByQueryOptions = BY_QUERY,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> int:
    """Replay (retry) ended tasks: queue dead letters, failed and cancelled tasks again.

    By their ids, or all that match a query. With a query it is an operation: this command, or any running worker or
    server, carries it out; Ctrl-C pauses it.
    """
    wanted = None if priority is None else Priority.parse(priority)
    if options.check(ids):
        return operate(Action.REPLAY, options, common, priority=wanted, reset_retries=not keep_retries)
    return _each(
        ids,
        common,
        lambda engine, task_id: engine.replay(task_id, reset_retries=not keep_retries, priority=wanted),
        lambda task: f"{task.id} {task.state}",
    )


def discard(*ids: Ids, options: ByQueryOptions = BY_QUERY, common: CommonWithStore = COMMON_WITH_STORE) -> int:
    """Delete ended tasks for good.

    By their ids, or all that match a query. With a query it is an operation: this command, or any running worker or
    server, carries it out; Ctrl-C pauses it.
    """
    if options.check(ids):
        return operate(Action.DISCARD, options, common)
    return _each(ids, common, lambda engine, task_id: engine.discard(task_id), lambda task: f"{task.id} discarded")


def _each(ids: tuple[str, ...], common: SharedWithStore, request: Request, said: Callable[[Task], str]) -> int:
    """Ask the same of each task; a task that refuses does not keep the others from it."""
    # One that cannot be an id is a mistake in the command: nothing is done then.
    wanted = [parse_task_id(text) for text in ids]
    done: list[Task] = []
    refused: dict[TaskId, str] = {}
    with reached(common) as connection:
        engine = connection.inline()
        for task_id in dict.fromkeys(wanted):
            try:
                task = run_inline(request(engine, task_id))
            except StoreError:
                raise
            except FairleadError as error:
                refused[task_id] = str(error)
                if not common.json:
                    complain(str(error), as_json=False)
            else:
                done.append(task)
                if not common.json:
                    write(said(task))
    if common.json:
        write_json(
            {
                "tasks": [task_json.brief(task, engine) for task in done],
                "errors": [{"task_id": task_id, "error": reason} for task_id, reason in refused.items()],
            }
        )
    return 1 if refused else 0
