"""The calls of the worker protocol, as a worker makes them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from fairlead.client.calls import ServerCalls, decoded, error_in
from fairlead.client.http.open import open_transport
from fairlead.client.http.transport import Address, Transport
from fairlead.core.errors import LeaseLost, StoreUnavailable, WorkerNotFound
from fairlead.core.events import CancelConfirmed, Completed, Crashed, Failed, HandedBack, Outcome, TimedOut
from fairlead.core.identity import LeaseToken, TaskId, WorkerId
from fairlead.core.instant import SECOND, seconds, span
from fairlead.core.settings import Settings
from fairlead.core.task import After, Failure, Lease, Priority, Spec, State, Status, Task
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.values import Beat, Pulse
from fairlead.wire.endpoint import Endpoint
from fairlead.wire.text import parse_iso
from fairlead.wire.worker_protocol import (
    DEREGISTER,
    HEARTBEAT,
    MOST_AT_ONCE,
    POLL,
    PROGRESS,
    REGISTER,
    RESULT,
    Deregistered,
    DeregisterRequest,
    HeartbeatNoted,
    HeartbeatRequest,
    LeasedTask,
    Polled,
    PollRequest,
    ProgressNoted,
    ProgressRequest,
    Registered,
    RegisterRequest,
    ReportedError,
    Result,
    ResultAnswer,
    Running,
    WorkerStatus,
)

T = TypeVar("T")

_ROOM: Final = 8 * 1024 * 1024
"""How many bytes of results go into one request."""

_NAME_LIMIT: Final = 200

_encode: Final = msgspec.json.Encoder().encode


class Said(Struct, frozen=True):
    """A result as it goes over the wire."""

    task_id: TaskId
    encoded: bytes


class WorkerCalls:
    """One worker's calls to a server."""

    def __init__(self, transport: Transport, worker: WorkerId) -> None:
        self._transport = transport
        self._call = ServerCalls(transport)
        self.worker = worker

    async def poll(
        self, capabilities: Sequence[str], limit: int, wait: float, types: tuple[str, ...] | None = None
    ) -> tuple[list[Task], bool]:
        """Tasks, best first, of some of its types or of all, and whether the worker is paused."""
        body = PollRequest(
            capabilities=tuple(capabilities), available_capacity=limit, wait_seconds=wait, task_types=types
        )
        polled = await self._ask(POLL, body, Polled, wait=wait)
        return [self._task(leased) for leased in polled.tasks], polled.paused

    async def progress(self, beat: Beat) -> Pulse:
        """Say how far an attempt is."""
        if beat.progress is None:
            raise ValueError(f"task {beat.id}: there is no progress to report")
        said = beat.progress.dated(0)
        body = ProgressRequest(
            task_id=beat.id,
            lease=beat.token,
            percent=said.percent,
            message=said.message,
            allowance_seconds=beat.allowance / SECOND,
        )
        try:
            noted = await self._ask(PROGRESS, body, ProgressNoted, subject=beat.id)
        except LeaseLost:
            return Pulse.LOST
        return Pulse.CANCEL if noted.cancel else Pulse.HELD

    async def settle(self, said: Sequence[Said]) -> list[State | LeaseLost]:
        """Say how attempts ended; how each task stands now, or that its lease is lost."""
        answers: list[State | LeaseLost] = []
        for batch in _batches(said):
            body = b'{"results":[%b]}' % b",".join(one.encoded for one in batch)
            reply = await self._transport.ask(RESULT.method, RESULT.path_to(worker_id=self.worker), body)
            noted = decoded(reply, ResultAnswer, self._transport.address)
            for one, answer in zip(batch, noted.results or (), strict=True):
                if answer.problem is None:
                    answers.append(State(answer.status or State.EXECUTING))
                    continue
                error = error_in(answer.problem, self._transport.address, one.task_id)
                if not isinstance(error, LeaseLost):
                    raise error
                answers.append(error)
        return answers

    async def heartbeat(
        self,
        beats: Sequence[Beat] = (),
        *,
        load: int | None = None,
        by_kind: dict[str, int] | None = None,
        status: WorkerStatus | None = None,
        renew: bool = True,
    ) -> tuple[list[Pulse], bool]:
        """How the leases stand, renewed unless said otherwise, and whether the worker should drain."""
        pulses: list[Pulse] = []
        should_drain = False
        for start in range(0, max(1, len(beats)), MOST_AT_ONCE):
            some = beats[start : start + MOST_AT_ONCE]
            running = tuple(_running(beat) for beat in some)
            total = len(beats) if load is None else load
            body = HeartbeatRequest(
                current_load=total, load_by_kind=by_kind, status=status, running=running, renew=renew
            )
            noted = await self._ask(HEARTBEAT, body, HeartbeatNoted)
            lost, cancel = set(noted.lost), set(noted.cancel)
            pulses += [
                Pulse.LOST if beat.id in lost else Pulse.CANCEL if beat.id in cancel else Pulse.HELD for beat in some
            ]
            should_drain = noted.should_drain
        return pulses, should_drain

    async def deregister(self) -> None:
        """Leave, and hand back all that the worker holds."""
        await self._ask(DEREGISTER, DeregisterRequest(), Deregistered)

    async def _ask(
        self, endpoint: Endpoint[Any, Any], body: Struct, kind: type[T], *, subject: str = "", wait: float | None = None
    ) -> T:
        return await self._call(endpoint, kind, body, subject=subject or self.worker, wait=wait, worker_id=self.worker)

    def _task(self, leased: LeasedTask) -> Task:
        """A task as its handler's worker needs it; what only the store needs to know is not there."""
        timeout = max(1, span(leased.timeout_seconds))
        spec = Spec(
            id=TaskId(leased.task_id),
            queue=leased.queue,
            type=leased.task_type,
            parameters=bytes(leased.parameters),
            requires=leased.required_capabilities,
            created_at=parse_iso(leased.created_at),
            timeout=timeout,
            max_retries=leased.max_retries,
            max_crashes=0,
            tenant=leased.tenant,
            tags=leased.tags,
            trace=leased.traceparent or (None if leased.trace_id == leased.task_id else leased.trace_id),
            after=After(tasks=tuple(map(TaskId, leased.after))) if leased.after else None,
        )
        status = Status(
            state=State.EXECUTING,
            priority=Priority.parse(leased.priority),
            ready_at=spec.created_at,
            timeout=timeout,
            attempts=leased.attempt,
            retries=leased.retry_count,
            lease=Lease(token=LeaseToken(leased.lease), worker=self.worker, until=0),
        )
        return Task(spec, status)


