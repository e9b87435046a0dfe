"""Three owners who share a store: two tenants, and those who belong to none. Each has one thing of every kind."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.circuit import CircuitSettings
from fairlead.core.events import Failed
from fairlead.core.identity import WorkerId
from fairlead.core.instant import MILLISECOND
from fairlead.core.operation import Action, NewOperation
from fairlead.core.query.parser import parse_query
from fairlead.core.schedule import Schedule, ScheduleEntry
from fairlead.core.submission import Declaration, Submission
from fairlead.core.task import Failure, Task
from fairlead.core.tenancy import Role
from fairlead.engine.engine import Settlement
from fairlead.engine.queue_cache import DECLARATION_FORM, DECLARATION_KIND
from fairlead.engine.scheduler import FORM
from fairlead.engine.worker_records import WorkerRecord
from fairlead.server.routes.worker_results import seal
from fairlead.storage.values import Filter
from tests.server.doors import Doors, Said

ACME: Final = "acme"
UMBRELLA: Final = "umbrella"
NOBODY: Final = "nobody"
"""What belongs to no tenant is called by this name."""
FRESH: Final = "fresh"
"""The name of a schedule that somebody adds."""
OWNERS: Final = (ACME, UMBRELLA, NOBODY)

KINDS: Final = (
    "queue", "type", "declaration", "circuit", "schedule", "operation", "worker", "drain", "pause", "quarantine",
)  # fmt: skip
"""The kinds of records that can be somebody's."""


class Things(Struct, frozen=True, kw_only=True):
    """One of every kind, all of one owner; or names and ids of the same form that nothing has."""

    owner: str
    tenant: str | None
    queue: str
    type: str
    queued: str
    executing: str
    lease: str
    dead: str
    worker: str
    lost: str
    """A worker that has not been heard of for so long that it counts as dead."""
    operation: str
    schedule: str
    record: str
    """The name of a schedule that was set aside."""
    parts: dict[str, str] = {}
    """What mends it."""

    @property
    def names(self) -> list[str]:
        """All that tells of them."""
        return [
            *([] if self.tenant is None else [self.tenant]), self.queue, self.type, self.queued, self.executing,
            self.lease, self.dead, self.worker, self.lost, self.operation, self.schedule, self.record,
        ]  # fmt: skip


UNKNOWN: Final = Things(
    owner="missing",
    tenant="missing",
    queue="missing-line",
    type="missing-type",
    queued="01a1de8543e98af180df27e580779234",
    executing="01a1de8543e98af180df27e580779235",
    lease="1.missing",
    dead="01a1de8543e98af180df27e580779236",
    worker="missing-worker",
    lost="missing-lost",
    operation="01a1de8543e98af1",
    schedule="missing-schedule",
    record="missing-record",
)


