"""How the journal is searched: a filter becomes conditions with their values written out.

The values are in the text, not beside it, because the best plan depends on them: a rare type is found by its index, a
common one by walking from the newest task.
"""

from __future__ import annotations

import json

from msgspec import Struct
from psycopg import sql

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.task import State
from fairlead.storage.journal.statements import Statements
from fairlead.storage.postgres.rows import CODES
from fairlead.storage.postgres.statements import Statement
from fairlead.storage.values import Filter


class Search(Struct, frozen=True, kw_only=True):
    """What only a journal can be asked for, beyond a filter; an empty field asks for nothing in particular."""

    matching: Filter = Filter()
    ran_by: str | None = None
    """The worker that runs the task, or ran it last."""
    error: str | None = None
    """Words that all are in what went wrong last, in any case and order."""
    parameters: bytes | None = None
    """A JSON object that the task's parameters contain."""
    ended_from: Instant | None = None
    ended_before: Instant | None = None


def searching(
    statements: Statements, search: Search, limit: int, newest_first: bool, after: TaskId | None
) -> Statement:
    """The statement that finds one page."""
    order, beyond = ("DESC", "<") if newest_first else ("ASC", ">")
    conditions = _of_filter(search.matching) + _of_search(search)
    # The side that the order is taken from is the one whose index can be walked; both have the same ids.
    side = "s" if any(condition.startswith("s.") for condition in conditions) or not conditions else "t"
    if after is not None:
        # Said of both: the planner knows that both ids are equal, but not what is beyond which.
        conditions += [f"{table}.id {beyond} {_text(after)}::uuid" for table in ("s", "t")]
    text = statements.text(
        "read.find", side=side, order=order, limit=str(int(limit)), conditions=" AND ".join(conditions) or "true"
    )
    return Statement(text, prepared=False)


def _of_filter(matching: Filter) -> list[str]:
    conditions: list[str] = []
    states = matching.states
    if matching.worker is not None:
        # Only an executing task has a holder.
        states = frozenset({State.EXECUTING}) & (states or {State.EXECUTING})
        conditions.append(f"s.worker = {_text(matching.worker)}" if states else "false")
    if len(states) == 1:
        conditions.append(f"s.state = {CODES[next(iter(states))]}")
    elif states:
        conditions.append(f"s.state IN ({', '.join(str(CODES[state]) for state in sorted(states))})")
    if matching.priority is not None:
        conditions.append(f"s.priority = {int(matching.priority)}")
    if matching.queue is not None:
        conditions.append(f"t.queue = {_text(matching.queue)}")
    if matching.type is not None:
        conditions.append(f"t.type = {_text(matching.type)}")
    if matching.tag is not None:
        conditions.append(f"t.tags @> {_text(json.dumps([matching.tag]))}::jsonb")
    if matching.created_from is not None:
        conditions.append(f"t.created_at >= {int(matching.created_from)}")
    if matching.created_before is not None:
        conditions.append(f"t.created_at < {int(matching.created_before)}")
    return conditions


def _of_search(search: Search) -> list[str]:
    conditions: list[str] = []
    if search.ran_by is not None:
        conditions.append(f"s.worker = {_text(search.ran_by)}")
    if search.error is not None:
        words = _text(search.error.replace("\0", ""))
        conditions.append(f"s.words @@ plainto_tsquery('simple', {words})")
    if search.parameters is not None:
        conditions.append(f"t.parameters @> {_text(search.parameters.decode())}::jsonb")
    if search.ended_from is not None:
        conditions.append(f"s.ended_at >= {int(search.ended_from)}")
    if search.ended_before is not None:
        conditions.append(f"s.ended_at < {int(search.ended_before)}")
    return conditions


def _text(word: str) -> str:
    return sql.Literal(word.replace("\0", "")).as_string(None)
