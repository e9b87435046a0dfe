"""Submitting: from a producer's wish to a task that is stored."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import FairleadError, InvalidTask, StoreUnavailable
from fairlead.core.identity import TaskId
from fairlead.core.instant import SECOND, Span
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission, check_batch_after
from fairlead.core.task import Spec, Task
from fairlead.core.tenancy import Phase, Upgrade, key_name
from fairlead.engine import dependencies
from fairlead.engine.changes import TaskChanges
from fairlead.engine.queue_cache import SOON
from fairlead.engine.records import Form, Records, Unread, decoder
from fairlead.engine.runtime import telemetry
from fairlead.engine.runtime.clock import Clock
from fairlead.engine.runtime.event_loop import FEW, Turn
from fairlead.engine.runtime.ids import IdMaker
from fairlead.storage.values import Added, Apart, Filter, KeyHeld, KeyUnknown, Known, Missing, Receipt

if TYPE_CHECKING:
    from fairlead.core.explain.explanation import Cause

FRESH: Final[Span] = 5 * SECOND
"""For how long it is believed which workers there are, to say whether anybody could run what is submitted."""


class Submitted(Struct, frozen=True, gc=False):
    """The answer to a submit."""

    task: Task
    existing: bool = False
    """Whether the task was there before, by its idempotency key."""
    doubts: tuple[Cause, ...] = ()
    """Why no live worker could run it, if whoever stored it has said so; `Engine.doubts` looks."""


class _Batch:
    """Submissions on their way to be stored; what is known of each is by its position."""

    def __init__(
        self, submissions: Sequence[Submission], ids: Sequence[TaskId], turn: Turn, listed: Collection[int]
    ) -> None:
        self.submissions = submissions
        self.listed = listed
        """Those whose submitters are on the allow list."""
        self.ids = ids
        self.turn = turn
        self.answers: list[Submitted | FairleadError] = []
        self.accepted: dict[int, Task] = {}
        """The tasks to store."""
        self.waiting: list[int] = []
        """Those that were stored and wait for others."""
        self.refused: dict[int, TaskId] = {}
        """Those that were to wait for a task that is not there, and that task."""
        self.held = False
        """Whether the key of any is held by another task."""


class Submitter:
    """Stores tasks, one or many."""

    def __init__(self, task_changes: TaskChanges, ids: IdMaker, *, batching: bool) -> None:
        self._batching = batching
        self._task_changes = task_changes
        self._store = task_changes.store
        self._clock = task_changes.clock
        self._queue_cache = task_changes.queue_cache
        self.keys = KeyScopes(task_changes.records, task_changes.clock, task_changes.settings)
        """How idempotency keys are named."""
        self._ids = ids

    def submit(self, submission: Submission) -> Coroutine[Any, Any, Submitted]:
        """Store a task; it is durable when this returns."""
        return self._submit_traced(submission) if telemetry.active() else self._submit_one(submission)

    async def _submit_traced(self, submission: Submission) -> Submitted:
        with telemetry.submitting([submission]) as ((traced,), span):
            submitted = await self._submit_one(traced)
            telemetry.tell_submitted(span, [submitted.task.id])
            return submitted

    async def _submit_one(self, submission: Submission) -> Submitted:
        if submission.after:
            (answer,) = await self._submit([submission])
            if isinstance(answer, FairleadError):
                raise answer
            return answer
        fresh_for = self._queue_cache.fresh_for
        if fresh_for <= 0:
            await self._queue_cache.refresh()
        if submission.by_name:
            submission = self._queue_cache.as_declared(submission)
        now, queue = self._clock.now(), submission.queue
        task = self._queue_cache.accept(submission, self._ids.task_id(queue, now), now)
        holder = None
        if submission.idempotency_key is not None:
            task, holder = await self.keys.name(task)
        receipt = (await self._task_changes.add((task,)))[0] if holder is None else KeyHeld(holder)
        answer = Submitted(task) if type(receipt) is Added else await self._submitted(submission, task, receipt)
        if self._task_changes.unfinished:
            await self._task_changes.finish()
        if fresh_for <= SOON:
            # Here it delays no task; in front of the next submit it would.
            await self._queue_cache.refresh(SOON)
        if isinstance(answer, FairleadError):
            raise answer
        return answer

    async def submit_many(
        self, submissions: Sequence[Submission], listed: Collection[int] = ()
    ) -> list[Submitted | FairleadError]:
        """Store many tasks; each succeeds or fails by itself, and the answers are in their order.

        `listed` are the positions of those whose submitters are on the allow list.
        """
        if not telemetry.active():
            return await self._submit(submissions, listed)
        with telemetry.submitting(submissions) as (traced, span):
            answers = await self._submit(traced, listed)
            telemetry.tell_submitted(span, [answer.task.id for answer in answers if isinstance(answer, Submitted)])
            return answers

    async def _submit(
        self, submissions: Sequence[Submission], listed: Collection[int] = ()
    ) -> list[Submitted | FairleadError]:
        if self._queue_cache.stale:
            await self._queue_cache.refresh()
        submissions = [
            self._queue_cache.as_declared(submission) if submission.by_name else submission
            for submission in submissions
        ]
        ids = self._ids.task_ids([submission.queue for submission in submissions], self._clock.now())
        batch = _Batch(submissions, ids, Turn(len(submissions), looped=self._batching), listed)
        await self._accept(batch)
        if listed:
            await self._add_listed(batch, {ids[position] for position in listed})
        else:
            await self._add(batch)
        if batch.waiting:
            # How many are waited for is the store's to say, and some may have had nothing to wait for.
            found = await self._store.get([ids[at] for at in batch.waiting])
            for position, task in zip(batch.waiting, found, strict=True):
                batch.answers[position] = batch.answers[position] if task is None else Submitted(task)
        if batch.refused and batch.held:
            await self._submit_again(batch)
        return batch.answers

    async def _accept(self, batch: _Batch) -> None:
        """Make the tasks that the submissions of a batch become."""
        now, turn, accepted, answers = self._clock.now(), batch.turn, batch.accepted, batch.answers
        named = 0
        for position, (submission, task_id) in enumerate(zip(batch.submissions, batch.ids, strict=True)):
            if (position % FEW == 0 or submission.after) and turn.is_over:
                await turn.next()
            try:
                if submission.after:
                    named += len(submission.after)
                    check_batch_after(named)
                    submission = dependencies.named(submission, position, batch.ids)
                task = self._queue_cache.accept(submission, task_id, now)
            except FairleadError as error:
                answers.append(error)
                continue
            holder = None
            if submission.idempotency_key is not None:
                task, holder = await self.keys.name(task)
            if holder is None:
                accepted[position] = task
                answers.append(Submitted(task))
            else:
                batch.held = True
                answers.append(await self._held(submission, holder))

    async def _add_listed(self, batch: _Batch, listed: set[TaskId]) -> None:
        """Store the tasks of a batch of which some are taken however many wait."""
        self._task_changes.listed |= listed
        try:
            await self._add(batch)
        finally:
            self._task_changes.listed -= listed

    async def _add(self, batch: _Batch) -> None:
        """Store the tasks of a batch, and put down what became of those that were not stored."""
        receipts = await self._task_changes.add(list(batch.accepted.values())) if batch.accepted else []
        for (position, task), receipt in zip(batch.accepted.items(), receipts, strict=True):
            if type(receipt) is Added and task.spec.after is None:
                continue
            if batch.turn.is_over:
                await batch.turn.next()
            if isinstance(receipt, Added | Known) and task.spec.after is not None:
                batch.waiting.append(position)
            if isinstance(receipt, Added):
                continue
            batch.answers[position] = await self._submitted(batch.submissions[position], task, receipt, batch.ids)
            if isinstance(receipt, Missing | Apart):
                batch.refused[position] = receipt.named
            batch.held = batch.held or isinstance(receipt, KeyHeld)
        self._task_changes.released |= bool(batch.waiting)
        await self._task_changes.finish()

    async def _submitted(
        self, submission: Submission, task: Task, receipt: Receipt, ids: Sequence[TaskId] = ()
    ) -> Submitted | FairleadError:
        """The answer to a submit whose task was stored, or not."""
        if isinstance(receipt, Added):
            return Submitted(task)
        if isinstance(receipt, Known):
            # Stored by a call that was cut off before it could say so.
            self._task_changes.tell([task], task.spec.created_at)
            return Submitted(task)
        if isinstance(receipt, KeyHeld):
            return await self._held(submission, receipt.holder)
        if isinstance(receipt, Missing | Apart):
            return dependencies.refusal(receipt, ids)
        if isinstance(receipt, KeyUnknown):
            return StoreUnavailable(
                f"the store has lost tasks that its journal knows of, and perhaps the one with idempotency key "
                f"{submission.idempotency_key!r} in queue {task.spec.queue!r}; this task was not stored. Repeat the "
                f"submit when the store is rebuilt"
            )
        return self._queue_cache.full(task, receipt.depth, receipt.bound)

    async def _submit_again(self, batch: _Batch) -> None:
        """Submit those again that were to wait for one of the batch whose key another task holds: for that one now."""
        ids, answers = batch.ids, batch.answers
        stored = {at: said.task.id for at, said in enumerate(answers) if isinstance(said, Submitted)}
        hopeful = {ids[position] for position, task_id in stored.items() if ids[position] != task_id}
        left: dict[int, Submission] = {}
        for position, missing in batch.refused.items():
            if missing in hopeful:
                hopeful.add(ids[position])
                left[position] = batch.submissions[position]
        if left:
            wishes = dependencies.again(left, ids, stored)
            listed = [at for at, position in enumerate(left) if position in batch.listed]
            for position, answer in zip(left, await self._submit(wishes, listed), strict=True):
                answers[position] = answer

    async def prepare(self, submission: Submission) -> Task:
        """The task that a submission becomes, not stored yet."""
        await self._queue_cache.refresh()
        if submission.by_name:
            submission = self._queue_cache.as_declared(submission)
        now = self._clock.now()
        task = self._queue_cache.accept(submission, self._ids.task_id(submission.queue, now), now)
        task, holder = await self.keys.name(task)
        if holder is not None:
            raise key_held(task)
        return task

    async def _held(self, submission: Submission, holder: TaskId) -> Submitted | FairleadError:
        """The task that holds a submission's key; or the submission stored after all, if the holder just went."""
        (task,) = await self._store.get([holder])
        if task is not None:
            return Submitted(task, existing=True)
        (answer,) = await self._submit([submission])
        return answer


