"""The names in paths: what cannot be one is the name of nothing."""

from __future__ import annotations

from typing import Any, Final

from fairlead.core.errors import InvalidTask, TaskNotFound
from fairlead.core.identity import TaskId, check_name, parse_task_id
from fairlead.server.endpoint import Call
from fairlead.server.http.problems import Refusal

_SHOWN: Final = 64


def task_id_of(call: Call[Any, Any]) -> TaskId:
    """The id in the path; what cannot be one is the id of no task."""
    text = call.path["task_id"]
    try:
        return parse_task_id(text)
    except InvalidTask:
        raise TaskNotFound(repr(text[:_SHOWN])) from None


def named(call: Call[Any, Any], what: str) -> str:
    """The name in the path; what cannot be one is the name of nothing."""
    name = call.path[what]
    try:
        return check_name(what, name)
    except InvalidTask:
        raise Refusal(
            "not-found",
            f"{what} {name[:_SHOWN]!r} not found: that is not a valid name; check the name",
            field=what,
            remedy="check the name",
        ) from None
