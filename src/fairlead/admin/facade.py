"""What producers and operators do with tasks, wherever the engine is that does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from fairlead.core.errors import FairleadError
from fairlead.core.health.autoscale import WITHIN, Scaling
from fairlead.core.identity import TaskId
from fairlead.core.instant import Span
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Priority, Task
from fairlead.engine.engine import Submitted
from fairlead.engine.runtime.clock import Clock
from fairlead.storage.values import Filter

if TYPE_CHECKING:
    from fairlead.admin.circuits.api import RemoteCircuits
    from fairlead.admin.circuits.service import Circuits
    from fairlead.admin.dead_letters.api import RemoteDeadLetters
    from fairlead.admin.dead_letters.service import DeadLetters
    from fairlead.admin.operations.api import RemoteOperations
    from fairlead.admin.operations.service import Operations
    from fairlead.admin.quarantine.api import RemoteQuarantine
    from fairlead.admin.quarantine.service import QuarantineRecords
    from fairlead.admin.queues.api import RemoteQueues
    from fairlead.admin.queues.service import Queues
    from fairlead.admin.schedules.api import RemoteSchedules
    from fairlead.admin.schedules.service import Schedules
    from fairlead.admin.tenants.api import RemoteTenants
    from fairlead.admin.tenants.service import Tenants
    from fairlead.admin.types.api import RemoteTypes
    from fairlead.admin.types.service import Types
    from fairlead.admin.workers.api import RemoteWorkers
    from fairlead.admin.workers.service import Workers
    from fairlead.core.explain.explanation import Cause, Explanation
    from fairlead.core.health.diagnosis import Diagnosis
    from fairlead.core.query.query import Query
    from fairlead.engine.search import Found
    from fairlead.engine.stats import Stats

QueueFacade: TypeAlias = "Queues | RemoteQueues"
TenantFacade: TypeAlias = "Tenants | RemoteTenants"
CircuitFacade: TypeAlias = "Circuits | RemoteCircuits"
ScheduleFacade: TypeAlias = "Schedules | RemoteSchedules"
TypeFacade: TypeAlias = "Types | RemoteTypes"
WorkerFacade: TypeAlias = "Workers | RemoteWorkers"
DeadLetterFacade: TypeAlias = "DeadLetters | RemoteDeadLetters"
OperationFacade: TypeAlias = "Operations | RemoteOperations"
QuarantineFacade: TypeAlias = "QuarantineRecords | RemoteQuarantine"
"""What people do with each thing: the service over an engine, or the calls of a server. An operation is there when both
have it."""


class Facade(Protocol):
    """An engine as its users see it: `fairlead.admin.engine.AdminEngine`, or one behind a server."""

    @property
    def settings(self) -> Settings: ...

    @property
    def clock(self) -> Clock: ...

    async def submit(self, submission: Submission) -> Submitted: ...

    async def submit_many(self, submissions: Sequence[Submission]) -> list[Submitted | FairleadError]: ...

    async def prepare(self, submission: Submission) -> Task: ...

    async def cancel(self, task_id: TaskId) -> Task: ...

    async def replay(
        self, task_id: TaskId, *, reset_retries: bool = True, priority: Priority | None = None
    ) -> Task: ...

    async def discard(self, task_id: TaskId) -> Task: ...

    async def get(self, task_id: TaskId) -> Task: ...

    async def explain(self, task_id: TaskId) -> Explanation: ...

    async def doubts(self, submitted: Submitted) -> tuple[Cause, ...]: ...

    async def find(
        self,
        matching: Filter | None = None,
        *,
        limit: int = 100,
        newest_first: bool = True,
        after: TaskId | None = None,
    ) -> list[Task]: ...

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
        """One page of what a query means; from a server, tasks come without their parameters unless asked for."""
        ...

    async def stats(self) -> Stats: ...

    async def autoscale(
        self, queue: str | None = None, *, within: Span = WITHIN, capacity: int | None = None
    ) -> Scaling: ...

    async def diagnose(self) -> Diagnosis: ...

    @property
    def schedules(self) -> ScheduleFacade: ...

    @property
    def dead_letters(self) -> DeadLetterFacade: ...

    @property
    def operations(self) -> OperationFacade: ...

    @property
    def queues(self) -> QueueFacade: ...

    @property
    def tenants(self) -> TenantFacade: ...

    @property
    def circuits(self) -> CircuitFacade: ...

    @property
    def types(self) -> TypeFacade: ...

    @property
    def workers(self) -> WorkerFacade: ...

    @property
    def quarantine(self) -> QuarantineFacade: ...

    async def close(self) -> None: ...


@runtime_checkable
class Patient(Protocol):
    """An engine that is better asked once to wait than often how it stands."""

    async def get_ended(self, task_id: TaskId, seconds: float) -> Task:
        """The task when it has ended, or as it stands about so many seconds later."""
        ...


async def gather(
    engine: Facade,
    query: Query,
    within: Filter | None = None,
    *,
    limit: int,
    after: TaskId | None = None,
    newest_first: bool = True,
    parameters: bool = False,
) -> Found:
    """A whole page of what a query means, however many tasks must be looked at; its cursor leads to the next."""
    from fairlead.engine.search import Found

    tasks: list[Task] = []
    while True:
        rest = limit - len(tasks)
        found = await engine.search(
            query, within=within, limit=rest, newest_first=newest_first, after=after, parameters=parameters
        )
        tasks += found.tasks
        after = found.cursor
        if after is None or len(tasks) >= limit:
            return Found(tasks, after)
