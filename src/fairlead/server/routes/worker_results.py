"""What workers elsewhere say of their attempts: results and progress, each under its lease."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, assert_never

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from fairlead.core.errors import InvalidTask, LeaseLost
from fairlead.core.events import CancelConfirmed, Completed, Crashed, Failed, HandedBack, Outcome, TimedOut
from fairlead.core.identity import LeaseToken, TaskId, WorkerId, parse_task_id
from fairlead.core.instant import span
from fairlead.core.lifecycle import implied_token, is_held_by
from fairlead.core.task import Failure, Lease, Progress, State, Task
from fairlead.core.validation import delay_of
from fairlead.engine.engine import Settlement
from fairlead.engine.worker_records import WorkerRecord
from fairlead.server.caller_view import View
from fairlead.server.endpoint import Answer, Call
from fairlead.server.http.problems import Refusal, refusal_of
from fairlead.storage.values import Beat, Pulse
from fairlead.wire.endpoint import Empty
from fairlead.wire.worker_protocol import (
    ProgressNoted,
    ProgressRequest,
    ReportedError,
    Result,
    ResultAnswer,
    ResultNoted,
    ResultRequest,
    StartNoted,
    StartRequest,
)

_SEALED: Final = re.compile(r"([0-9]{1,15})\.([A-Za-z0-9_=-]{1,64})")
_NOBODYS: Final = LeaseToken("none")


class Grip(Struct, frozen=True):
    """What a sealed lease says: the version that the task had when it was claimed, and the claim's token."""

    version: int
    token: LeaseToken


def seal(task: Task) -> str:
    """The lease of a task that was just claimed."""
    lease = task.status.lease
    if lease is None:
        raise ValueError(f"task {task.id} is {task.state}: only one that was just claimed has a lease to give out")
    return f"{task.status.version}.{lease.token}"


def unseal(text: str) -> Grip:
    """What a lease says. A text that is no lease is one that nobody holds: it is lost like any other that has ended."""
    found = _SEALED.fullmatch(text)
    return Grip(int(found[1]), LeaseToken(found[2])) if found else Grip(0, _NOBODYS)


def as_claimed(task: Task, grip: Grip, worker: WorkerId) -> Task:
    """A stored task as the holder of a lease knows it.

    If the lease still stands, that is the task as it is stored. Otherwise it is one that the store will not take a
    change for, unless it is the very change that ended the lease.
    """
    held = task.status.lease
    if held is not None and held.token == grip.token:
        return task
    lease = Lease(token=grip.token, worker=worker, until=0)
    return Task(task.spec, replace(task.status, state=State.EXECUTING, version=grip.version, lease=lease))


_UNTOLD: Final = ReportedError(message="the worker gave no error")


async def result(call: Call[Empty, ResultRequest]) -> Answer:
    """Report how an attempt ended, or how several did.

    The lease is enough: an outcome counts even if its worker is no longer registered. If another key has registered the
    worker, every lease counts as lost. Without a lease, the worker must be registered by this key, and the task must
    have been given to this registration, and never to this worker before. The same result may be sent again and is
    acknowledged again, so repeat it until it is answered. If the lease is lost, nothing is changed and the answer is
    409; several results are answered one by one, with status 200 for the whole.
    """
    worker = WorkerId(call.path["worker_id"])
    body = call.body
    if body.results is not None:
        if (body.task_id, body.lease, body.status, body.error) != (None, None, None, None):
            raise Refusal(
                "invalid-value", "the body has both results and a single result; send one or the other", field="results"
            )
        noted = await _note(call.view, worker, body.results)
        return Answer(ResultAnswer(acknowledged=all(one.acknowledged for one in noted), results=tuple(noted)))
    single = _single(body)
    (answer,) = await _settle(call.view, worker, [single])
    if isinstance(answer, LeaseLost):
        raise answer
    return Answer(ResultAnswer(acknowledged=True, task_id=answer.id, status=str(answer.state)))


async def progress(call: Call[Empty, ProgressRequest]) -> Answer:
    """Report the progress of an attempt; its lease is renewed as by a heartbeat.

    Without a lease, the rules for results apply.
    """
    body = call.body
    said = Progress(percent=body.percent, message=body.message)
    task_id = _task_id(body.task_id)
    token = await _token_of(call.view, call.path["worker_id"], task_id, body.lease)
    (pulse,) = await call.view.engine.heartbeat([Beat(task_id, token, said, span(body.allowance_seconds))])
    if pulse is Pulse.LOST:
        raise LeaseLost(task_id)
    return Answer(ProgressNoted(acknowledged=True, cancel=pulse is Pulse.CANCEL))


async def start(call: Call[Empty, StartRequest]) -> Answer:
    """Acknowledge that an attempt begins. This is optional: it began when the task was claimed.

    Nothing is changed. The answer is 409 if the worker no longer holds the task; then it should not begin.
    """
    task_id = _task_id(call.body.task_id)
    worker = await call.view.worker(call.path["worker_id"])
    if call.body.lease is None:
        (task,) = await call.view.engine.get_many([task_id])
        lease = None if task is None else task.status.lease
        if lease is None or not is_held_by(lease, worker.id, worker.registration):
            raise LeaseLost(task_id)
        token = lease.token
    else:
        token = unseal(call.body.lease).token
    (pulse,) = await call.view.engine.look([Beat(task_id, token)])
    if pulse is Pulse.LOST:
        raise LeaseLost(task_id)
    return Answer(StartNoted(acknowledged=True, cancel=pulse is Pulse.CANCEL))


