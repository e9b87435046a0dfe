"""An engine behind a server: the same calls, over the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from fairlead.admin.circuits.api import RemoteCircuits
from fairlead.admin.dead_letters import api as dead_letters
from fairlead.admin.doctor.api import DIAGNOSE, DiagnosisShown, diagnosis_of
from fairlead.admin.operations.api import RemoteOperations
from fairlead.admin.quarantine.api import RemoteQuarantine
from fairlead.admin.queues.api import RemoteQueues
from fairlead.admin.schedules.api import RemoteSchedules
from fairlead.admin.stats import SHOW_STATS, Standing, stats_of
from fairlead.admin.tenants.api import RemoteTenants
from fairlead.admin.types.api import RemoteTypes
from fairlead.admin.workers.api import SHOW_AUTOSCALE, Autoscale, RemoteWorkers, scaling_of
from fairlead.client.calls import ServerCalls
from fairlead.client.http.transport import Transport
from fairlead.client.submit import Submits
from fairlead.core.errors import FairleadError, InvalidSettings
from fairlead.core.explain.explanation import Cause, Explanation
from fairlead.core.health.autoscale import WITHIN, Scaling, check_question
from fairlead.core.health.diagnosis import Diagnosis
from fairlead.core.identity import TaskId, check_name
from fairlead.core.instant import SECOND, Span
from fairlead.core.query.query import Query
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Priority, Task
from fairlead.engine.engine import Submitted
from fairlead.engine.runtime import telemetry
from fairlead.engine.runtime.clock import Clock, SystemClock
from fairlead.engine.search import Found
from fairlead.engine.stats import Stats
from fairlead.storage.values import Filter
from fairlead.wire.explanations import ExplanationShown, explanation_of
from fairlead.wire.task_endpoints import (
    CANCEL_TASK,
    EXPLAIN_TASK,
    LIST_TASKS,
    SHOW_TASK,
    Order,
    TaskCancelled,
    cursor_after,
    place_of,
)
from fairlead.wire.task_shown import TaskBrief, TaskListed, TaskWhole, task_of
from fairlead.wire.text import iso

_PAGE: Final = 1_000
_LONGEST_WAIT: Final = 20.0
"""How long a server is asked to wait: less than proxies let a request take."""


class _Page(Struct):
    """One page of a list."""

    tasks: list[TaskListed]
    next_cursor: str | None = None


class RemoteEngine:
    """A `fairlead.admin.facade.Facade` over a server.

    Its coroutines suspend if those of its transport do. What needs a role that the key lacks raises StoreRefused.
    """

    def __init__(self, transport: Transport, settings: Settings | None = None, *, joining: bool = False) -> None:
        """With `joining`, submits of one turn of the event loop go as one request; the transport has to suspend."""
        self._transport = transport
        self._ask = ServerCalls(transport)
        self.settings = settings or Settings()
        """Those of this process; the server has its own, and they decide."""
        self.clock: Clock = SystemClock()
        self.queues = RemoteQueues(self._ask)
        """What is said of single queues, and of task types that are paused."""
        self.tenants = RemoteTenants(self._ask)
        """Who shares the queues that are shared by fair keys."""
        self.circuits = RemoteCircuits(self._ask)
        """The circuits of task types."""
        self.types = RemoteTypes(self._ask)
        """The task types that workers have published."""
        self.workers = RemoteWorkers(self._ask)
        """The workers and their tasks."""
        self.schedules = RemoteSchedules(self._ask, self.clock)
        """The schedules; the server fires them."""
        self.dead_letters = dead_letters.RemoteDeadLetters(self._ask)
        """The dead letters, grouped."""
        self.operations = RemoteOperations(self._ask)
        """Actions on all tasks that a query means."""
        self.quarantine = RemoteQuarantine(self._ask)
        """What was set aside because it cannot be decoded."""
        self._submits = Submits(transport, joining=joining)

    async def submit(self, submission: Submission) -> Submitted:
        """Store a task; it is durable when this returns."""
        if not telemetry.active():
            return await self._submits.one(submission)
        with telemetry.submitting([submission]) as ((traced,), span):
            submitted = await self._submits.one(traced)
            telemetry.tell_submitted(span, [submitted.task.id])
            return submitted

    async def submit_many(self, submissions: Sequence[Submission]) -> list[Submitted | FairleadError]:
        """Store many tasks; each succeeds or fails by itself, and the answers are in their order."""
        if not telemetry.active():
            return await self._submits.many(submissions)
        with telemetry.submitting(submissions) as (traced, _):
            return await self._submits.many(traced)

    async def prepare(self, submission: Submission) -> Task:
        """Not over a server: only on the store itself can a submit be part of a transaction."""
        raise InvalidSettings(
            "submit_in needs an app on PostgreSQL itself, not on a server; give the app the store's own URL"
        )

    async def cancel(self, task_id: TaskId) -> Task:
        """Cancel a waiting task at once; ask the worker of an executing one to stop."""
        await self._ask(CANCEL_TASK, TaskCancelled, query={"wait": "0"}, subject=task_id, task_id=task_id)
        return await self.get(task_id)

    async def replay(self, task_id: TaskId, *, reset_retries: bool = True, priority: Priority | None = None) -> Task:
        """Queue an ended task again."""
        body = {"reset_retry_count": reset_retries, "new_priority": None if priority is None else priority.word}
        return task_of(await self._ask(dead_letters.REPLAY, TaskBrief, body, subject=task_id, task_id=task_id))

    async def discard(self, task_id: TaskId) -> Task:
        """Remove a dead letter, or a failed or cancelled task; the answer is how it stood."""
        return task_of(await self._ask(dead_letters.DISCARD, TaskBrief, subject=task_id, task_id=task_id))

    async def get(self, task_id: TaskId) -> Task:
        """The task with this id."""
        return await self.get_ended(task_id, 0)

    async def get_ended(self, task_id: TaskId, seconds: float) -> Task:
        """The task when it has ended, or as it stands after so many seconds, or sooner if the server thinks best."""
        wait = max(0.0, min(seconds, _LONGEST_WAIT))
        query = {"include_history": "true", "wait": f"{wait:.3f}"}
        shown = await self._ask(SHOW_TASK, TaskWhole, query=query, subject=task_id, wait=wait, task_id=task_id)
        return task_of(shown)

    async def explain(self, task_id: TaskId) -> Explanation:
        """Why a task waits, or ran when it ran."""
        return explanation_of(await self._ask(EXPLAIN_TASK, ExplanationShown, subject=task_id, task_id=task_id))

    async def doubts(self, submitted: Submitted) -> tuple[Cause, ...]:
        """Why no live worker could run a task that was just submitted, as the server said."""
        return submitted.doubts

    async def find(
        self,
        matching: Filter | None = None,
        *,
        limit: int = 100,
        newest_first: bool = True,
        after: TaskId | None = None,
    ) -> list[Task]:
        """The tasks that match, without their parameters, results and history; the last one's id leads further."""
        order: Order = "newest" if newest_first else "oldest"
        query = {**_query(matching or Filter()), "order": order}
        cursor = None if after is None else cursor_after(after, order)
        found: list[Task] = []
        while len(found) < limit:
            asked = {**query, "limit": str(min(_PAGE, limit - len(found))), **({"cursor": cursor} if cursor else {})}
            page = await self._ask(LIST_TASKS, _Page, query=asked)
            found += [task_of(shown) for shown in page.tasks]
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    async def search(
        self,
        query: Query,
        *,
        within: Filter | None = None,
        limit: int = 100,
        newest_first: bool = True,
        after: TaskId | None = None,
        parameters: bool = False,
    ) -> Found:
        """One page of what a query means, without results and history; it may not be full.

        What a task was submitted with beside its options comes with `parameters` only, and defaults without.
        """
        order: Order = "newest" if newest_first else "oldest"
        asked = {**_query(within or Filter()), "q": str(query), "limit": str(min(limit, _PAGE)), "order": order}
        if after is not None:
            asked["cursor"] = cursor_after(after, order)
        if parameters:
            asked["include_parameters"] = "true"
        page = await self._ask(LIST_TASKS, _Page, query=asked)
        cursor = None if page.next_cursor is None else place_of(page.next_cursor, order)
        return Found([task_of(shown) for shown in page.tasks], cursor)

    async def stats(self) -> Stats:
        """Statistics of the queues and the workers."""
        return stats_of(await self._ask(SHOW_STATS, Standing))

    async def autoscale(
        self, queue: str | None = None, *, within: Span = WITHIN, capacity: int | None = None
    ) -> Scaling:
        """How much one queue has to do, or all of them, and how many workers that takes."""
        check_question(within, capacity)
        query = {"within_seconds": f"{within / SECOND:.6f}"}
        if queue is not None:
            query["queue"] = check_name("queue", queue)
        if capacity is not None:
            query["capacity"] = str(capacity)
        return scaling_of(await self._ask(SHOW_AUTOSCALE, Autoscale, query=query))

    async def diagnose(self) -> Diagnosis:
        """Whether all is as it should be, seen from the server."""
        return diagnosis_of(await self._ask(DIAGNOSE, DiagnosisShown))

    async def follow_clock(self) -> None:
        """The server's clock is the one that counts, and it is there."""

    async def close(self) -> None:
        """Close the way to the server."""
        await self._transport.close()


def _query(matching: Filter) -> dict[str, str]:
    fields = {
        "status": ",".join(sorted(matching.states)) or None,
        "queue": matching.queue,
        "task_type": matching.type,
        "priority": None if matching.priority is None else matching.priority.word,
        "worker": matching.worker,
        "tag": matching.tag,
        "created_from": None if matching.created_from is None else iso(matching.created_from),
        "created_before": None if matching.created_before is None else iso(matching.created_before),
    }
    return {name: value for name, value in fields.items() if value is not None}
