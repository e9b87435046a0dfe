"""`cancel`, `prioritize`, `replay` and `discard`: what is done to tasks that are there; and `dlq` for dead letters."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Annotated, Any

from cyclopts import App, Parameter

from fairlead.admin.dead_letters.api import groups_shown
from fairlead.admin.facade import Facade
from fairlead.cli import task_json
from fairlead.cli.commands import show as looking
from fairlead.cli.commands.operations import BY_QUERY, ByQueryOptions, QueryOption, operate
from fairlead.cli.options import COMMON_WITH_STORE, PLAIN, CommonWithStore, SharedWithStore, reached
from fairlead.cli.output import Cell, Column, complain, write, write_json, write_styled, write_table
from fairlead.cli.times import ago
from fairlead.core.dead_letters import Groups
from fairlead.core.errors import FairleadError, StoreError
from fairlead.core.identity import TaskId, parse_task_id
from fairlead.core.instant import Instant
from fairlead.core.operation import Action
from fairlead.core.query.parser import parse_query
from fairlead.core.query.query import EVERYTHING, dead_letters_of
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


dlq = App(
    name="dlq",
    default_parameter=PLAIN,
    group_commands="Dead letters",
    help="""List, group, replay and discard dead letters: failed tasks that have no retries left.

    Here, a query that names no state matches dead letters only.""",
)


def list_dead_letters(
    *,
    query: QueryOption = None,
    limit: looking.Limit = 50,
    cursor: looking.Cursor = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """List dead letters, the newest first, with their errors; with `--json`, one task per line."""
    sought = dead_letters_of(parse_query(query or ""))
    with reached(common) as connection:
        engine = connection.inline()
        page = looking.gather(engine, sought, limit=limit, after=cursor, parameters=common.json)
        now = engine.clock.now()
        if common.json:
            for task in page.tasks:
                write_json(task_json.listed(task, engine))
            return
    if not page.tasks:
        write("no dead letters match" if query else "no dead letters")
        return
    columns = [Column("ID"), Column("TYPE", cut=True), Column("QUEUE", cut=True, optional=True)]
    columns += [Column("TRIES", right=True), Column("ENDED", right=True), Column("ERROR", cut=True)]
    write_table(columns, [_row(task, now) for task in page.tasks])
    if page.cursor is not None:
        write(f"there are more: --cursor {page.cursor}")


def group_dead_letters(*, query: QueryOption = None, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Count dead letters by type and by error: errors that differ only in ids, numbers and the like are one.

    A type with as many as the setting `dead_letter_alert`, or its own in `dead_letter_alerts`, is marked.
    """
    sought = EVERYTHING if query is None else parse_query(query)
    with reached(common) as connection:
        engine = connection.inline()
        found, now = run_inline(engine.dead_letters.groups(sought)), engine.clock.now()
    if common.json:
        write_json(groups_shown(found))
    elif not found.groups:
        write("no dead letters match" if query else "no dead letters")
    else:
        _write_groups(found, now)


def replay_dead_letters(
    *ids: Ids,
    priority: PriorityOption = None,
    keep_retries: KeepRetries = False,
    options: ByQueryOptions = BY_QUERY,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> int:
    """Replay (retry) dead letters: queue them again, by their ids or by a query.

    With a query it is an operation: this command, or any running worker or server, carries it out; Ctrl-C pauses it.
    """
    if not options.check(ids):
        return replay(*ids, priority=priority, keep_retries=keep_retries, common=common)
    return operate(
        Action.REPLAY,
        options,
        common,
        narrowed=dead_letters_of,
        priority=None if priority is None else Priority.parse(priority),
        reset_retries=not keep_retries,
    )


def discard_dead_letters(
    *ids: Ids, options: ByQueryOptions = BY_QUERY, common: CommonWithStore = COMMON_WITH_STORE
) -> int:
    """Delete dead letters for good, by their ids or by a query.

    With a query it is an operation: this command, or any running worker or server, carries it out; Ctrl-C pauses it.
    """
    if not options.check(ids):
        return discard(*ids, common=common)
    return operate(Action.DISCARD, options, common, narrowed=dead_letters_of)


def show_dead_letter(
    task_id: Annotated[str, Parameter(name="ID", help="Id of the task.")],
    /,
    *,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Show a dead letter: its attempts, error, traceback and parameters."""
    looking.show(task_id, common=common)


def _row(task: Task, now: Instant) -> list[Cell | str]:
    failure, ended = task.status.failure, task.status.ended_at
    return [
        task.id,
        task.spec.type,
        task.spec.queue,
        str(task.status.attempts),
        "-" if ended is None else ago(ended, now),
        Cell("" if failure is None else f"{failure.type}: {failure.message}", "red"),
    ]


def _write_groups(found: Groups, now: Instant) -> None:
    for each in found.types:
        over = f", at least the {each.alert_at:,} from which on to alert" if each.alert else ""
        write_styled([Cell(f"{each.count:,} {each.type}{over}", "bold red" if each.alert else "")])
    if not found.complete:
        write("there are more; these are the newest")
    write()
    columns = [Column("COUNT", right=True), Column("TYPE", cut=True), Column("FINGERPRINT")]
    columns += [Column("FIRST", right=True, optional=True), Column("LAST", right=True), Column("ERROR", cut=True)]
    columns += [Column("EXAMPLE", optional=True)]
    rows: list[list[Cell | str]] = [
        [
            f"{group.count:,}",
            group.type,
            group.fingerprint,
            ago(group.first_seen, now),
            ago(group.last_seen, now),
            Cell(f"{group.error}: {group.pattern}", "red"),
            group.example,
        ]
        for group in found.groups
    ]
    write_table(columns, rows)


for _name, _command in {
    "list": list_dead_letters,
    "show": show_dead_letter,
    "groups": group_dead_letters,
    "replay": replay_dead_letters,
    "discard": discard_dead_letters,
}.items():
    # By its place, as the program has its own commands: only so does it know its name in the reference.
    dlq.command(f"{__name__}:{_command.__name__}", name=_name)
    # Its first line of help is known only when it is loaded.
    dlq[_name]
