"""What workers elsewhere say of their attempts: results and progress, each under its lease."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from fairlead.core.errors import InvalidTask, LeaseLost
from fairlead.core.events import CancelConfirmed, Completed, Crashed, Failed, HandedBack, Outcome, TimedOut
from fairlead.core.identity import TaskId, WorkerId, parse_task_id
from fairlead.core.instant import span
from fairlead.core.task import Failure, Progress, Task
from fairlead.engine.engine import Engine, Settlement
from fairlead.server.endpoint import Answer, Call, Empty
from fairlead.server.leases import as_claimed, unseal
from fairlead.server.refusals import Refusal, refusal_of
from fairlead.storage.values import Beat, Pulse
from fairlead.wire.workers import (
    ProgressNoted,
    ProgressRequest,
    ReportedError,
    Result,
    ResultAnswer,
    ResultNoted,
    ResultRequest,
)

_UNTOLD: Final = ReportedError(message="the worker gave no error")


async def result(call: Call[Empty, ResultRequest]) -> Answer:
    """Say how an attempt ended, or how several did.

    A lease is all that it takes: an outcome counts even if its worker is no longer registered. Saying the same again
    is acknowledged again, so repeat it until it is answered. Under a lost lease nothing is changed and the answer is
    409; of several results each is answered by itself, with status 200.
    """
    worker = WorkerId(call.path["worker_id"])
    body = call.body
    if body.results is not None:
        if (body.task_id, body.lease, body.status, body.error) != (None, None, None, None):
            raise Refusal(
                "invalid-value", "results are given beside a single result; give one or the other", field="results"
            )
        noted = await _note(call.hub.engine, worker, body.results)
        return Answer(ResultAnswer(acknowledged=all(one.acknowledged for one in noted), results=tuple(noted)))
    single = _single(body)
    (answer,) = await _settle(call.hub.engine, worker, [single])
    if isinstance(answer, LeaseLost):
        raise answer
    return Answer(ResultAnswer(acknowledged=True, task_id=answer.id, status=str(answer.state)))


async def progress(call: Call[Empty, ProgressRequest]) -> Answer:
    """Say how far an attempt is; its lease is renewed as by a heartbeat."""
    body = call.body
    beat = Beat(_task_id(body.task_id), unseal(body.lease).token, Progress(percent=body.percent, message=body.message))
    (pulse,) = await call.hub.engine.heartbeat([beat])
    if pulse is Pulse.LOST:
        raise LeaseLost(beat.id)
    return Answer(ProgressNoted(acknowledged=True, cancel=pulse is Pulse.CANCEL))


def _single(body: ResultRequest) -> Result:
    for field in ("task_id", "lease", "status"):
        if getattr(body, field) is None:
            raise Refusal(
                "invalid-value",
                f"{field} is missing; a result needs task_id, lease and status, or several of them under results",
                field=field,
            )
    return Result(
        task_id=body.task_id or "",
        lease=body.lease or "",
        status=body.status or "completed",
        result=body.result,
        error=body.error,
        retry_after_seconds=body.retry_after_seconds,
    )


async def _note(engine: Engine, worker: WorkerId, results: Sequence[Result]) -> list[ResultNoted]:
    """Settle what can be settled, and say of each what became of it."""
    noted: dict[int, ResultNoted] = {}
    sound: dict[int, Result] = {}
    for position, one in enumerate(results):
        try:
            _task_id(one.task_id)
            sound[position] = one
        except InvalidTask as error:
            noted[position] = _refused(one, refusal_of(error))
    answers = await _settle(engine, worker, list(sound.values()))
    for (position, one), answer in zip(sound.items(), answers, strict=True):
        if isinstance(answer, LeaseLost):
            noted[position] = _refused(one, refusal_of(answer))
        else:
            noted[position] = ResultNoted(task_id=answer.id, acknowledged=True, status=str(answer.state))
    return [noted[position] for position in range(len(results))]


async def _settle(engine: Engine, worker: WorkerId, results: Sequence[Result]) -> list[Task | LeaseLost]:
    ids = [_task_id(one.task_id) for one in results]
    stored = await engine.store.get(ids) if ids else []
    answers: list[Task | LeaseLost] = [LeaseLost(task_id) for task_id in ids]
    settlements: dict[int, Settlement] = {}
    for position, (one, task) in enumerate(zip(results, stored, strict=True)):
        if task is not None:
            settlements[position] = Settlement(as_claimed(task, unseal(one.lease), worker), outcome_of(one))
    if settlements:
        settled = await engine.settle(list(settlements.values()))
        for position, answer in zip(settlements, settled, strict=True):
            answers[position] = answer
    return answers


def outcome_of(said: Result) -> Outcome:
    """A result in the engine's terms."""
    error = said.error or _UNTOLD
    failure = Failure(type=error.type, message=error.message, traceback=error.traceback)
    after = None if said.retry_after_seconds is None else span(said.retry_after_seconds)
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


def _refused(said: Result, refusal: Refusal) -> ResultNoted:
    return ResultNoted(task_id=said.task_id, acknowledged=False, problem=refusal.problem)


def _task_id(text: str) -> TaskId:
    try:
        return parse_task_id(text)
    except InvalidTask as error:
        raise InvalidTask("task_id", str(error)) from None
