"""Calls of a server's endpoints: its answers as values, and its problem documents as the errors that they tell of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from fairlead.client.http.transport import PATIENCE, Address, Reply, Transport
from fairlead.core.errors import (
    AdmissionRefused,
    BindingRefused,
    CircuitNotFound,
    FairleadError,
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
    StoreFull,
    StoreMismatch,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
    TaskNotFound,
    TypeNotFound,
    WorkerNotFound,
    WrongState,
)
from fairlead.wire.endpoint import Endpoint, Problem

E = TypeVar("E", bound=FairleadError)
T = TypeVar("T")

_decode_problem: Final = msgspec.json.Decoder(Problem).decode
_OK: Final = range(200, 300)
_PAUSE: Final = 5
"""In how many seconds to try again what was not taken, which a server says in a header."""


def decoded(reply: Reply, kind: type[T], address: Address, subject: str = "") -> T:
    """The body of a reply; raises the error that it tells of, which is about this task or worker."""
    if reply.status not in _OK:
        raise error_of(reply, address, subject)
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreMismatch(f"{address.url} answers, but not like a fairlead server of this version: {error}") from None


def error_of(reply: Reply, address: Address, subject: str = "") -> FairleadError:
    """The error that a reply tells of."""
    try:
        problem = _decode_problem(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if reply.status >= 500:
            return StoreUnavailable(f"{address.url} answers with status {reply.status}; try again later")
        return StoreMismatch(
            f"{address.url} answers with status {reply.status}, and not like a fairlead server; is the URL right?"
        )
    return error_in(problem, address, subject)


def error_in(problem: Problem, address: Address, subject: str = "") -> FairleadError:
    """The error that a problem document tells of."""
    detail, field = problem.detail, problem.field or ""
    match problem.type.rpartition("#")[2]:
        case "too-large":
            return _made(PayloadTooLarge, detail, field=field, size=0, limit=0)
        case "invalid-value" | "invalid-json" | "invalid-request":
            return InvalidTask(field, detail)
        case "invalid-query":
            return QueryError(detail, (problem.pointer or "").partition("\n")[0], problem.position or 0)
        case "operation-refused":
            return OperationRefused(detail)
        case "not-found" if problem.field == "operation_id":
            return _made(OperationNotFound, detail, operation_id=subject)
        case "not-found" if problem.field == "record":
            return _made(NotInQuarantine, detail, key=subject)
        case "binding-refused":
            return BindingRefused(detail)
        case "restore-refused":
            return RestoreRefused(detail)
        case "record-unreadable":
            return RecordUnreadable(detail)
        case "queue-full":
            return _made(QueueFull, detail, queue=subject, depth=0, bound=0)
        case "too-many-waiting":
            return _made(AdmissionRefused, detail, rule="", retry_after=_PAUSE)
        case "not-found" if problem.field == "worker_id":
            return _made(WorkerNotFound, detail, worker_id=subject)
        case "not-found" if problem.field == "name":
            return _made(ScheduleNotFound, detail, name=subject)
        case "not-found" if problem.field == "task_type":
            return _made(CircuitNotFound, detail, task_type=subject)
        case "not-found" if problem.field == "type":
            return _made(TypeNotFound, detail, task_type=subject)
        case "already-exists":
            return _made(ScheduleExists, detail, name=subject)
        case "not-found" if problem.field == "task_id":
            return _made(TaskNotFound, detail, task_id=subject)
        case "wrong-state":
            return _made(WrongState, detail, task_id=subject, state="", event="")
        case "lease-lost":
            return _made(LeaseLost, detail, task_id=subject)
        case "unauthorized" | "forbidden" | "wrong-origin":
            return StoreRefused(f"{address.url} refuses this: {detail}; the key is taken from FAIRLEAD_API_KEY")
        case "store-full":
            return StoreFull(detail)
        case "store-read-only":
            return StoreReadOnly(detail)
        case "store-refused":
            return StoreRefused(f"{address.url} is not let into its store: {detail}")
        case "store-mismatch":
            return StoreMismatch(f"{address.url} cannot use its store: {detail}")
        case (
            "rate-limited" | "store-unavailable" | "internal" | "slow-body" | "slow-head" | "too-many-connections"
            | "overloaded"
        ):  # fmt: skip
            return StoreUnavailable(f"{address.url} could not do it: {detail}")
        case _:
            return StoreMismatch(f"{address.url} does not know what was asked: {detail}; is it of another version?")


def _made(kind: type[E], message: str, **known: object) -> E:
    """An error in the server's words, where its own constructor would choose them anew."""
    error = kind.__new__(kind, message)
    for name, value in known.items():
        setattr(error, name, value)
    return error


_LONG: Final = 120.0
"""How long an endpoint that looks at much may take, in seconds."""

_encode: Final = msgspec.json.Encoder().encode


class ServerCalls:
    """Calls the endpoints of one server: an `Ask`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def __call__(
        self,
        endpoint: Endpoint[Any, Any],
        kind: type[T],
        body: object = None,
        /,
        *,
        query: Mapping[str, str] | None = None,
        subject: str = "",
        wait: float | None = None,
        **path: str,
    ) -> T:
        """The body of the answer; `subject` is what it is about, and `wait` how long the server is asked to wait."""
        _, answer = await self.answer(endpoint, kind, body, query=query, subject=subject, wait=wait, **path)
        return answer

    async def answer(
        self,
        endpoint: Endpoint[Any, Any],
        kind: type[T],
        body: object = None,
        /,
        *,
        query: Mapping[str, str] | None = None,
        subject: str = "",
        wait: float | None = None,
        **path: str,
    ) -> tuple[int, T]:
        """The same, behind its status."""
        patience = PATIENCE + wait if wait is not None else _LONG if endpoint.patient else PATIENCE
        encoded = None if body is None else _encode(body)
        asked = None if query is None else dict(query)
        where = endpoint.path_to(**path) if path else endpoint.path
        reply = await self._transport.ask(endpoint.method, where, encoded, query=asked, patience=patience)
        return reply.status, decoded(reply, kind, self._transport.address, subject)