async def _token_of(view: View, worker: str, task_id: TaskId, lease: str | None) -> LeaseToken:
    """The token of a lease, or that of the lease which the worker's id stands for."""
    if lease is not None:
        if await view.of_others([worker]):
            raise LeaseLost(task_id)
        return unseal(lease).token
    present = await view.worker(worker)
    (task,) = await view.engine.get_many([task_id])
    if task is None:
        raise LeaseLost(task_id)
    return implied_token(task, present.id, present.registration)


def _single(body: ResultRequest) -> Result:
    for field in ("task_id", "status"):
        if getattr(body, field) is None:
            raise Refusal(
                "invalid-value",
                f"{field} is missing; a result needs task_id, lease and status, or several of them under results",
                field=field,
            )
    return Result(
        task_id=body.task_id or "",
        lease=body.lease,
        status=body.status or "completed",
        result=body.result,
        error=body.error,
        retry_after_seconds=body.retry_after_seconds,
    )


async def _note(view: View, worker: WorkerId, results: Sequence[Result]) -> list[ResultNoted]:
    """Settle what can be settled, and say of each what became of it."""
    noted: dict[int, ResultNoted] = {}
    sound: dict[int, Result] = {}
    for position, one in enumerate(results):
        try:
            _task_id(one.task_id)
            sound[position] = one
        except InvalidTask as error:
            noted[position] = _refused(one, refusal_of(error))
    answers = await _settle(view, worker, list(sound.values()))
    for (position, one), answer in zip(sound.items(), answers, strict=True):
        if isinstance(answer, LeaseLost):
            noted[position] = _refused(one, refusal_of(answer))
        else:
            noted[position] = ResultNoted(task_id=answer.id, acknowledged=True, status=str(answer.state))
    return [noted[position] for position in range(len(results))]


async def _settle(view: View, worker: WorkerId, results: Sequence[Result]) -> list[Task | LeaseLost]:
    ids = [_task_id(one.task_id) for one in results]
    # Only who has registered this very worker may leave a lease out.
    present = await _speaker(view, worker, results) if any(one.lease is None for one in results) else None
    stored = await view.engine.get_many(ids)
    holders = {task.status.lease.worker for task in stored if task is not None and task.status.lease is not None}
    others = await view.of_others({worker, *holders})
    answers: list[Task | LeaseLost] = [LeaseLost(task_id) for task_id in ids]
    settlements: dict[int, Settlement] = {}
    for position, (one, task) in enumerate(zip(results, stored, strict=True)):
        holder = worker if task is None or task.status.lease is None else task.status.lease.worker
        if task is not None and others.isdisjoint((worker, holder)):
            try:
                grip = _grip_of(one, task, present)
            except LeaseLost as lost:
                answers[position] = lost
                continue
            settlements[position] = Settlement(as_claimed(task, grip, worker), outcome_of(one))
    if settlements:
        settled = await view.engine.settle(list(settlements.values()))
        for position, answer in zip(settlements, settled, strict=True):
            answers[position] = answer
    return answers


async def _speaker(view: View, worker: WorkerId, results: Sequence[Result]) -> WorkerRecord | None:
    """The worker that speaks; None if it is not the caller's, and that is no reason to refuse all that is said."""
    try:
        return await view.worker(worker)
    except Refusal:
        if all(one.lease is None for one in results):
            raise
        return None


def _grip_of(said: Result, task: Task, present: WorkerRecord | None) -> Grip:
    if said.lease is not None:
        return unseal(said.lease)
    if present is None:
        raise LeaseLost(task.id, "the result has no lease, and the worker is not registered by this key", "register")
    return Grip(task.status.version, implied_token(task, present.id, present.registration))


def outcome_of(said: Result) -> Outcome:
    """A result in the engine's terms."""
    error = said.error or _UNTOLD
    failure = Failure(type=error.type, message=error.message, traceback=_traceback(error))
    after = None if said.retry_after_seconds is None else delay_of("retry_after_seconds", said.retry_after_seconds)
    match said.status:
        case "completed":
            value = bytes(said.result)
            return Completed(None if value == b"null" else value)
        case "failed":
            return Failed(failure=failure, retriable=error.retriable, after=after, names=error.names)
        case "timed_out":
            return TimedOut()
        case "crashed":
            return Crashed(failure)
        case "cancelled":
            return CancelConfirmed()
        case "handed_back":
            return HandedBack(after or 0)
        case _:
            assert_never(said.status)


def _traceback(error: ReportedError) -> str | None:
    """The traceback of an error; where there is none, its details: a text as it is, and anything else as JSON."""
    if error.traceback is not None or not isinstance(error.details, Raw):
        return error.traceback
    details = bytes(error.details)
    if details == b"null":
        return None
    return msgspec.json.decode(details, type=str) if details.startswith(b'"') else details.decode()


def _refused(said: Result, refusal: Refusal) -> ResultNoted:
    return ResultNoted(task_id=said.task_id, acknowledged=False, problem=refusal.problem)


def _task_id(text: str) -> TaskId:
    try:
        return parse_task_id(text)
    except InvalidTask as error:
        raise InvalidTask("task_id", str(error)) from None
