"""How a listing is asked for: a filter becomes conditions, each state a branch with an index of its own."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from fairlead.core.identity import TaskId
from fairlead.core.task import State
from fairlead.storage.postgres.rows import CODES
from fairlead.storage.postgres.statements import Statement, Statements
from fairlead.storage.values import Filter


def listing(
    statements: Statements, matching: Filter, limit: int, newest_first: bool, after: TaskId | None
) -> tuple[Statement, list[Any]]:
    """The statement that lists what a filter admits, and its parameters."""
    order, beyond = ("DESC", "<") if newest_first else ("ASC", ">")
    parameters: list[Any] = [limit]
    conditions: list[str] = []
    for condition, value in _conditions(statements, matching):
        parameters.append(value)
        conditions.append(condition.replace("?", f"${len(parameters)}"))
    if after is not None:
        parameters.append(UUID(after))
        conditions.append(f"t.id {beyond} ${len(parameters)}::uuid")
    branches = [
        statements.text("read.branch")
        .replace("{conditions}", " AND ".join([*state, *conditions]) or "true")
        .replace("{order}", order)
        for state in _states(matching)
    ]
    text = statements.text("read.find").replace("{branches}", "\nUNION ALL\n".join(branches)).replace("{order}", order)
    return Statement(text, prepared=False), parameters


def _states(matching: Filter) -> list[list[str]]:
    """The condition on the state, one per branch; the number is written out, so that a partial index can match it."""
    states = matching.states
    if matching.worker is not None:
        # Only an executing task has a holder, and the executing ones have an index.
        states = frozenset({State.EXECUTING}) & (states or {State.EXECUTING})
        if not states:
            return [["false"]]
    return [[f"t.state = {CODES[state]}"] for state in sorted(states)] or [[]]


def _conditions(statements: Statements, matching: Filter) -> list[tuple[str, Any]]:
    """Conditions with a question mark for their one parameter."""
    found: list[tuple[str, Any]] = []
    for field, value in (("queue", matching.queue), ("type", matching.type)):
        if value is not None:
            routes = statements.text("read.routed").replace("{field}", field).strip()
            found.append((f"t.route = ANY (ARRAY({routes}))", value))
    if matching.priority is not None:
        found.append(("t.priority = ?::bigint", int(matching.priority)))
    if matching.worker is not None:
        found.append(("t.worker = ?::text", matching.worker))
    if matching.tag is not None:
        found.append(("t.tags @> ?::text::jsonb", json.dumps([matching.tag])))
    if matching.created_from is not None:
        found.append(("t.created_at >= ?::bigint", matching.created_from))
    if matching.created_before is not None:
        found.append(("t.created_at < ?::bigint", matching.created_before))
    return found
