"""An engine behind a server: the same calls, over the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from fairlead.client.circuits import RemoteCircuits
from fairlead.client.fleet import RemoteFleet
from fairlead.client.operations import RemoteDeadLetters, RemoteOperations, RemoteSearch
from fairlead.client.problems import decoded
from fairlead.client.queues import RemoteQueues
from fairlead.client.schedules import RemoteSchedules
from fairlead.client.submitting import Submits
from fairlead.client.tasks import stats_of, task_of
from fairlead.client.transport import PATIENCE, Transport
from fairlead.core.diagnosis import Diagnosis
from fairlead.core.errors import FairleadError, InvalidSettings
from fairlead.core.explanation import Cause, Explanation
from fairlead.core.identity import TaskId
from fairlead.core.instant import SECOND, Span
from fairlead.core.query import Query
from fairlead.core.scaling import WITHIN
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Priority, Task
from fairlead.engine import tracing
from fairlead.engine.clock import Clock, SystemClock
from fairlead.engine.engine import Submitted
from fairlead.engine.scaling import Scaling
from fairlead.engine.searching import Found
from fairlead.engine.stats import Stats
from fairlead.storage.values import Filter
from fairlead.wire.cursors import Order, cursor_after
from fairlead.wire.doctor import DiagnosisShown, diagnosis_of
from fairlead.wire.explanations import ExplanationShown, explanation_of
from fairlead.wire.moments import iso
from fairlead.wire.scaling import Autoscale, scaling_of
from fairlead.wire.shown import TaskBrief, TaskWhole
from fairlead.wire.stats import Standing

T = TypeVar("T")

_PAGE: Final = 1_000
_LONGEST_WAIT: Final = 20.0
"""How long a server is asked to wait: less than proxies let a request take."""

_encode: Final = msgspec.json.Encoder().encode


class _Page(Struct):
    """One page of a list."""

    tasks: list[TaskBrief]
    next_cursor: str | None = None


class RemoteEngine:
    """A `fairlead.engine.facade.Facade` over a server.

    Its coroutines suspend if those of its transport do. What needs a role that the key lacks raises StoreRefused.
    """

    def __init__(self, transport: Transport, settings: Settings | None = None, *, joining: bool = False) -> None:
        """With `joining`, submits of one turn of the event loop go as one request; the transport has to suspend."""
        self._transport = transport
        self.settings = settings or Settings()
        """Those of this process; the server has its own, and they decide."""
        self.clock: Clock = SystemClock()
        self.queues = RemoteQueues(transport)
        """What is said of single queues, and of task types that are paused."""
        self.circuits = RemoteCircuits(transport)
        """The circuits of task types."""
        self.workers = RemoteFleet(transport)
        """The workers and their tasks."""
        self.schedules = RemoteSchedules(transport)
        """The schedules; the server fires them."""
        self.dead_letters = RemoteDeadLetters(transport)
        """The dead letters, grouped."""
        self.operations = RemoteOperations(transport)
        """Actions on all tasks that a query means."""
        self._search = RemoteSearch(transport)
        self._submits = Submits(transport, joining=joining)

    async def submit(self, submission: Submission) -> Submitted:
        """Store a task; it is durable when this returns."""
        if not tracing.active():
            return await self._submits.one(submission)
        with tracing.submitting([submission]) as ((traced,), span):
            submitted = await self._submits.one(traced)
            tracing.tell_submitted(span, [submitted.task.id])
            return submitted

    async def submit_many(self, submissions: Sequence[Submission]) -> list[Submitted | FairleadError]:
        """Store many tasks; each succeeds or fails by itself, and the answers are in their order."""
        if not tracing.active():
            return await self._submits.many(submissions)
        with tracing.submitting(submissions) as (traced, _):
            return await self._submits.many(traced)

    async def prepare(self, submission: Submission) -> Task:
        """Not over a server: only on the store itself can a submit be part of a transaction."""
        raise InvalidSettings(
            "submit_in needs an app on PostgreSQL itself, not on a server; give the app the store's own URL"
        )

    async def cancel(self, task_id: TaskId) -> Task:
        """Cancel a waiting task at once; ask the worker of an executing one to stop."""
        await self._ask("DELETE", f"/api/v1/tasks/{task_id}", dict[str, object], query={"wait": "0"}, subject=task_id)
        return await self.get(task_id)

    async def replay(self, task_id: TaskId, *, reset_retries: bool = True, priority: Priority | None = None) -> Task:
        """Queue an ended task again."""
        body = _encode(
            {"reset_retry_count": reset_retries, "new_priority": None if priority is None else priority.word}
        )
        shown = await self._ask("POST", f"/api/v1/dlq/{task_id}/replay", TaskBrief, body=body, subject=task_id)
        return task_of(shown)

    async def discard(self, task_id: TaskId) -> Task:
        """Remove a dead letter, or a failed or cancelled task; the answer is how it stood."""
        return task_of(await self._ask("DELETE", f"/api/v1/dlq/{task_id}", TaskBrief, subject=task_id))

    async def get(self, task_id: TaskId) -> Task:
        """The task with this id."""
        return await self.get_ended(task_id, 0)

    async def get_ended(self, task_id: TaskId, seconds: float) -> Task:
        """The task when it has ended, or as it stands after so many seconds, or sooner if the server thinks best."""
        wait = max(0.0, min(seconds, _LONGEST_WAIT))
        query = {"include_history": "true", "wait": f"{wait:.3f}"}
        path = f"/api/v1/tasks/{task_id}"
        return task_of(await self._ask("GET", path, TaskWhole, query=query, subject=task_id, patience=PATIENCE + wait))

    async def explain(self, task_id: TaskId) -> Explanation:
        """Why a task waits, or ran when it ran."""
        path = f"/api/v1/tasks/{task_id}/explain"
        return explanation_of(await self._ask("GET", path, ExplanationShown, subject=task_id))

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
            page = await self._ask("GET", "/api/v1/tasks", _Page, query=asked)
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
    ) -> Found:
        """One page of what a query means, without parameters, results and history; it may not be full."""
        return await self._search.page(query, _query(within or Filter()), limit, newest_first, after)

    async def stats(self) -> Stats:
        """How the queues stand."""
        return stats_of(await self._ask("GET", "/api/v1/queue/stats", Standing))

    async def autoscale(
        self, queue: str | None = None, *, within: Span = WITHIN, capacity: int | None = None
    ) -> Scaling:
        """How much one queue has to do, or all of them, and how many workers that takes."""
        query = {"within_seconds": f"{within / SECOND:.6f}"}
        if queue is not None:
            query["queue"] = queue
        if capacity is not None:
            query["capacity"] = str(capacity)
        return scaling_of(await self._ask("GET", "/api/v1/autoscale", Autoscale, query=query))

    async def diagnose(self) -> Diagnosis:
        """Whether all is as it should be, seen from the server."""
        return diagnosis_of(await self._ask("GET", "/api/v1/doctor", DiagnosisShown))

    async def follow_clock(self) -> None:
        """The server's clock is the one that counts, and it is there."""

    async def close(self) -> None:
        """Close the way to the server."""
        await self._transport.close()

    async def _ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        body: bytes | None = None,
        query: dict[str, str] | None = None,
        subject: str = "",
        patience: float = PATIENCE,
    ) -> T:
        reply = await self._transport.ask(method, path, body, query=query, patience=patience)
        return decoded(reply, kind, self._transport.address, subject)


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
