"""Operations: how they are asked for and shown."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from fairlead.core.operation import Action, Operation, Stage
from fairlead.core.query_text import MOST_CHARACTERS, parse_query
from fairlead.core.task import Priority
from fairlead.engine.operations import Wish
from fairlead.wire.moments import instant_of, iso, maybe_iso, parse_iso
from fairlead.wire.shown import TaskBrief
from fairlead.wire.tasks import Moment, PriorityWord

QueryText: TypeAlias = Annotated[
    str, Meta(extra_json_schema={"maxLength": MOST_CHARACTERS, "examples": ["state:dead_letter error:Timeout"]})
]
ActionWord: TypeAlias = Literal["replay", "discard", "cancel", "prioritize"]
StageWord: TypeAlias = Literal["pending", "running", "paused", "cancelled", "done"]


class OperationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action on all tasks that a query means."""

    action: ActionWord
    """What is done to each task."""
    query: QueryText
    """Which tasks, in the query language; those that the action is not for are left out by themselves."""
    dry_run: bool = False
    """Whether to answer only how many tasks it would be, and some of them."""
    as_of: Moment | None = None
    """Tasks are meant as they stood at this moment, such as that of a dry run: later ones, and those that ended later,
    are left alone."""
    expected: Annotated[int, Meta(ge=0)] | None = None
    """How many tasks the caller has seen: if there are not so many, nothing is done."""
    rate: Annotated[float, Meta(ge=0.001, le=1_000_000)] | None = None
    """How many tasks a second at most."""
    canary: Annotated[int, Meta(ge=1)] | None = None
    """After how many tasks it stops, to go on when it is resumed."""
    new_priority: PriorityWord | None = None
    """The priority that replayed tasks are queued with instead of their own; `prioritize` needs it."""
    reset_retry_count: bool = True
    """Whether replayed tasks have all their retries, and their first timeout, again."""


class OperationShown(Struct, kw_only=True):
    """An operation: what it is, and how far."""

    operation_id: str
    action: ActionWord
    query: str
    """In its canonical form."""
    status: StageWord
    note: str
    """Why it is paused or cancelled."""
    as_of: str
    """The moment at which tasks are meant as they stood."""
    expected: int
    """How many there were when it began."""
    exact: bool
    """Whether there were no more: counting ends after 300,000 were looked at."""
    done: int
    skipped: int
    """Tasks that had changed before their turn came, so that it was no longer for them."""
    failed: int
    """Tasks that could not be changed because others kept changing them."""
    who: str
    """Who began it."""
    tenant: str | None
    """The only tenant whose tasks it touches."""
    rate: float | None
    canary: int | None
    new_priority: PriorityWord | None
    reset_retry_count: bool
    created_at: str
    started_at: str | None
    ended_at: str | None


class OperationPreview(Struct, kw_only=True):
    """What an operation would act on."""

    as_of: str
    """The moment of this count; given back as `as_of`, the operation is for these tasks and no others."""
    count: int
    exact: bool
    """Whether there are no more: counting ends after 300,000 were looked at."""
    sample: list[TaskBrief]
    """The oldest of them."""


class OperationList(Struct, kw_only=True):
    """The operations that are kept: until 30 days after their end."""

    operations: list[OperationShown]


def wish_of(request: OperationRequest, *, who: str, tenant: str | None) -> Wish:
    """What a caller wants; raises QueryError, which points at the mistake."""
    return Wish(
        action=Action(request.action),
        query=parse_query(request.query),
        as_of=None if request.as_of is None else instant_of(request.as_of),
        expected=request.expected,
        rate=request.rate,
        canary=request.canary,
        priority=None if request.new_priority is None else Priority.parse(request.new_priority),
        reset_retries=request.reset_retry_count,
        who=who,
        tenant=tenant,
    )


def request_of(wish: Wish, *, dry_run: bool = False) -> dict[str, object]:
    """The same as a body for a server; what is not said is not sent."""
    fields: dict[str, object] = {
        "action": wish.action.value,
        "query": str(wish.query),
        "dry_run": dry_run,
        "as_of": maybe_iso(wish.as_of),
        "expected": wish.expected,
        "rate": wish.rate,
        "canary": wish.canary,
        "new_priority": None if wish.priority is None else wish.priority.word,
        "reset_retry_count": wish.reset_retries,
    }
    return {name: value for name, value in fields.items() if value is not None}


def operation_shown(operation: Operation) -> OperationShown:
    """An operation as it is shown."""
    return OperationShown(
        operation_id=operation.id,
        action=operation.action.value,
        query=operation.query,
        status=operation.stage.value,
        note=operation.note,
        as_of=iso(operation.as_of),
        expected=operation.expected,
        exact=operation.exact,
        done=operation.done,
        skipped=operation.skipped,
        failed=operation.failed,
        who=operation.who,
        tenant=operation.tenant,
        rate=operation.rate,
        canary=operation.canary,
        new_priority=None if operation.priority is None else _word(operation.priority),
        reset_retry_count=operation.reset_retries,
        created_at=iso(operation.created_at),
        started_at=maybe_iso(operation.started_at),
        ended_at=maybe_iso(operation.ended_at),
    )


def operation_of(shown: OperationShown) -> Operation:
    """An operation from how it is shown."""
    return Operation(
        id=shown.operation_id,
        action=Action(shown.action),
        query=shown.query,
        as_of=parse_iso(shown.as_of),
        created_at=parse_iso(shown.created_at),
        expected=shown.expected,
        exact=shown.exact,
        who=shown.who,
        tenant=shown.tenant,
        priority=None if shown.new_priority is None else Priority.parse(shown.new_priority),
        reset_retries=shown.reset_retry_count,
        rate=shown.rate,
        canary=shown.canary,
        stage=Stage(shown.status),
        note=shown.note,
        started_at=None if shown.started_at is None else parse_iso(shown.started_at),
        ended_at=None if shown.ended_at is None else parse_iso(shown.ended_at),
        done=shown.done,
        skipped=shown.skipped,
        failed=shown.failed,
    )


def _word(priority: Priority) -> PriorityWord:
    words: dict[Priority, PriorityWord] = {
        Priority.CRITICAL: "critical",
        Priority.HIGH: "high",
        Priority.MEDIUM: "medium",
        Priority.LOW: "low",
    }
    return words[priority]