def key_held(task: Task) -> InvalidTask:
    """The refusal of a task that is to be part of a transaction, and whose idempotency key another one holds."""
    return InvalidTask(
        "idempotency_key",
        f"idempotency_key {task.spec.key!r} is held by another task of queue {task.spec.queue!r}, so this transaction "
        f"submits nothing; use another key, or submit outside it to get that task",
    )


UPGRADE: Final = "upgrade"
KEY_SCOPE: Final = "key-scope"
UPGRADE_FORM: Final = Form(kind=UPGRADE, decode=decoder(Upgrade), sealed=True)


class KeyScopes:
    """How the keys of one store are named. The store is asked once, for the first key."""

    def __init__(self, records: Records, clock: Clock, settings: Settings) -> None:
        self._records = records
        self._clock = clock
        self._settings = settings
        self._is_known = False
        self._upgrade: Upgrade | None = None

    async def begin(self) -> None:
        """Learn since when the store's servers know scopes; the first of them writes it down."""
        store = self._records.store
        while not self._is_known:
            found = await self._records.find(UPGRADE_FORM, KEY_SCOPE)
            if found is not None:
                self._is_known = True
                self._upgrade = None if isinstance(found, Unread) else found.value
                return
            is_used = bool(await store.find(Filter(), limit=1))
            upgrade = Upgrade(since=self._clock.now() if is_used else None)
            await store.put(UPGRADE, KEY_SCOPE, UPGRADE_FORM.write(upgrade), expected=0)

    async def name(self, task: Task) -> tuple[Task, TaskId | None]:
        """A new task with its key as its store is to know it, and who holds that key by its old name if anyone does."""
        spec = task.spec
        if spec.idempotency_key is None:
            return task, None
        if not self._is_known:
            await self.begin()
        name = key_name(spec.idempotency_key, spec.tenant)
        phase = Phase.OWN if name == spec.idempotency_key else self._phase()
        if phase is Phase.SHARED:
            return task, None
        holder = await self._old_holder(spec) if phase is Phase.BOTH else None
        return Task(replace(spec, idempotency_key=name), task.status), holder

    def _phase(self) -> Phase:
        # While it cannot be read when the upgrade was, both names are looked at.
        return (
            Phase.BOTH
            if self._upgrade is None
            else self._upgrade.phase(self._clock.now(), self._settings.key_retention)
        )

    async def _old_holder(self, spec: Spec) -> TaskId | None:
        """Who holds the key of a task by its old name, if that is its tenant's."""
        store = self._records.store
        holder = await store.holder(spec.queue, spec.idempotency_key or "", now=self._clock.given())
        if holder is None:
            return None
        (task,) = await store.get([holder])
        return holder if task is not None and task.spec.tenant == spec.tenant else None
