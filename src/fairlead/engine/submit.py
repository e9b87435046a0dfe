"""Submitting: from a producer's wish to a task that is stored."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from fairlead.core.errors import FairleadError, QueueFull
from fairlead.core.identity import TaskId
from fairlead.core.submission import Submission, accept
from fairlead.core.task import Task
from fairlead.engine import depending, tracing
from fairlead.engine.book import SOON
from fairlead.engine.identity import IdMaker
from fairlead.engine.ledger import Ledger
from fairlead.storage.values import Added, Apart, KeyHeld, Known, Missing, Receipt

if TYPE_CHECKING:
    from fairlead.core.explanation import Cause


class Submitted(Struct, frozen=True, gc=False):
    """The answer to a submit."""

    task: Task
    existing: bool = False
    """Whether the task was there before, by its idempotency key."""
    doubts: tuple[Cause, ...] = ()
    """Why no live worker could run it, if whoever stored it has said so; `Engine.doubts` looks."""


class Submitter:
    """Stores tasks, one or many."""

    def __init__(self, ledger: Ledger, ids: IdMaker) -> None:
        self._ledger = ledger
        self._store = ledger.store
        self._clock = ledger.clock
        self._book = ledger.book
        self._ids = ids

    def submit(self, submission: Submission) -> Coroutine[Any, Any, Submitted]:
        """Store a task; it is durable when this returns."""
        return self._submit_traced(submission) if tracing.active() else self._submit_one(submission)

    async def _submit_traced(self, submission: Submission) -> Submitted:
        with tracing.submitting([submission]) as ((traced,), span):
            submitted = await self._submit_one(traced)
            tracing.tell_submitted(span, [submitted.task.id])
            return submitted

    async def _submit_one(self, submission: Submission) -> Submitted:
        if submission.after:
            (answer,) = await self._submit([submission])
            if isinstance(answer, FairleadError):
                raise answer
            return answer
        fresh_for = self._book.fresh_for
        if fresh_for <= 0:
            await self._book.refresh()
        now, queue = self._clock.now(), submission.queue
        task = accept(submission, self._ids.task_id(queue, now), now, self._book.settings_of(queue))
        (receipt,) = await self._ledger.add((task,))
        answer = Submitted(task) if type(receipt) is Added else await self._submitted(submission, task, receipt)
        if self._ledger.unfinished:
            await self._ledger.finish()
        if fresh_for <= SOON:
            # Here it delays no task; in front of the next submit it would.
            await self._book.refresh(SOON)
        if isinstance(answer, FairleadError):
            raise answer
        return answer

    async def submit_many(self, submissions: Sequence[Submission]) -> list[Submitted | FairleadError]:
        """Store many tasks; each succeeds or fails by itself, and the answers are in their order."""
        if not tracing.active():
            return await self._submit(submissions)
        with tracing.submitting(submissions) as (traced, span):
            answers = await self._submit(traced)
            tracing.tell_submitted(span, [answer.task.id for answer in answers if isinstance(answer, Submitted)])
            return answers

    async def _submit(self, submissions: Sequence[Submission]) -> list[Submitted | FairleadError]:
        if self._book.stale:
            await self._book.refresh()
        now = self._clock.now()
        ids = self._ids.task_ids([submission.queue for submission in submissions], now)
        answers: list[Submitted | FairleadError] = []
        accepted: list[Task] = []
        positions: list[int] = []
        for position, (submission, task_id) in enumerate(zip(submissions, ids, strict=True)):
            if submission.after:
                submission = depending.named(submission, position, ids)
            try:
                task = accept(submission, task_id, now, self._book.settings_of(submission.queue))
            except FairleadError as error:
                answers.append(error)
            else:
                accepted.append(task)
                positions.append(position)
                answers.append(Submitted(task))
        receipts = await self._ledger.add(accepted) if accepted else []
        refused: dict[int, TaskId] = {}
        waiting: list[int] = []
        held = False
        for position, task, receipt in zip(positions, accepted, receipts, strict=True):
            if isinstance(receipt, Added):
                if task.spec.after is not None:
                    waiting.append(position)
                continue
            answers[position] = await self._submitted(submissions[position], task, receipt, ids)
            if isinstance(receipt, Missing | Apart):
                refused[position] = receipt.named
            elif isinstance(receipt, Known) and task.spec.after is not None:
                waiting.append(position)
            held = held or isinstance(receipt, KeyHeld)
        self._ledger.released |= bool(waiting)
        await self._ledger.finish()
        if waiting:
            # How many are waited for is the store's to say, and some may have had nothing to wait for.
            for position, found in zip(waiting, await self._store.get([ids[at] for at in waiting]), strict=True):
                answers[position] = answers[position] if found is None else Submitted(found)
        if refused and held:
            await self._submit_again(submissions, ids, refused, answers)
        return answers

    async def _submitted(
        self, submission: Submission, task: Task, receipt: Receipt, ids: Sequence[TaskId] = ()
    ) -> Submitted | FairleadError:
        """The answer to a submit whose task was stored, or not."""
        if isinstance(receipt, Added):
            return Submitted(task)
        if isinstance(receipt, Known):
            # Stored by a call that was cut off before it could say so.
            self._ledger.tell([task], task.spec.created_at)
            return Submitted(task)
        if isinstance(receipt, KeyHeld):
            return await self._held(submission, receipt.holder)
        if isinstance(receipt, Missing | Apart):
            return depending.refusal(receipt, ids)
        return QueueFull(task.spec.queue, receipt.depth, receipt.bound)

    async def _submit_again(
        self,
        submissions: Sequence[Submission],
        ids: Sequence[TaskId],
        refused: dict[int, TaskId],
        answers: list[Submitted | FairleadError],
    ) -> None:
        """Submit those again that were to wait for one of the batch whose key another task holds: for that one now."""
        stored = {at: said.task.id for at, said in enumerate(answers) if isinstance(said, Submitted)}
        hopeful = {ids[position] for position, task_id in stored.items() if ids[position] != task_id}
        left: dict[int, Submission] = {}
        for position, missing in refused.items():
            if missing in hopeful:
                hopeful.add(ids[position])
                left[position] = submissions[position]
        if left:
            for position, answer in zip(left, await self._submit(depending.again(left, ids, stored)), strict=True):
                answers[position] = answer

    async def prepare(self, submission: Submission) -> Task:
        """The task that a submission becomes, not stored yet."""
        await self._book.refresh()
        now = self._clock.now()
        settings = self._book.settings_of(submission.queue)
        return accept(submission, self._ids.task_id(submission.queue, now), now, settings)

    async def _held(self, submission: Submission, holder: TaskId) -> Submitted | FairleadError:
        """The task that holds a submission's key; or the submission stored after all, if the holder just went."""
        (task,) = await self._store.get([holder])
        if task is not None:
            return Submitted(task, existing=True)
        (answer,) = await self._submit([submission])
        return answer
