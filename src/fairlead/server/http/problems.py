"""From errors to problem documents: every refusal that a caller can meet."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from fairlead.core.errors import (
    AdmissionRefused,
    BindingRefused,
    CircuitNotFound,
    FairleadError,
    Forbidden,
    InvalidSettings,
    InvalidTask,
    LeaseLost,
    NotInQuarantine,
    OperationNotFound,
    OperationRefused,
    PayloadTooLarge,
    QueryError,
    QueueFull,
    RecordUnreadable,
    RestoreRefused,
    ScheduleExists,
    ScheduleNotFound,
    StoreError,
    StoreFull,
    StoreMismatch,
    StoreReadOnly,
    StoreRefused,
    TaskNotFound,
    TypeNotFound,
    WorkerNotFound,
    WrongState,
)
from fairlead.core.queues.admission import AdmissionRule
from fairlead.core.secret_mask import masked_text
from fairlead.server.http.validation_errors import mistake_in
from fairlead.wire.endpoint import Problem, Value
from fairlead.wire.tasks import HTTP_NAMES

log = logging.getLogger("fairlead.server")

KINDS: Final[dict[str, tuple[int, str]]] = {
    "invalid-request": (400, "Bad request"),
    "invalid-query": (400, "Invalid query"),
    "invalid-json": (400, "Invalid JSON"),
    "unauthorized": (401, "Unauthorized: a valid API key is required"),
    "forbidden": (403, "Forbidden: the API key does not allow this"),
    "wrong-origin": (403, "Forbidden: the request comes from an origin that is not allowed"),
    "not-found": (404, "Not found"),
    "method-not-allowed": (405, "Method not allowed"),
    "slow-head": (408, "Timeout: the request's headers took too long"),
    "slow-body": (408, "Timeout: the request's body took too long"),
    "wrong-state": (409, "Conflict: the task's state does not allow this"),
    "lease-lost": (409, "Conflict: the lease is lost"),
    "operation-refused": (409, "Conflict: the operation is not possible"),
    "already-exists": (409, "Conflict: the name is taken"),
    "binding-refused": (409, "Conflict: the queue holds tasks of others"),
    "restore-refused": (409, "Conflict: the record cannot be restored"),
    "too-large": (413, "Too large"),
    "unsupported-media-type": (415, "Unsupported media type: the body is not JSON"),
    "encoded-body": (415, "Unsupported content encoding"),
    "invalid-value": (422, "Invalid value"),
    "queue-full": (429, "Queue full"),
    "too-many-waiting": (429, "Too many tasks waiting"),
    "rate-limited": (429, "Too many requests"),
    "head-too-large": (431, "Request headers too large"),
    "internal": (500, "Internal server error"),
    "record-unreadable": (500, "Record unreadable"),
    "store-refused": (500, "Store access denied"),
    "store-mismatch": (500, "Store damaged or incompatible"),
    "not-supported": (501, "Not supported"),
    "store-unavailable": (503, "Store unavailable"),
    "overloaded": (503, "Server overloaded"),
    "too-many-connections": (503, "Too many connections"),
    "store-full": (507, "Store full"),
    "store-read-only": (507, "Store read-only"),
}
"""Every kind of problem: its status and title. The kind is the end of the problem's type."""

