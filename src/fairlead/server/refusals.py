"""From errors to problem documents: every refusal that a caller can meet."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from fairlead.core.errors import (
    CircuitNotFound,
    FairleadError,
    InvalidSettings,
    InvalidTask,
    LeaseLost,
    OperationNotFound,
    OperationRefused,
    PayloadTooLarge,
    QueryError,
    QueueFull,
    ScheduleExists,
    ScheduleNotFound,
    StoreError,
    StoreFull,
    TaskNotFound,
    WrongState,
)
from fairlead.server.mistakes import mistake_in
from fairlead.wire.problems import Problem, Value

log = logging.getLogger("fairlead.server")

KINDS: Final[dict[str, tuple[int, str]]] = {
    "invalid-request": (400, "The request is not valid"),
    "invalid-query": (400, "The query cannot be read"),
    "invalid-json": (400, "The body is not valid JSON"),
    "unauthorized": (401, "A key is needed"),
    "forbidden": (403, "The key does not allow this"),
    "wrong-origin": (403, "The request comes from where it may not"),
    "not-found": (404, "There is no such thing"),
    "method-not-allowed": (405, "The method is not allowed here"),
    "slow-body": (408, "The body took too long"),
    "wrong-state": (409, "The task's state does not allow this"),
    "lease-lost": (409, "The lease is lost"),
    "operation-refused": (409, "The operation cannot be done like this"),
    "already-exists": (409, "It is there already"),
    "too-large": (413, "Too large"),
    "unsupported-media-type": (415, "The body is not JSON"),
    "invalid-value": (422, "A value is not valid"),
    "queue-full": (429, "The queue is full"),
    "rate-limited": (429, "Too many requests"),
    "internal": (500, "A fault of the server"),
    "store-unavailable": (503, "The store is not available"),
    "store-full": (507, "The store is full"),
}
"""Every kind of problem: its status and title. The kind is the end of the problem's type."""

EXPLAINED: Final[dict[str, str]] = {
    "invalid-request": "The request as a whole cannot be read, such as its query string; correct what `detail` names.",
    "invalid-query": "The query `q`, or that of an operation, has a mistake; `pointer` has carets under it, and "
    "`detail` says what may be there.",
    "invalid-json": "The body is not JSON, is nested too deeply, or names a key twice in one object; send one document "
    "of valid JSON in UTF-8.",
    "unauthorized": "No key was shown, or one that is unknown or revoked; send `Authorization: Bearer <key>` with a "
    "key that `fairlead keys create` made.",
    "forbidden": "The key is known but lacks the role that this needs, or may not name this tenant; use a key that has "
    "it.",
    "wrong-origin": "A web page of another origin made the request, a session's request lacks its CSRF token, or a "
    "server without keys was called from beyond its machine; call from where it is allowed, or make a key and send it.",
    "not-found": "The task, worker or page was never there, or its retention has ended; check the id. A worker that is "
    "told so registers again.",
    "method-not-allowed": "The path exists, but not with this method; the header `Allow` names those that it has.",
    "slow-body": "The body had not arrived in full when its time was up; send it faster, or less of it.",
    "wrong-state": "The task is in a state from which this is not possible, such as cancelling one that has ended; "
    "look at it again before deciding what to do.",
    "lease-lost": "The task was given to another worker, or ended, because its lease was not renewed in time; stop "
    "working on it and drop the result.",
    "operation-refused": "The operation has ended, would act on other tasks than were seen, or makes no sense; "
    "`detail` says which.",
    "already-exists": "Something by this name is there already, and was left as it is; replace it with PUT, remove it, "
    "or choose another name.",
    "too-large": "The body, the parameters or the result is over its limit; send less at once, or pass a reference to "
    "the data.",
    "unsupported-media-type": "The header `Content-Type` names something that this does not read; send "
    "`application/json`.",
    "invalid-value": "The request could be read, but a value in it cannot be used; `field` names it and `detail` says "
    "what it may be.",
    "queue-full": "The queue has reached its bound, so nothing was stored; try again after `Retry-After` seconds.",
    "rate-limited": "The key or the tenant asks more often than its limit allows, so nothing was done; try again after "
    "`Retry-After` seconds.",
    "internal": "The server met a fault that is not the caller's; its log says which. What was asked may or may not "
    "have been done.",
    "store-unavailable": "The store did not answer in time, so nobody knows whether it was done; try again after "
    "`Retry-After` seconds, a submit with an `idempotency_key`.",
    "store-full": "The store has no room left, so nothing was stored; make room, then try again.",
}
"""What causes each kind of problem and what to do about it."""

