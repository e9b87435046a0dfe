"""What producers and operators do with tasks, wherever the engine is that does it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, Unpack, runtime_checkable

from fairlead.core.circuit import Circuit, CircuitSettings
from fairlead.core.diagnosis import Diagnosis
from fairlead.core.errors import FairleadError
from fairlead.core.explanation import Cause, Explanation
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.operation import Operation
from fairlead.core.query import EVERYTHING, Query
from fairlead.core.queue import QueueSettings
from fairlead.core.scaling import WITHIN
from fairlead.core.schedule import Schedule, ScheduleEntry
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Priority, Task
from fairlead.engine.clock import Clock
from fairlead.engine.dead_letters import Groups
from fairlead.engine.engine import Submitted
from fairlead.engine.fleet import WorkerReport
from fairlead.engine.operations import Preview, Wish
from fairlead.engine.presence import WorkerPresence
from fairlead.engine.purging import PurgeCount
from fairlead.engine.queues import QueueChanges
from fairlead.engine.scaling import Scaling
from fairlead.engine.scheduling import Put
from fairlead.engine.searching import Found
from fairlead.engine.stats import Stats
from fairlead.storage.values import Filter


class QueueFacade(Protocol):
    """What people do with queues: `fairlead.engine.queues.Queues`, or the same behind a server."""

    async def all(self) -> dict[str, QueueSettings]: ...

    async def get(self, queue: str) -> QueueSettings: ...

    async def paused_types(self) -> list[str]: ...

    async def pause(self, queue: str) -> QueueSettings: ...

    async def resume(self, queue: str) -> QueueSettings: ...

    async def change(self, queue: str, **changes: Unpack[QueueChanges]) -> QueueSettings: ...

    async def reset(self, queue: str) -> QueueSettings: ...

    async def pause_type(self, task_type: str) -> None: ...

    async def resume_type(self, task_type: str) -> None: ...

    async def purge(self, queue: str, limit: int | None = None) -> PurgeCount: ...


class CircuitFacade(Protocol):
    """What people do with circuits: `fairlead.engine.circuits.Circuits`, or the same behind a server."""

    async def all(self) -> dict[str, Circuit]: ...

    async def find(self, task_type: str) -> Circuit | None: ...

    async def get(self, task_type: str) -> Circuit: ...

    async def set(self, task_type: str, settings: CircuitSettings) -> Circuit: ...

    async def declare(self, circuits: Mapping[str, CircuitSettings]) -> None: ...

    async def remove(self, task_type: str) -> Circuit: ...

    async def open(self, task_type: str) -> Circuit: ...

    async def close(self, task_type: str) -> Circuit: ...


class ScheduleFacade(Protocol):
    """What people do with schedules: `fairlead.engine.scheduling.Schedules`, or the same behind a server."""

    async def add(self, schedule: Schedule, *, paused: bool = False) -> ScheduleEntry: ...

    async def put(self, schedule: Schedule, *, paused: bool | None = None) -> Put: ...

    async def declare(self, schedules: Iterable[Schedule]) -> None: ...

    async def all(self) -> list[ScheduleEntry]: ...

    async def get(self, name: str) -> ScheduleEntry: ...

    async def pause(self, name: str) -> ScheduleEntry: ...

    async def resume(self, name: str) -> ScheduleEntry: ...

    async def remove(self, name: str) -> ScheduleEntry: ...

    async def run_now(self, name: str) -> Task: ...

    async def preview(self, name: str, count: int = 10) -> list[Instant]: ...


class WorkerFacade(Protocol):
    """What people do with workers: `fairlead.engine.fleet.Fleet`, or the same behind a server."""

    async def all(self) -> list[WorkerPresence]: ...

    async def get(self, named: str) -> WorkerReport: ...

    async def drain(self, named: str) -> WorkerPresence: ...


class DeadLetterFacade(Protocol):
    """What people ask of dead letters: `fairlead.engine.dead_letters.DeadLetters`, or the same behind a server."""

    async def groups(self, query: Query = EVERYTHING) -> Groups: ...


class OperationFacade(Protocol):
    """What people do with operations: `fairlead.engine.operations.Operations`, or the same behind a server."""

    async def preview(self, wish: Wish) -> Preview: ...

    async def start(self, wish: Wish) -> Operation: ...

    async def all(self) -> list[Operation]: ...

    async def get(self, operation_id: str) -> Operation: ...

    async def pause(self, operation_id: str) -> Operation: ...

    async def resume(self, operation_id: str) -> Operation: ...

    async def cancel(self, operation_id: str) -> Operation: ...

    async def step(self, operation_id: str) -> Operation:
        """Do a batch here, if no other process works on it; how it then stands."""
        ...


class Facade(Protocol):
    """An engine as its users see it: `fairlead.engine.engine.Engine`, or one behind a server."""

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
    ) -> Found: ...

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
    def circuits(self) -> CircuitFacade: ...

    @property
    def workers(self) -> WorkerFacade: ...

    async def close(self) -> None: ...


@runtime_checkable
class Patient(Protocol):
    """An engine that is better asked once to wait than often how it stands."""

    async def get_ended(self, task_id: TaskId, seconds: float) -> Task:
        """The task when it has ended, or as it stands about so many seconds later."""
        ...