class Town:
    """A server, the things of all owners, and keys to call it with."""

    def __init__(self) -> None:
        self.doors = Doors()
        self.engine = self.doors.engine
        self.things: dict[str, Things] = {}
        self.keys: dict[tuple[str, Role], str] = {}
        self._key_ids: dict[tuple[str, Role], str] = {}

    @classmethod
    async def build(cls, role: Role) -> Town:
        """With keys of this role for all; that of acme has registered acme's worker, and likewise."""
        town = cls()
        for owner in OWNERS:
            await town._let_in(owner, role)
        await town._let_in(NOBODY, Role.ADMIN)
        for owner in OWNERS:
            await town._register(owner, "lost", role)
        town.doors.clock.advance(town.engine.settings.lease + MILLISECOND)
        for owner in OWNERS:
            town.doors.clock.advance(MILLISECOND)  # No two of the short ids of operations are the same.
            town.things[owner] = await town._furnish(owner, role)
        # Whatever waits or streams ends at once.
        town.doors.state.stopping.set()
        return town

    async def call(self, owner: str, role: Role, method: str, path: str, body: Any = None) -> Said:
        """Call with a key of this owner and role."""
        return await self.doors.call(method, path, key=self.keys[owner, role], json=body)

    async def standing(self, owner: str) -> dict[str, Any]:
        """All that is an owner's, as it is stored."""
        tenant = None if owner == NOBODY else owner
        tasks = await self.engine.store.find(Filter(), limit=1_000)
        found: dict[str, Any] = {task.id: task for task in tasks if task.spec.tenant == tenant}
        mine = self.things[owner]
        for kind in KINDS:
            for record in await self.engine.store.scan(kind):
                if kind == DECLARATION_KIND and DECLARATION_FORM.read(record).tenant not in (None, tenant):
                    # Another's word on a type of this name.
                    continue
                if any(name in record.name for name in (owner, mine.operation)) or (
                    record.name == FRESH and FORM.read(record).schedule.submission.tenant == tenant
                ):
                    found[f"{kind}/{record.name}"] = record.value
        return found

    def secrets(self, *owners: str) -> list[str]:
        """What would tell of these owners' things."""
        unnamed = [f"{owner}-{what}" for owner in owners for what in ("host", "error", "boss")]
        return [*unnamed, *(name for owner in owners for name in self.things[owner].names)]

    async def _let_in(self, owner: str, role: Role) -> None:
        tenant = None if owner == NOBODY else owner
        if (owner, role) not in self.keys:
            made = await self.doors.key(role, tenant=tenant, name=f"{owner}-{role}")
            self.keys[owner, role], self._key_ids[owner, role] = made.text, made.key.id

    async def _furnish(self, owner: str, role: Role) -> Things:
        engine, tenant = self.engine, None if owner == NOBODY else owner
        queue, task_type = f"{owner}-line", f"{owner}-type"
        if tenant is not None:
            await engine.queues.change(queue, tenant=tenant)
        await engine.circuits.set(task_type, CircuitSettings())
        await engine.types.of(tenant).declare([Declaration(submission=Submission(type=task_type))])
        worker = await self._register(owner, "worker", role)
        dead = await self._taken(owner, worker.id)
        failed = Failed(failure=Failure(type=f"{owner}-error", message=f"{owner} said so"), retriable=False)
        await engine.settle([Settlement(dead, failed)])
        executing = await self._taken(owner, worker.id)
        submission = Submission(type=task_type, queue=queue, tenant=tenant)
        parked = (await engine.submit(replace(submission, delay=10**9))).task
        queued = (await engine.submit(submission)).task
        operation = await engine.operations.start(
            NewOperation(action=Action.CANCEL, query=parse_query(f"id:{parked.id}"), tenant=tenant, who=f"{owner}-boss")
        )
        entry = await engine.schedules.add(Schedule(name=f"{owner}-schedule", cron="@daily", submission=submission))
        return Things(
            owner=owner,
            tenant=tenant,
            queue=queue,
            type=task_type,
            queued=queued.id,
            executing=executing.id,
            lease=seal(executing),
            dead=dead.id,
            worker=worker.id,
            lost=f"{owner}-lost",
            operation=operation.id,
            schedule=entry.name,
            record=f"{owner}-record",
            parts=await self._damage(f"{owner}-record", entry),
        )

    async def _register(self, owner: str, what: str, role: Role) -> WorkerRecord:
        return await self.engine.worker_records.register(
            WorkerId(f"{owner}-{what}"),
            queues=[f"{owner}-line"],
            capacity=3,
            host=f"{owner}-host",
            key=self._key_ids[owner, role],
            tenant=None if owner == NOBODY else owner,
        )

    async def _damage(self, name: str, like: ScheduleEntry) -> dict[str, str]:
        """Have a schedule set aside that was damaged; what mends it."""
        await self.engine.store.put("schedule", name, b"\xff")
        await self.engine.schedules.all()
        mended = FORM.write(ScheduleEntry(replace(like.schedule, name=name), like.status, like.created_at))
        return {"value": base64.b64encode(mended).decode()}

    async def _taken(self, owner: str, worker: WorkerId) -> Task:
        tenant = None if owner == NOBODY else owner
        submission = Submission(type=f"{owner}-type", queue=f"{owner}-line", tenant=tenant)
        submitted = await self.engine.submit(submission)
        (task,) = await self.engine.claim(worker, [submission.queue], limit=1, tenant=tenant)
        assert task.id == submitted.task.id
        return task


def told(body: bytes, said: str, secrets: Sequence[str]) -> list[str]:
    """The secrets that a body tells and that the caller has not named itself."""
    text = body.decode("utf-8", "replace")
    return [secret for secret in secrets if secret in text and secret not in said]
