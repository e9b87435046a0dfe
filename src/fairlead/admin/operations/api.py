"""Operations over HTTP: their shapes, their endpoints, and the calls of a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from fairlead.core.errors import OperationNotFound
from fairlead.core.instant import Instant
from fairlead.core.operation import Action, NewOperation, Operation, Preview, Stage, check_new
from fairlead.core.query.parser import parse_query
from fairlead.core.task import Priority
from fairlead.core.tenancy import Role
from fairlead.wire.endpoint import Ask, Empty, Endpoint, named
from fairlead.wire.task_endpoints import QueryText
from fairlead.wire.task_shown import TaskBrief, task_of
from fairlead.wire.tasks import Moment, PriorityGiven
from fairlead.wire.text import instant_of, iso, maybe_iso, parse_iso
from fairlead.wire.words import PriorityName

ActionWord: TypeAlias = Literal["replay", "discard", "cancel", "prioritize"]
StageWord: TypeAlias = Literal["pending", "running", "paused", "cancelled", "done"]


class OperationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action on all tasks that match a query."""

    action: ActionWord
    """What is done to each task."""
    query: QueryText
    """Which tasks, in the query language; tasks to which the action does not apply are left out."""
    dry_run: bool = False
    """Whether to only count the tasks, and show some of them."""
    as_of: Moment | None = None
    """Only tasks that matched at this moment, such as that of a dry run: those that were submitted or ended later are
    left alone."""
    expected: Annotated[int, Meta(ge=0)] | None = None
    """How many tasks the caller expects: if the number differs, nothing is done."""
    rate: Annotated[float, Meta(ge=0.001, le=1_000_000)] | None = None
    """How many tasks a second at most."""
    canary: Annotated[int, Meta(ge=1)] | None = None
    """After how many tasks it pauses until it is resumed."""
    new_priority: PriorityGiven | None = None
    """The priority that replayed tasks are queued with instead of their own; `prioritize` needs it."""
    reset_retry_count: bool = True
    """Whether replayed tasks have all their retries, and their first timeout, again."""


class OperationShown(Struct, kw_only=True):
    """An operation and its progress."""

    operation_id: str
    action: ActionWord
    query: str
    """In its canonical form."""
    status: StageWord
    note: str
    """Why it is paused or cancelled."""
    as_of: str
    """The moment at which the set of tasks was fixed."""
    expected: int
    """How many there were when it began."""
    exact: bool
    """Whether that count was complete: counting ends after 300,000 tasks."""
    done: int
    skipped: int
    """Tasks that no longer matched when their turn came."""
    failed: int
    """Tasks that could not be changed because others kept changing them."""
    who: str
    """Who began it."""
    tenant: str | None
    """The only tenant whose tasks it touches."""
    rate: float | None
    canary: int | None
    new_priority: PriorityName | None
    reset_retry_count: bool
    created_at: str
    started_at: str | None
    ended_at: str | None


class OperationPreview(Struct, kw_only=True):
    """What an operation would act on."""

    as_of: str
    """The moment of this count; send it as `as_of` to start the operation for exactly these tasks."""
    count: int
    exact: bool
    """Whether the count is complete: counting ends after 300,000 tasks."""
    sample: list[TaskBrief]
    """The oldest of them."""


class OperationList(Struct, kw_only=True):
    """The operations that are kept: until 30 days after their end."""

    operations: list[OperationShown]


def new_operation(request: OperationRequest, *, who: str) -> NewOperation:
    """What a caller wants; raises QueryError, which points at the mistake."""
    return NewOperation(
        action=Action(request.action),
        query=parse_query(request.query),
        as_of=None if request.as_of is None else instant_of(request.as_of),
        expected=request.expected,
        rate=request.rate,
        canary=request.canary,
        priority=None if request.new_priority is None else Priority.parse(request.new_priority),
        reset_retries=request.reset_retry_count,
        who=who,
    )