async def register(transport: Transport, request: RegisterRequest) -> Registered:
    """Make a worker known to a server."""
    return await ServerCalls(transport)(REGISTER, Registered, request)


def said(task: Task, outcome: Outcome) -> Said:
    """How an attempt ended, ready to be sent."""
    if task.status.lease is None:
        raise ValueError(f"task {task.id} is {task.state}: only a task as it was claimed can be settled")
    encoded = _encode(_result(task.id, task.status.lease.token, outcome))
    if len(encoded) > _ROOM:
        failure = Failure(
            type="PayloadTooLarge", message=f"the result is {len(encoded):,} bytes, more than a server would read"
        )
        encoded = _encode(_result(task.id, task.status.lease.token, Failed(failure=failure, retriable=False)))
    return Said(task.id, encoded)


def timed_out(beat: Beat) -> Said:
    """That an attempt is over its timeout, by its lease."""
    return Said(beat.id, _encode(_result(beat.id, beat.token, TimedOut())))


def _result(task_id: TaskId, lease: LeaseToken, outcome: Outcome) -> Result:
    match outcome:
        case Completed(result):
            return Result(
                task_id=task_id, lease=lease, status="completed", result=Raw(b"null" if result is None else result)
            )
        case Failed(failure=failure, retriable=retriable, after=after, names=names):
            return Result(
                task_id=task_id,
                lease=lease,
                status="failed",
                error=_error(failure, retriable=retriable, names=names),
                retry_after_seconds=None if after is None else seconds(after),
            )
        case TimedOut():
            return Result(task_id=task_id, lease=lease, status="timed_out")
        case Crashed(failure):
            return Result(task_id=task_id, lease=lease, status="crashed", error=_error(failure, retriable=True))
        case HandedBack(after):
            return Result(task_id=task_id, lease=lease, status="handed_back", retry_after_seconds=after / SECOND)
        case CancelConfirmed():
            return Result(task_id=task_id, lease=lease, status="cancelled")


def _error(failure: Failure, *, retriable: bool, names: tuple[str, ...] = ()) -> ReportedError:
    storable = failure.storable()
    return ReportedError(
        type=storable.type,
        message=storable.message,
        traceback=storable.traceback,
        retriable=retriable,
        names=tuple(name.encode(errors="backslashreplace").decode()[-_NAME_LIMIT:] for name in names),
    )


def _batches(said: Sequence[Said]) -> list[list[Said]]:
    batches: list[list[Said]] = []
    room = 0
    for one in said:
        if not batches or len(batches[-1]) == MOST_AT_ONCE or room < len(one.encoded):
            batches.append([])
            room = _ROOM
        batches[-1].append(one)
        room -= len(one.encoded) + 1
    return batches


def _running(beat: Beat) -> Running:
    return Running(task_id=beat.id, lease=beat.token, allowance_seconds=beat.allowance / SECOND)


_LOOKS_PER_BEAT: Final = 4


class RemoteLeases:
    """The leases of one worker; its coroutines never suspend, and may be driven from a thread."""

    def __init__(self, address: Address, worker: WorkerId, settings: Settings) -> None:
        """The settings say how often to beat."""
        self.settings = settings
        self._transport = open_transport(address, blocking=True)
        self._calls = WorkerCalls(self._transport, worker)
        self._look_interval = settings.heartbeat / SECOND / _LOOKS_PER_BEAT
        self._asked_at = 0.0

    async def heartbeat(self, beats: Sequence[Beat]) -> list[Pulse]:
        """Renew leases."""
        return await self._beat(beats, renew=True)

    async def look(self, beats: Sequence[Beat]) -> list[Pulse]:
        """What a heartbeat would learn, without renewing anything; asked only now and then, for a request is dear."""
        if time.monotonic() - self._asked_at < self._look_interval:
            return [Pulse.HELD] * len(beats)
        return await self._beat(beats, renew=False)

    async def time_out(self, beats: Sequence[Beat]) -> None:
        """Settle attempts as timed out, for a worker that does not say so; what is lost stays lost."""
        await self._calls.settle([timed_out(beat) for beat in beats])

    def close(self) -> None:
        """Close the way to the server."""
        run_inline(self._transport.close())

    async def _beat(self, beats: Sequence[Beat], *, renew: bool) -> list[Pulse]:
        try:
            pulses, _ = await self._calls.heartbeat(beats, renew=renew)
        except WorkerNotFound as error:
            # The worker registers again when it hears of it itself.
            raise StoreUnavailable(str(error)) from None
        self._asked_at = time.monotonic()
        return pulses
