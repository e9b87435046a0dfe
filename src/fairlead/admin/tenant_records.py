"""Schedules and operations as a caller sees them whose key is bound to a tenant: each of them is one tenant's."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import Forbidden, OperationNotFound, ScheduleExists, ScheduleNotFound
from fairlead.core.instant import Instant, Span
from fairlead.core.operation import NewOperation, Operation, Preview
from fairlead.core.schedule import Put, Schedule, ScheduleEntry, late
from fairlead.core.submission import of_bound
from fairlead.core.task import Task
from fairlead.core.tenancy import tenant_named
from fairlead.engine.dependencies import shown_to
from fairlead.engine.worker_records import WorkerRecord


class TenantSchedules:
    """What one caller can do with schedules: with those whose tasks are its tenant's."""

    def __init__(self, engine: AdminEngine, tenant: str | None) -> None:
        self._engine = engine
        self._tenant = tenant

    async def all(self) -> list[ScheduleEntry]:
        """Every schedule, by name."""
        await self._engine.queue_cache.refresh()
        return [entry for entry in await self._engine.schedules.all() if self._sees(entry.schedule)]

    async def lateness(self) -> Span:
        """How long ago the most overdue schedule should have fired; 0 if none is overdue."""
        now = self._engine.clock.now()
        return max((late(entry, now) for entry in await self.all()), default=0)

    async def get(self, name: str) -> ScheduleEntry:
        """The schedule with this name."""
        await self._engine.queue_cache.refresh()
        entry = await self._engine.schedules.get(name)
        if not self._sees(entry.schedule):
            raise ScheduleNotFound(name)
        return entry

    async def add(self, schedule: Schedule, *, paused: bool = False) -> ScheduleEntry:
        """Store a new schedule."""
        return await self._engine.schedules.add(self._owned(schedule), paused=paused)

    async def put(self, schedule: Schedule, *, paused: bool | None = None) -> Put:
        """Store a schedule, new or in place of the one by this name, unless that is another's."""
        await self._engine.queue_cache.refresh()
        return await self._engine.schedules.put(self._owned(schedule), paused=paused, replaces=self._check_own)

    async def declare(self, schedules: Iterable[Schedule], worker: WorkerRecord) -> None:
        """Put the schedules that the program of a worker declares: of types that it handles, into queues it serves.

        Nor does it replace one that is about anything else. Raises Forbidden, which says what it lacks.
        """
        await self._engine.queue_cache.refresh()
        own = [self._owned(schedule) for schedule in schedules]
        known = {entry.name: entry.schedule for entry in await self._engine.schedules.all()}
        for schedule in own:
            _check_served(schedule, worker)
            if (before := known.get(schedule.name)) is not None:
                self._check_own(schedule.name, before)
                _check_served(before, worker)
        await self._engine.schedules.declare(own)

    async def remove(self, name: str) -> ScheduleEntry:
        """Remove a schedule; the answer is how it stood."""
        return await self._engine.schedules.remove((await self.get(name)).name)

    async def pause(self, name: str) -> ScheduleEntry:
        """Pause a schedule: it does not fire until it is resumed."""
        return await self._engine.schedules.pause((await self.get(name)).name)

    async def resume(self, name: str) -> ScheduleEntry:
        """Let a paused schedule fire again."""
        return await self._engine.schedules.resume((await self.get(name)).name)

    async def run_now(self, name: str) -> Task:
        """Submit a schedule's task at once."""
        return await self._engine.schedules.run_now((await self.get(name)).name)

    async def preview(self, name: str, count: int) -> tuple[Schedule, list[Instant]]:
        """A schedule and its next fire times."""
        schedule = (await self.get(name)).schedule
        return schedule, self._engine.schedules.foresee(schedule, count, after=self._engine.clock.now())

    def _owned(self, schedule: Schedule) -> Schedule:
        submission = schedule.submission
        tenant = tenant_named(self._tenant, submission.tenant)
        return replace(schedule, submission=of_bound(replace(submission, tenant=tenant), self._tenant))

    def _check_own(self, name: str, before: Schedule | None) -> None:
        """Refuse to replace another's schedule, or one that cannot be read and may be another's."""
        if self._tenant is not None and (before is None or not self._sees(before)):
            raise ScheduleExists(name)

    def _sees(self, schedule: Schedule) -> bool:
        """Whether what a schedule submits is the tenant's: by itself, or by its queue."""
        if self._tenant is None:
            return True
        submission = schedule.submission
        whose = submission.tenant or self._engine.queue_cache.tenants.get(submission.queue)
        return whose == self._tenant


def _check_served(schedule: Schedule, worker: WorkerRecord) -> None:
    """Raise Forbidden if a worker does not run what a schedule submits."""
    submission = schedule.submission
    if worker.types is not None and submission.type not in worker.types:
        raise Forbidden(
            f"schedule {schedule.name} submits {submission.type}, for which worker {worker.id[:200]} has no handler",
            "declare it in the program that has one, or put it with a key that has the role admin",
        )
    if submission.queue not in worker.queues:
        raise Forbidden(
            f"schedule {schedule.name} submits to queue {submission.queue}, which worker {worker.id[:200]} does not "
            f"serve",
            "have the worker serve it, or put the schedule with a key that has the role admin",
        )


class TenantOperations:
    """What one caller can do with operations: with those that act on its tenant's tasks."""

    def __init__(self, engine: AdminEngine, tenant: str | None) -> None:
        self._engine = engine
        self._tenant = tenant

    async def preview(self, wish: NewOperation) -> Preview:
        """What an operation would act on."""
        preview = await self._engine.operations.preview(self._owned(wish))
        return replace(preview, sample=await shown_to(self._engine.store, preview.sample, self._tenant))

    async def start(self, wish: NewOperation) -> Operation:
        """Begin an operation."""
        return await self._engine.operations.start(self._owned(wish))

    async def all(self) -> list[Operation]:
        """Every operation that is kept, the newest first."""
        return [each for each in await self._engine.operations.all() if self._sees(each)]

    async def get(self, operation_id: str) -> Operation:
        """The operation with this id."""
        operation = await self._engine.operations.get(operation_id)
        if not self._sees(operation):
            raise OperationNotFound(operation_id)
        return operation

    async def pause(self, operation_id: str, note: str) -> Operation:
        """Stop an operation until it is resumed."""
        return await self._engine.operations.pause((await self.get(operation_id)).id, note)

    async def resume(self, operation_id: str) -> Operation:
        """Let an operation go on from where it was."""
        return await self._engine.operations.resume((await self.get(operation_id)).id)

    async def cancel(self, operation_id: str, note: str) -> Operation:
        """Cancel an operation; tasks that were changed stay changed."""
        return await self._engine.operations.cancel((await self.get(operation_id)).id, note)

    def _owned(self, wish: NewOperation) -> NewOperation:
        return wish if self._tenant is None else replace(wish, tenant=self._tenant)

    def _sees(self, operation: Operation) -> bool:
        return self._tenant is None or operation.tenant == self._tenant