_FIELDS: Final = {
    "id": "task_id",
    "type": "task_type",
    "requires": "required_capabilities",
    "timeout": "timeout_seconds",
    "delay": "delay_seconds",
    "trace": "trace_id",
}
"""What the API calls the fields that have another name in the core."""


class Refusal(Exception):
    """Raised while a request is answered: the answer is this problem."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        field: str | None = None,
        value: Value = None,
        remedy: str | None = None,
        position: int | None = None,
        pointer: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.field = field
        self.value = value
        self.remedy = remedy
        self.position = position
        self.pointer = pointer
        self.headers = headers

    @property
    def status(self) -> int:
        return KINDS[self.kind][0]

    @property
    def problem(self) -> Problem:
        """The document."""
        status, title = KINDS[self.kind]
        return Problem(
            type=f"/docs#{self.kind}",
            title=title,
            status=status,
            detail=str(self),
            field=self.field,
            value=self.value,
            remedy=self.remedy,
            position=self.position,
            pointer=self.pointer,
        )


def refusal_for(error: Exception, request: str) -> Refusal:
    """The refusal that tells a caller of whatever ended its request; a fault of the server's own is logged."""
    match error:
        case Refusal():
            return error
        case FairleadError():
            return refusal_of(error)
        case _:
            log.error("%s failed", request, exc_info=error)
            return Refusal("internal", "the server met a fault of its own; its log says which")


def refusal_of(error: FairleadError) -> Refusal:
    """The refusal that tells a caller of an error of the engine."""
    detail = str(error)
    # Messages name the thing and its value, then, behind a semicolon, the remedy.
    remedy = detail.partition("; ")[2] or None
    match error:
        case PayloadTooLarge():
            return Refusal("too-large", detail, field=error.field, remedy=remedy)
        case InvalidTask():
            return Refusal("invalid-value", detail, field=_FIELDS.get(error.field, error.field), remedy=remedy)
        case QueryError():
            position, pointer = error.position, error.pointer
            return Refusal("invalid-query", detail, field="q", remedy=remedy, position=position, pointer=pointer)
        case OperationNotFound():
            return Refusal("not-found", detail, field="operation_id", remedy=remedy)
        case OperationRefused():
            return Refusal("operation-refused", detail, remedy=remedy)
        case InvalidSettings():
            return Refusal("invalid-value", detail, remedy=remedy)
        case QueueFull():
            return Refusal("queue-full", detail, field="queue", remedy=remedy, headers=(("retry-after", "1"),))
        case TaskNotFound():
            return Refusal("not-found", detail, field="task_id", remedy=remedy)
        case ScheduleNotFound():
            return Refusal("not-found", detail, field="name", remedy=remedy)
        case CircuitNotFound():
            return Refusal("not-found", detail, field="task_type", remedy=remedy)
        case ScheduleExists():
            return Refusal("already-exists", detail, field="name", remedy=remedy)
        case WrongState():
            return Refusal("wrong-state", detail, field="task_id", remedy=remedy)
        case LeaseLost():
            return Refusal("lease-lost", detail, field="lease", remedy=remedy)
        case StoreFull():
            return Refusal("store-full", detail, remedy=remedy)
        case StoreError():
            return Refusal("store-unavailable", detail, remedy=remedy, headers=(("retry-after", "1"),))
        case _:
            return Refusal("internal", detail)


def invalid_value(error: msgspec.ValidationError, what: str = "", *, shape: Any = None, tree: object = None) -> Refusal:
    """The refusal of JSON, or of query parameters, that has the wrong shape.

    With the shape and what was decoded without one, it can name the value and what it could be instead.
    """
    mistake = mistake_in(error, shape, tree)
    field = what or mistake.field
    detail = f"{field or 'the body'}: {mistake.said}"
    return Refusal(
        "invalid-value",
        f"{detail}; {mistake.remedy}" if mistake.remedy else detail,
        field=field or None,
        value=mistake.value,
        remedy=mistake.remedy or None,
    )