def request_of(wanted: NewOperation, *, dry_run: bool = False) -> dict[str, object]:
    """The same as a body for a server; what is not said is not sent."""
    fields: dict[str, object] = {
        "action": wanted.action.value,
        "query": str(wanted.query),
        "dry_run": dry_run,
        "as_of": maybe_iso(wanted.as_of),
        "expected": wanted.expected,
        "rate": wanted.rate,
        "canary": wanted.canary,
        "new_priority": None if wanted.priority is None else wanted.priority.word,
        "reset_retry_count": wanted.reset_retries,
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
        new_priority=None if operation.priority is None else operation.priority.word,
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


def _shown(path: Mapping[str, str], operation: Operation, now: Instant) -> OperationShown:
    return operation_shown(operation)


START: Final = Endpoint[Empty, OperationRequest](
    method="POST",
    path="/api/v1/operations",
    patient=True,
    summary="Start an operation",
    role=Role.ADMIN,
    body=OperationRequest,
    answers={201: OperationShown, 200: OperationPreview},
    problems=(409,),
)
LIST_OPERATIONS: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/operations",
    summary="List the operations",
    role=Role.READ,
    answers={200: OperationList},
)
SHOW: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/operations/{operation_id}",
    summary="Show an operation",
    role=Role.READ,
    answers={200: OperationShown},
    problems=(404,),
    calls="operations.get",
    shows=_shown,
    about="Show an operation and its progress.",
)
PAUSE: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/operations/{operation_id}/pause",
    summary="Pause an operation",
    role=Role.ADMIN,
    answers={200: OperationShown},
    problems=(404, 409),
)
RESUME: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/operations/{operation_id}/resume",
    summary="Resume an operation",
    role=Role.ADMIN,
    answers={200: OperationShown},
    problems=(404, 409),
    calls="operations.resume",
    shows=_shown,
    about="Resume a paused operation where it stopped, also after its canary.",
)
CANCEL: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/operations/{operation_id}/cancel",
    summary="Cancel an operation",
    role=Role.ADMIN,
    answers={200: OperationShown},
    problems=(404, 409),
)


class RemoteOperations:
    """The operations behind a server, which works on them."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def preview(self, wanted: NewOperation) -> Preview:
        """What an operation would act on, without doing anything."""
        check_new(wanted)
        shown = await self._ask(START, OperationPreview, request_of(wanted, dry_run=True))
        sample = [task_of(each) for each in shown.sample]
        return Preview(as_of=parse_iso(shown.as_of), count=shown.count, exact=shown.exact, sample=sample)

    async def start(self, wanted: NewOperation) -> Operation:
        """Begin an operation; who begins it is whose key is used."""
        check_new(wanted)
        return operation_of(await self._ask(START, OperationShown, request_of(wanted)))

    async def all(self) -> list[Operation]:
        """Every operation that is kept, the newest first."""
        return [operation_of(each) for each in (await self._ask(LIST_OPERATIONS, OperationList)).operations]

    async def get(self, operation_id: str) -> Operation:
        """The operation with this id."""
        return await self._one(SHOW, operation_id)

    async def pause(self, operation_id: str) -> Operation:
        """Stop an operation until it is resumed."""
        return await self._one(PAUSE, operation_id)

    async def resume(self, operation_id: str) -> Operation:
        """Resume a paused operation where it stopped, also after its canary."""
        return await self._one(RESUME, operation_id)

    async def cancel(self, operation_id: str) -> Operation:
        """Cancel an operation; tasks that were changed stay changed."""
        return await self._one(CANCEL, operation_id)

    async def step(self, operation_id: str) -> Operation:
        """How an operation stands; the server works on it."""
        return await self.get(operation_id)

    async def _one(self, endpoint: Endpoint[Any, Any], operation_id: str) -> Operation:
        missing = OperationNotFound(operation_id)
        name = named(operation_id, missing)
        if not name.isalnum():
            raise missing
        return operation_of(await self._ask(endpoint, OperationShown, subject=name, operation_id=name))
