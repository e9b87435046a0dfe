"""Dead letters, grouped: how they are shown."""

from __future__ import annotations

from msgspec import Struct

from fairlead.core.identity import TaskId
from fairlead.engine.dead_letters import ErrorGroup, Groups, TypeCount
from fairlead.wire.moments import iso, parse_iso


class TypeShown(Struct, kw_only=True):
    """How many dead letters of one type there are."""

    task_type: str
    count: int
    alert_at: int | None
    """From how many on they are reason for an alert; null for never."""
    alert: bool
    """Whether there are so many."""


class GroupShown(Struct, kw_only=True):
    """Dead letters of one type whose errors are the same but for ids, numbers, quoted values, paths and moments."""

    task_type: str
    fingerprint: str
    """What the group is called in a query: `fingerprint:…`."""
    error_type: str
    pattern: str
    """The error's message, with what varies named instead."""
    count: int
    first_seen: str
    """When the first of them became a dead letter."""
    last_seen: str
    task_id: str
    """The latest of them, as an example."""
    message: str
    """The error's message of that one."""


class GroupsShown(Struct, kw_only=True):
    """The dead letters, grouped; what there is most of comes first."""

    as_of: str
    total: int
    complete: bool
    """Whether all were looked at; otherwise these are of the newest half a million."""
    types: list[TypeShown]
    groups: list[GroupShown]


def groups_shown(groups: Groups) -> GroupsShown:
    """Groups as they are shown."""
    return GroupsShown(
        as_of=iso(groups.as_of),
        total=groups.total,
        complete=groups.complete,
        types=[
            TypeShown(task_type=each.type, count=each.count, alert_at=each.alert_at, alert=each.alert)
            for each in groups.types
        ],
        groups=[
            GroupShown(
                task_type=each.type,
                fingerprint=each.fingerprint,
                error_type=each.error,
                pattern=each.pattern,
                count=each.count,
                first_seen=iso(each.first_seen),
                last_seen=iso(each.last_seen),
                task_id=each.example,
                message=each.message,
            )
            for each in groups.groups
        ],
    )


def groups_of(shown: GroupsShown) -> Groups:
    """Groups from how they are shown."""
    return Groups(
        as_of=parse_iso(shown.as_of),
        total=shown.total,
        complete=shown.complete,
        types=[TypeCount(type=each.task_type, count=each.count, alert_at=each.alert_at) for each in shown.types],
        groups=[
            ErrorGroup(
                type=each.task_type,
                fingerprint=each.fingerprint,
                error=each.error_type,
                pattern=each.pattern,
                count=each.count,
                first_seen=parse_iso(each.first_seen),
                last_seen=parse_iso(each.last_seen),
                example=TaskId(each.task_id),
                message=each.message,
            )
            for each in shown.groups
        ],
    )
