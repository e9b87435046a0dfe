"""Submits over the API: one, many, or one by one from coroutines that do so at once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from fairlead.client.calls import decoded, error_in
from fairlead.client.http.transport import Transport
from fairlead.core.errors import FairleadError, InvalidTask, PayloadTooLarge
from fairlead.core.identity import TaskId
from fairlead.core.submission import Submission
from fairlead.core.task import (
    Priority,
    Spec,
    State,
    Status,
    Task,
    after_of,
)
from fairlead.engine.engine import Submitted
from fairlead.wire.explanations import cause_of
from fairlead.wire.task_endpoints import SUBMIT_BATCH, SUBMIT_TASK
from fairlead.wire.tasks import BATCH_LIMIT, BatchAnswer, TaskCreated, request_of
from fairlead.wire.text import parse_iso

_CLAIMED = "claimed"
_parse_iso: Final = functools.lru_cache(maxsize=1)(parse_iso)
"""Tasks that are submitted together share their moment."""


def submitted_task(created: TaskCreated, submission: Submission) -> Task:
    """The task that a submit was answered with."""
    at = _parse_iso(created.created_at)
    timeout = submission.timeout or 0
    spec = Spec(
        id=TaskId(created.task_id),
        queue=created.queue,
        type=created.task_type,
        parameters=submission.parameters,
        requires=tuple(sorted(submission.requires)),
        created_at=at,
        timeout=timeout,
        max_retries=submission.max_retries or 0,
        max_crashes=submission.max_crashes or 0,
        idempotency_key=submission.idempotency_key,
        tenant=submission.tenant,
        tags=submission.tags,
        trace=submission.trace,
        concurrency_key=submission.concurrency_key,
        after=after_of(tuple(one for one in submission.after if not isinstance(one, int)), submission.on_failure)
        if submission.after
        else None,
        expires=submission.expires,
        retention=submission.retention,
    )
    ready_at = submission.run_at or at + (submission.delay or 0)
    status = Status(
        state=State(created.status),
        priority=Priority.parse(created.priority),
        ready_at=max(at, ready_at),
        timeout=timeout,
    )
    return Task(spec, status)


class Joining:
    """Joins the submits of one event loop."""

    def __init__(self, send: Callable[[Sequence[Submission]], Awaitable[Sequence[Submitted | FairleadError]]]) -> None:
        self._send = send
        self._turn: list[tuple[Submission, asyncio.Future[Submitted]]] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def submit(self, submission: Submission) -> Submitted:
        """Submit a task, along with whatever else is submitted in this turn."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Submitted] = loop.create_future()
        self._turn.append((submission, answer))
        if len(self._turn) == 1:
            # A task begins in the next turn.
            sending = loop.create_task(self._end_turn())
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        return await answer

    async def _end_turn(self) -> None:
        # Whoever has been cancelled by now wants nothing any more.
        turn = [(submission, answer) for submission, answer in self._turn if not answer.done()]
        self._turn = []
        told: Sequence[Submitted | Exception]
        try:
            told = await self._send([submission for submission, _ in turn]) if turn else ()
        except asyncio.CancelledError:
            for _, answer in turn:
                answer.cancel()
            raise
        except Exception as error:
            told = [error] * len(turn)
        for (_, answer), one in zip(turn, told, strict=True):
            if answer.done():
                continue
            if isinstance(one, Exception):
                answer.set_exception(one)
            else:
                answer.set_result(one)


_ROOM: Final = 8 * 1024 * 1024
"""How many bytes of tasks go into one request."""

_encode: Final = msgspec.json.Encoder().encode


