"""What there is of a server for one caller: all that an endpoint is given.

To a caller whose key is bound to a tenant, its tenant's tasks are all that there is. What is not on this page such a
caller cannot reach: `View.state`, which leads to everything, refuses it. So an endpoint that nobody has thought about
is closed to tenants, and it takes a line here to open it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Raw
from starlette.types import Scope

from fairlead.admin.tenant_engine import TenantEngine
from fairlead.core.errors import FairleadError
from fairlead.core.identity import LeaseToken, TaskId, WorkerId
from fairlead.core.instant import Instant, Span
from fairlead.core.queues.order import Table
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission, check_holder, of_bound
from fairlead.core.task import State, Task
from fairlead.core.tenancy import Role, check_unbound, tenant_named
from fairlead.engine.queue_ages import AtRisk
from fairlead.engine.scheduler import template_of
from fairlead.engine.stats import Stats
from fairlead.engine.worker_records import WorkerRecord
from fairlead.server.auth.credentials import Principal
from fairlead.server.http.bodies import BodyReader
from fairlead.server.http.problems import Refusal
from fairlead.server.live.broadcast import Listening
from fairlead.server.settings import ServerSettings
from fairlead.server.state import ServerState
from fairlead.server.submit import store_all
from fairlead.server.worker_protocol.dispatch import PollTerms
from fairlead.wire.events import Wanted, wanted_of
from fairlead.wire.tasks import TaskCreated, created, estimated
from fairlead.wire.worker_protocol import RegisterRequest

_MOST_CALLERS: Final = 1_024
"""Of how many callers the views are kept."""
_ESTIMATE_SECONDS: Final = 1.0
"""How long the answer to a submit waits for an estimate."""


def views_of(state: ServerState) -> Callable[[Principal], View]:
    """Gives each caller its view of a server; whoever calls often has the same one again."""
    return functools.lru_cache(_MOST_CALLERS)(functools.partial(View, state))


class View:
    """A server, as far as it is there for one caller."""

    def __init__(self, state: ServerState, principal: Principal) -> None:
        self._state = state
        self.principal = principal
        self.engine = TenantEngine(state.engine, principal.tenant)
        self.tenant_of: Callable[[str | None], str | None] = functools.partial(tenant_named, principal.tenant)
        """The tenant of a task that the caller submits and for which it has named this one, or none."""

    @property
    def state(self) -> ServerState:
        """Everything, for who answers for all tenants; refused to a caller who is bound to one."""
        check_unbound(self.principal.tenant)
        return self._state

    # What is the same for everybody

    @property
    def settings(self) -> ServerSettings:
        """How the server behaves."""
        return self._state.settings

    @property
    def rules(self) -> Settings:
        """How its engine behaves."""
        return self._state.engine.settings

    @property
    def bodies(self) -> BodyReader:
        """Reads what the caller sends."""
        return self._state.bodies

    @property
    def stopping(self) -> asyncio.Event:
        """Set when the server is asked to leave."""
        return self._state.stopping

    @property
    def now(self) -> Instant:
        """The time by the engine's clock."""
        return self._state.engine.clock.now()

    @property
    def monotonic(self) -> Span:
        """Time since some fixed moment, by the engine's clock."""
        return self._state.engine.clock.monotonic()

    async def recheck(self, scope: Scope, role: Role) -> None:
        """Refuse a caller whose key was revoked, or has expired, since the request was admitted."""
        await self._state.gate.recheck(scope, role)

    async def watch(self, scope: Scope, role: Role) -> Refusal:
        """Return why, once a caller who goes on listening would not be let in any more."""
        return await self._state.gate.watch(scope, role)

    def tables(self) -> Coroutine[Any, Any, Callable[[str], Table]]:
        """What says, by queue, how the wait of a task counts."""
        return self._state.tables()

    # Tasks

    async def submit(self, submission: Submission) -> TaskCreated:
        """Store a task; what to tell of it."""
        state, tenant = self._state, self.principal.tenant
        submission = of_bound(submission, tenant)
        (refusal,) = await self.engine.awaitable([submission])
        if refusal is not None:
            raise refusal
        if state.admission.on:
            (told,) = await store_all(state, [submission], [self.principal])
            if isinstance(told, Refusal):
                raise told
            return told
        counted = await state.depths.ready()
        submitted = await state.engine.submit(submission)
        task = submitted.task
        if submitted.existing:
            return created(check_holder(tenant, task), None, existing=True)
        position = state.depths.position(task) if counted else None
        return created(task, position, existing=False, warnings=await state.warnings(submitted, tenant))

    async def run_schedule(self, name: str) -> Task:
        """Submit a schedule's task at once, if as much is taken of the caller now."""
        schedules = self.engine.schedules
        if not self._state.admission.on:
            return await schedules.run_now(name)
        submission = template_of((await schedules.get(name)).schedule)
        admitted = await self._state.admission.admit([submission], [self.principal], 1)
        try:
            if refusal := admitted.refusals.get(0):
                raise refusal
            return await schedules.run_now(name)
        finally:
            admitted.leave()

    async def estimate(self, told: TaskCreated) -> TaskCreated:
        """What to tell of a task that is stored, and when it will start as far as that can be told in time."""
        explanation = None
        # The task is stored, whatever becomes of the estimate.
        with contextlib.suppress(FairleadError, TimeoutError):
            async with asyncio.timeout(_ESTIMATE_SECONDS):
                explanation = await self.engine.explain(TaskId(told.task_id))
        return estimated(told, explanation)

    async def submit_many(self, submissions: Sequence[Submission]) -> list[TaskCreated | Refusal]:
        """Store tasks that `awaitable` has nothing against; what to tell of each."""
        return await store_all(self._state, submissions, [self.principal] * len(submissions))

    async def awaitable(self, wishes: Sequence[Submission | None]) -> list[FairleadError | None]:
        """Why tasks cannot wait for those that they name."""
        return await self.engine.awaitable(wishes)

    async def wait(self, task_id: TaskId, seconds: float) -> Task:
        """The task when it has ended, or as it stands after so many seconds; the server may wait for less."""
        await self.engine.get(task_id)
        return await self._state.endings.wait(task_id, min(seconds, self.settings.wait_seconds))

    # Counts

    async def stats(self) -> Stats:
        """How the queues stand that are there for the caller."""
        stats = await self._state.depths.stats()
        return stats if self.principal.tenant is None else await self.engine.narrowed(stats)

    async def standing(self, queue: str | None) -> Raw:
        """The same as it is shown, of all those queues or of one, with how long the tasks have waited that wait."""
        stats, ages = await self.stats(), None
        if stats.states[State.QUEUED]:
            own = None if self.principal.tenant is None else await self.engine.counted_queues()
            ages = await self._state.ages.of(own)
        return self._state.stats_answers.show(stats, ages, queue)

    async def recent(self) -> tuple[Stats, Span, AtRisk]:
        """The same, at most a second old, how late the most overdue schedule is, and which tasks may starve."""
        stats, late, at_risk = await self._state.depths.recent()
        if self.principal.tenant is None:
            return stats, late, at_risk
        return await self.engine.narrowed(stats), await self.engine.schedules.lateness(), at_risk

    # Workers

    async def register(self, request: RegisterRequest) -> WorkerId:
        """Make a worker known, which belongs to the caller's key from now on; its id."""
        await self.engine.check_queues(request.queues)
        return await self._state.registered.register(self.principal, request)

    async def worker(self, worker: str) -> WorkerRecord:
        """A worker of the caller's key."""
        return await self._state.registered.get(self.principal, worker)

    async def of_others(self, workers: Iterable[str]) -> frozenset[str]:
        """Those of these workers that another key has registered."""
        return await self._state.registered.of_others(self.principal, workers)

    async def held_by(self, worker: WorkerRecord) -> list[tuple[TaskId, LeaseToken]]:
        """What a worker holds under leases of its last registration, as of half a heartbeat ago."""
        return await self._state.held.of(worker.id, worker.registration)

    async def beat(
        self, worker: str, running: int, *, draining: bool | None, by_kind: Mapping[str, int] | None = None
    ) -> bool:
        """A worker is alive, and drains or not, or as before; whether it should drain."""
        return await self._state.registered.beat(self.principal, worker, running, draining=draining, by_kind=by_kind)

    async def drain(self, worker: str) -> None:
        """A worker is to take no more tasks, and to leave."""
        await self._state.registered.drain(self.principal, worker)

    def is_paused(self, worker: str) -> bool:
        """Whether somebody paused a worker, as this server knows by now."""
        return worker in self._state.engine.queue_cache.paused_workers

    async def look_at_pauses(self) -> None:
        """Learn who is paused, if that was not done within the last second: a server may hear heartbeats alone."""
        await self._state.engine.queue_cache.refresh()

    async def leave(self, worker: str) -> None:
        """A worker is gone."""
        await self._state.registered.leave(self.principal, worker)

    async def poll(
        self,
        worker: WorkerRecord,
        capabilities: Sequence[str] | None,
        limit: int,
        seconds: float,
        gone: asyncio.Future[object],
        types: Sequence[str] | None = None,
    ) -> list[Task]:
        """The best tasks for a worker, given what it can and would do now, as soon as there are any."""
        await self.engine.check_queues(worker.queues)
        wish = PollTerms(
            tuple(sorted(worker.queues)),
            frozenset(worker.capabilities if capabilities is None else capabilities),
            _common(worker.types, types),
            self.principal.tenant,
        )
        return await self._state.dispatcher.poll(worker.id, wish, limit, seconds, gone, worker.registration)

    async def pass_time(self, seconds: float, gone: asyncio.Future[object]) -> None:
        """Wait like a poll for which there is nothing."""
        await self._state.dispatcher.pass_time(seconds, gone)

    async def hand_back(self, tasks: list[Task]) -> None:
        """Let tasks wait again that nobody is there to run; no retry is spent."""
        await self._state.dispatcher.hand_back(tasks)

    # Events

    async def wanted(self, types: Iterable[str], queue: str | None, task_id: str | None) -> Wanted:
        """Which events the caller asks for, of those that it may hear; a task that it names must be there for it."""
        wanted = wanted_of(types, queue, task_id)
        if wanted.task_id is not None and self.principal.tenant is not None:
            await self.engine.get(wanted.task_id)
        return wanted

    @contextlib.asynccontextmanager
    async def listen(self, wanted: Wanted, after: str | None = None) -> AsyncIterator[Listening]:
        """Listen to what happens from now on, or since a position."""
        async with self._state.broadcast.listen(wanted.of(self.principal.tenant), after) as listening:
            yield listening

    async def listen_to(self, listening: Listening, wanted: Wanted) -> None:
        """Have a listener hear of something else from now on."""
        await self._state.broadcast.change(listening, wanted.of(self.principal.tenant))


def _common(registered: Sequence[str] | None, wanted: Sequence[str] | None) -> frozenset[str] | None:
    """The types to claim for a worker that registered with some, and wants some of them now; None for any."""
    if registered is None or wanted is None:
        said = registered if wanted is None else wanted
        return None if said is None else frozenset(said)
    return frozenset(registered).intersection(wanted)
