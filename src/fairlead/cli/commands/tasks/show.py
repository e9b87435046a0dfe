"""`show`, `list` and `stats`: how tasks and queues stand."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter

from fairlead.admin.facade import Facade
from fairlead.admin.facade import gather as gather_page
from fairlead.admin.stats import standing
from fairlead.cli import tables, task_json
from fairlead.cli.commands.tasks.bulk_options import QueryOption
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, reached, whole, words
from fairlead.cli.output import write, write_json
from fairlead.cli.times import parse
from fairlead.core.errors import InvalidTask
from fairlead.core.identity import WorkerId, parse_task_id
from fairlead.core.query.parser import parse_query
from fairlead.core.query.query import Query
from fairlead.core.task import Priority, State
from fairlead.engine.runtime.inline import run_inline
from fairlead.engine.search import Found
from fairlead.storage.values import Filter

MOST = 10_000


def show(
    task_id: Annotated[str, Parameter(name="ID", help="Id of the task.")],
    /,
    *,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Show one task: its state, times, parameters, result, error and history."""
    wanted = parse_task_id(task_id)
    with reached(common) as connection:
        engine = connection.inline()
        task = run_inline(engine.get(wanted))
        if common.json:
            write_json(task_json.whole(task, engine))
        else:
            tables.write_task(task, engine.clock.now())


Limit: TypeAlias = Annotated[
    int, Parameter(converter=whole, help=f"How many at most, up to {MOST:,}; 50 by default.", metavar="N")
]
Cursor: TypeAlias = Annotated[
    str | None, Parameter(help="Continue after this task: the last one of the previous page.", metavar="ID")
]


def list_tasks(
    *,
    query: QueryOption = None,
    state: Annotated[str | None, Parameter(help="Only those in these states.", metavar="STATE,…")] = None,
    queue: Annotated[str | None, Parameter(help="Only those of this queue.", metavar="NAME")] = None,
    task_type: Annotated[str | None, Parameter(name="--type", help="Only those of this type.", metavar="NAME")] = None,
    priority: Annotated[str | None, Parameter(help="Only those of this priority.", metavar="WORD")] = None,
    worker: Annotated[str | None, Parameter(help="Only those that this worker runs.", metavar="ID")] = None,
    tag: Annotated[str | None, Parameter(help="Only those with this tag.", metavar="NAME")] = None,
    created_after: Annotated[
        str | None,
        Parameter(
            help="Only those submitted at this moment or later: 2026-11-15T08:00Z, or -1h, -30m, -7d.",
            metavar="MOMENT",
            allow_leading_hyphen=True,
        ),
    ] = None,
    created_before: Annotated[
        str | None,
        Parameter(help="Only those submitted before this moment.", metavar="MOMENT", allow_leading_hyphen=True),
    ] = None,
    oldest_first: Annotated[bool, Parameter(help="Begin with the oldest instead of the newest.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """List tasks, the newest first.

    With `--json`, one task per line, which `fairlead submit --from-file` takes. If there are as many as `--limit`,
    there may be more: go on with `--cursor` and the last id.
    """
    sought = parse_query(query or "")
    with reached(common) as connection:
        engine = connection.inline()
        now = engine.clock.now()
        matching = Filter(
            states=frozenset(_state(word) for word in words(state)),
            queue=queue,
            type=task_type,
            priority=None if priority is None else Priority.parse(priority),
            worker=None if worker is None else WorkerId(worker),
            tag=tag,
            created_from=None if created_after is None else parse("--created-after", created_after, now),
            created_before=None if created_before is None else parse("--created-before", created_before, now),
        )
        page = gather(
            engine, sought, matching, limit=limit, after=cursor, newest_first=not oldest_first, parameters=common.json
        )
    if common.json:
        for task in page.tasks:
            write_json(task_json.listed(task, engine))
        return
    if not page.tasks:
        write("no task matches" if sought.terms or matching != Filter() or cursor else "no tasks yet")
        return
    tables.write_tasks(page.tasks, now)
    if page.cursor is not None:
        write(f"there are more: --cursor {page.cursor}")


def gather(
    engine: Facade,
    query: Query,
    matching: Filter | None = None,
    *,
    limit: int,
    after: str | None,
    newest_first: bool = True,
    parameters: bool = False,
) -> Found:
    """A whole page of what a query means, however many tasks must be looked at."""
    if not 1 <= limit <= MOST:
        raise InvalidTask("limit", f"--limit {limit} is out of range; use 1 to {MOST:,}")
    place = None if after is None else parse_task_id(after)
    return run_inline(
        gather_page(engine, query, matching, limit=limit, after=place, newest_first=newest_first, parameters=parameters)
    )


def stats(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Show how many tasks are in each state, and how long the oldest of each queue and priority waits."""
    with reached(common) as connection:
        engine = connection.inline()
        now = engine.clock.now()
        stood = run_inline(engine.stats())
    if common.json:
        write_json(standing(stood))
    else:
        tables.write_stats(stood, now)


def _state(word: str) -> State:
    try:
        return State(word)
    except ValueError:
        valid = ", ".join(State)
        raise InvalidTask("state", f"state {word!r} is unknown; use one of {valid}") from None