class Submits:
    """Submits tasks to one server."""

    def __init__(self, transport: Transport, *, joining: bool) -> None:
        """With `joining`, single submits of one turn of the event loop go as one request."""
        self._transport = transport
        self._joining = Joining(self._joined) if joining else None

    async def one(self, submission: Submission) -> Submitted:
        """Submit a task."""
        # One that waits for others may wait for those of its own request only.
        if self._joining is None or submission.after:
            return await self._alone(submission)
        return await self._joining.submit(submission)

    async def many(self, submissions: Sequence[Submission]) -> list[Submitted | FairleadError]:
        """Submit tasks, which may wait for each other; the answers are in their order."""
        answers: list[Submitted | FairleadError] = []
        for batch in _batches(submissions, answers):
            answers += await self._batch(batch)
        return answers

    async def _alone(self, submission: Submission) -> Submitted:
        reply = await self._transport.ask(SUBMIT_TASK.method, SUBMIT_TASK.path, _body(submission))
        return _submitted(decoded(reply, TaskCreated, self._transport.address, submission.queue), submission)

    async def _joined(self, submissions: Sequence[Submission]) -> list[Submitted | FairleadError]:
        """What was submitted one by one; each has its own answer, as if it had been alone."""
        if len(submissions) == 1:
            return [await self._alone(submissions[0])]
        answers: list[Submitted | FairleadError] = []
        for batch in _batches(submissions, answers):
            try:
                answers += await self._batch(batch)
            except (InvalidTask, PayloadTooLarge):
                # The server could make nothing of the whole, and stored nothing; one of them is to blame.
                answers += [await _caught(self._alone(submission)) for submission, _ in batch]
            except FairleadError as error:
                answers += [error] * len(batch)
        return answers

    async def _batch(self, batch: Sequence[tuple[Submission, bytes]]) -> list[Submitted | FairleadError]:
        body = b'{"tasks":[%b]}' % b",".join(encoded for _, encoded in batch)
        reply = await self._transport.ask(SUBMIT_BATCH.method, SUBMIT_BATCH.path, body)
        answers: list[Submitted | FairleadError] = []
        results = decoded(reply, BatchAnswer, self._transport.address).results
        for (submission, _), result in zip(batch, results, strict=True):
            if isinstance(result.task, TaskCreated):
                answers.append(_submitted(result.task, submission))
            elif isinstance(result.problem, msgspec.UnsetType):
                raise ValueError(f"the server said nothing of task {result.index} of a batch")
            else:
                answers.append(error_in(result.problem, self._transport.address, submission.queue))
        return answers


def _submitted(created: TaskCreated, submission: Submission) -> Submitted:
    doubts = () if isinstance(created.warnings, msgspec.UnsetType) else tuple(map(cause_of, created.warnings))
    return Submitted(submitted_task(created, submission), existing=created.existing, doubts=doubts)


async def _caught(submitting: Awaitable[Submitted]) -> Submitted | FairleadError:
    try:
        return await submitting
    except FairleadError as error:
        return error


def _body(submission: Submission) -> bytes:
    return _encode(request_of(submission))


def _batches(
    submissions: Sequence[Submission], answers: Sequence[Submitted | FairleadError]
) -> Iterator[list[tuple[Submission, bytes]]]:
    """Requests of bounded size; `answers` are those to the requests before."""
    batch: list[tuple[Submission, bytes]] = []
    size = 0
    for submission in submissions:
        encoded = _body(_placed(submission, answers))
        if batch and (len(batch) == BATCH_LIMIT or size + len(encoded) > _ROOM):
            yield batch
            batch, size = [], 0
            encoded = _body(_placed(submission, answers))
        batch.append((submission, encoded))
        size += len(encoded) + 1
    if batch:
        yield batch


def _placed(submission: Submission, answers: Sequence[Submitted | FairleadError]) -> Submission:
    """A submission whose positions count from the first task of its own request; those before that are named by id."""
    if not submission.after or not answers:
        return submission
    return replace(submission, after=tuple(_place(one, answers) for one in submission.after))


def _place(one: TaskId | int, answers: Sequence[Submitted | FairleadError]) -> TaskId | int:
    if not isinstance(one, int):
        return one
    if not 0 <= one < len(answers):
        return one - len(answers)
    answer = answers[one]
    # What was refused is waited for in vain, and the server is to say so.
    return answer.task.id if isinstance(answer, Submitted) else -1