EXPLAINED: Final[dict[str, str]] = {
    "invalid-request": "The request cannot be read, such as its query string, or could be read in more than one way; "
    "correct what `detail` names.",
    "invalid-query": "The query `q`, or the query of an operation, has a mistake; `pointer` marks it with carets, and "
    "`detail` says what is allowed there.",
    "invalid-json": "The body is not JSON, is nested more than 64 deep, or repeats a key within an object; send one "
    "document of valid JSON in UTF-8.",
    "unauthorized": "No API key was sent, or it is unknown, expired or revoked; send `Authorization: Bearer <key>` "
    "with a key that `fairlead keys create` made.",
    "forbidden": "The API key is valid, but it lacks the required role, is bound to another tenant, or the worker "
    "belongs to another key; `detail` says which, and what to use instead.",
    "wrong-origin": "A web page of another origin sent the request, its CSRF token is missing, or a server without "
    "API keys was called from another machine; call from an allowed origin, or create an API key and send it.",
    "not-found": "The task, worker, schedule or page does not exist, or its retention has ended; check the id or the "
    "name. A worker that gets this answer registers again.",
    "method-not-allowed": "The path exists, but not with this method; the header `Allow` lists the methods that it "
    "has.",
    "slow-head": "The headers of the request did not arrive completely within the time limit; send them faster.",
    "slow-body": "The body did not arrive completely within the time limit; send it faster, or send less.",
    "wrong-state": "The task is in a state in which this is not possible, such as cancelling a task that has ended; "
    "read the task again, then decide what to do.",
    "lease-lost": "The lease was not renewed in time, so the task has ended or another worker has it; stop working on "
    "it and drop the result.",
    "operation-refused": "The operation has ended, would change other tasks than the ones that were previewed, or its "
    "fields do not go together; `detail` says which.",
    "already-exists": "The name is taken, and nothing was changed; replace the existing one with PUT, remove it, or "
    "choose another name.",
    "binding-refused": "The queue holds tasks of another tenant or of none, ended ones included; discard them when "
    "they have ended, or bind another queue.",
    "restore-refused": "The record in quarantine still cannot be decoded, or a new record has the same name; `detail` "
    "says which.",
    "too-large": "The body, the parameters or the result is over its size limit; send less at once, or pass a "
    "reference to the data.",
    "unsupported-media-type": "The header `Content-Type` names a type that this endpoint does not read; send "
    "`application/json`.",
    "encoded-body": "The request has a header `Content-Encoding`, and the server does not decompress bodies; send the "
    "body uncompressed.",
    "invalid-value": "The request was read, but a value in it is not valid; `field` names it and `detail` says what "
    "is allowed.",
    "queue-full": "The queue has reached its bound (its length limit), so nothing was stored; try again after "
    "`Retry-After` seconds.",
    "too-many-waiting": "So many tasks wait, in the queue or over all queues, that only critical and high ones are "
    "taken, or only those of keys and tenants on the allow list; nothing was stored. Try again after `Retry-After` "
    "seconds.",
    "rate-limited": "The API key or the tenant is over its rate limit, in requests or in tasks submitted, so nothing "
    "was done; try again after `Retry-After` seconds.",
    "head-too-large": "The request has more than 100 headers, or more than 32 KB of them; send fewer or shorter "
    "headers.",
    "internal": "The server failed, and the request is not at fault; the server's log has the error. The request may "
    "or may not have been carried out.",
    "record-unreadable": "A record in the store is damaged and was moved to quarantine, or was written by a newer "
    "version; it was not changed. `fairlead quarantine list` shows the quarantine.",
    "store-refused": "The store refused the login or the command of this server, so nothing was done; retrying does "
    "not help until the store's URL, or the permissions of its user, are corrected.",
    "store-mismatch": "The data at the store's URL is not a fairlead store, is damaged, or was made by a newer "
    "version; nothing was done, and retrying does not help.",
    "not-supported": "The request uses a transfer coding, or asks for a tunnel, that this server does not support; "
    "send it as plain HTTP/1.1.",
    "store-unavailable": "The store did not answer in time, so it is not known whether the request was carried out; "
    "try again after `Retry-After` seconds. Submit with an `idempotency_key`, so that repeating is safe.",
    "overloaded": "The server works on as many submits as it may at once, so nothing was stored; try again after "
    "`Retry-After` seconds, or ask another server.",
    "too-many-connections": "The server has reached its limit of connections, in total or from this address, and none "
    "of them is idle; use fewer, or try again after `Retry-After` seconds.",
    "store-full": "The store is out of space, so nothing was stored; free some space, then try again.",
    "store-read-only": "The store is read-only, so nothing was stored; `detail` says what to make writable.",
}
"""What causes each kind of problem and what to do about it."""

_FIELDS: Final = {"id": "task_id", **HTTP_NAMES}
"""What the API calls the fields that have another name in the core."""

_ADMISSION: Final[dict[str, str]] = {
    AdmissionRule.URGENT_ONLY: "too-many-waiting",
    AdmissionRule.LISTED_ONLY: "too-many-waiting",
    AdmissionRule.OVERLOADED: "overloaded",
}
"""The kinds of problems that rules of admission refuse with; those of rates are told as `rate-limited`."""


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
        super().__init__(masked_text(detail))
        self.kind = kind
        self.field = field
        self.value = value
        self.remedy = None if remedy is None else masked_text(remedy)
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
            return Refusal("internal", "the server failed; its log has the error")


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
        case NotInQuarantine():
            return Refusal("not-found", detail, field="record", remedy=remedy)
        case RestoreRefused():
            return Refusal("restore-refused", detail, remedy=remedy)
        case BindingRefused():
            return Refusal("binding-refused", detail, field="tenant", remedy=remedy)
        case InvalidSettings():
            return Refusal("invalid-value", detail, remedy=remedy)
        case QueueFull():
            return Refusal("queue-full", detail, field="queue", remedy=remedy, headers=(("retry-after", "1"),))
        case AdmissionRefused():
            kind = _ADMISSION.get(error.rule, "rate-limited")
            return Refusal(kind, detail, remedy=remedy, headers=(("retry-after", str(error.retry_after)),))
        case TaskNotFound():
            return Refusal("not-found", detail, field="task_id", remedy=remedy)
        case WorkerNotFound():
            return Refusal(
                "not-found",
                f"worker {error.worker_id[:200]!r} not found: it has left, or sent no heartbeat for long; list the "
                "workers",
                field="worker_id",
                remedy="list the workers",
            )
        case ScheduleNotFound():
            return Refusal("not-found", detail, field="name", remedy=remedy)
        case CircuitNotFound():
            return Refusal("not-found", detail, field="task_type", remedy=remedy)
        case TypeNotFound():
            return Refusal("not-found", detail, field="type", remedy=remedy)
        case ScheduleExists():
            return Refusal("already-exists", detail, field="name", remedy=remedy)
        case Forbidden():
            return Refusal("forbidden", detail, field=error.field, value=error.value, remedy=remedy)
        case WrongState():
            return Refusal("wrong-state", detail, field="task_id", remedy=remedy)
        case LeaseLost():
            return Refusal("lease-lost", detail, field="lease", remedy=remedy)
        case RecordUnreadable():
            return Refusal("record-unreadable", detail, remedy=remedy)
        case StoreFull():
            return Refusal("store-full", detail, remedy=remedy)
        case StoreReadOnly():
            return Refusal("store-read-only", detail, remedy=remedy)
        case StoreRefused():
            return Refusal("store-refused", detail, remedy=remedy)
        case StoreMismatch():
            return Refusal("store-mismatch", detail, remedy=remedy)
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
