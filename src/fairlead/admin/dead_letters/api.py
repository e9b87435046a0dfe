"""Dead letters over HTTP: their shapes, their endpoints, and the calls of a client."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from fairlead.core.dead_letters import ErrorGroup, Groups, TypeCount
from fairlead.core.identity import TaskId
from fairlead.core.query.query import EVERYTHING, Query
from fairlead.core.tenancy import Role
from fairlead.wire.endpoint import Ask, Empty, Endpoint
from fairlead.wire.task_endpoints import PageQuery, QueryText, TaskPage
from fairlead.wire.task_shown import TaskBrief
from fairlead.wire.tasks import Name, PriorityGiven
from fairlead.wire.text import iso, parse_iso


class TypeShown(Struct, kw_only=True):
    """How many dead letters of one type there are."""

    task_type: str
    count: int
    alert_at: int | None
    """The number of dead letters at which to alert; null for never."""
    alert: bool
    """Whether that number is reached."""


class GroupShown(Struct, kw_only=True):
    """Dead letters of one type whose errors differ only in ids, numbers, quoted values, paths and moments."""

    task_type: str
    fingerprint: str
    """What the group is called in a query: `fingerprint:…`."""
    error_type: str
    pattern: str
    """The error's message, with placeholders such as `<n>` for what varies."""
    count: int
    first_seen: str
    """When the first of them became a dead letter."""
    last_seen: str
    task_id: str
    """The latest of them, as an example."""
    message: str
    """The message of its error."""


class GroupsShown(Struct, kw_only=True):
    """The dead letters, grouped; the largest group comes first."""

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


class DeadLetterQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters, and which page of them."""

    queue: Name | None = None
    """Only those of this queue."""
    task_type: Name | None = None
    """Only those of this type."""
    q: QueryText | None = None
    """Only those that match this query, such as `error:Timeout params.user_id:42`."""


class DeadLetterPage(TaskPage, frozen=True, kw_only=True):
    """One page of the dead letters."""

    total_count: int | None = None
    """How many there are on all pages together. With `q`, with a key that is bound to a tenant and with a journal they
    are counted one by one: null if that takes more than 10,000 tasks, or more than a second."""


class GroupsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters are grouped."""

    queue: Name | None = None
    """Only those of this queue."""
    task_type: Name | None = None
    """Only those of this type."""
    q: QueryText | None = None
    """Only those that match this query."""


class ReplayRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a task is queued again."""

    reset_retry_count: bool = True
    """Whether it has all its retries, and its first timeout, again."""
    new_priority: PriorityGiven | None = None
    """The priority that it is queued with instead of its own."""


LIST_DEAD_LETTERS: Final = Endpoint[DeadLetterQuery, None](
    method="GET",
    path="/api/v1/dlq",
    summary="List the dead letters",
    role=Role.READ,
    query=DeadLetterQuery,
    answers={200: DeadLetterPage},
)
GROUPS: Final = Endpoint[GroupsQuery, None](
    method="GET",
    path="/api/v1/dlq/groups",
    patient=True,
    summary="Count the dead letters by error",
    role=Role.READ,
    query=GroupsQuery,
    answers={200: GroupsShown},
)
REPLAY: Final = Endpoint[Empty, ReplayRequest](
    method="POST",
    path="/api/v1/dlq/{task_id}/replay",
    patient=True,
    summary="Queue a dead letter again",
    role=Role.SUBMIT,
    body=ReplayRequest,
    body_optional=True,
    answers={200: TaskBrief},
    problems=(404, 409),
)
DISCARD: Final = Endpoint[Empty, None](
    method="DELETE",
    path="/api/v1/dlq/{task_id}",
    patient=True,
    summary="Discard a dead letter",
    role=Role.ADMIN,
    answers={200: TaskBrief},
    problems=(404, 409),
)


class RemoteDeadLetters:
    """The dead letters behind a server."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def groups(self, query: Query = EVERYTHING) -> Groups:
        """Group the dead letters that a query means."""
        asked = {"q": str(query)} if query.terms else None
        return groups_of(await self._ask(GROUPS, GroupsShown, query=asked))
