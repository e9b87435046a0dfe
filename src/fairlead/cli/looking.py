"""`show`, `list` and `stats`: how tasks and queues stand."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from fairlead.cli import shapes, tables
from fairlead.cli.moments import parse
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, connected, words
from fairlead.cli.output import write, write_json
from fairlead.core.errors import InvalidTask
from fairlead.core.identity import WorkerId, parse_task_id
from fairlead.core.task import Priority, State
from fairlead.engine.inline import run_inline
from fairlead.storage.values import Filter

MOST = 10_000


def show(
    task_id: Annotated[str, Parameter(name="ID", help="Id of the task.")],
    /,
    *,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Show one task: how it stands, its times, parameters, result, error and history."""
    wanted = parse_task_id(task_id)
    with connected(common) as connection:
        engine = connection.inline()
        task = run_inline(engine.get(wanted))
        if common.json:
            write_json(shapes.whole(task))
        else:
            tables.write_task(task, engine.clock.now())


def list_tasks(
    *,
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
    limit: Annotated[int, Parameter(help=f"How many at most, up to {MOST:,}; 50 if not said.", metavar="N")] = 50,
    after: Annotated[
        str | None, Parameter(help="Go on after this task: the last one of the page before.", metavar="ID")
    ] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """List tasks, the newest first.

    With `--json`, one task per line. If there are as many as `--limit`, there may be more: `--after` the last id.
    """
    if not 1 <= limit <= MOST:
        raise InvalidTask("limit", f"--limit {limit} is out of range; use 1 to {MOST:,}")
    cursor = None if after is None else parse_task_id(after)
    with connected(common) as connection:
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
        # One more than wanted tells whether there is a next page.
        found = run_inline(engine.find(matching, limit=limit + 1, newest_first=not oldest_first, after=cursor))
    page = found[:limit]
    if common.json:
        for task in page:
            write_json(shapes.brief(task))
        return
    if not page:
        write("no task matches" if matching != Filter() or cursor else "no tasks yet")
        return
    tables.write_tasks(page, now)
    if len(found) > limit:
        write(f"there are more: --after {page[-1].id}")


def stats(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Show how many tasks are in each state, and how long the oldest of each queue and priority waits."""
    with connected(common) as connection:
        engine = connection.inline()
        now = engine.clock.now()
        standing = run_inline(engine.stats())
    if common.json:
        write_json(shapes.stats_shape(standing))
    else:
        tables.write_stats(standing, now)


def _state(word: str) -> State:
    try:
        return State(word)
    except ValueError:
        valid = ", ".join(State)
        raise InvalidTask("state", f"state {word!r} is unknown; use one of {valid}") from None
