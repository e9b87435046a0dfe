"""The worker protocol: any program that speaks HTTP can run tasks.

Servers keep no state about workers, so each call may go to any server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Raw

from fairlead.admin.tenant_engine import TenantEngine
from fairlead.core.errors import InvalidTask, LeaseLost
from fairlead.core.events import HandedBack
from fairlead.core.identity import LeaseToken, TaskId, WorkerId, parse_task_id, traceparent_in
from fairlead.core.instant import MILLISECOND, SECOND, seconds, span
from fairlead.core.settings import Settings
from fairlead.core.task import Task
from fairlead.core.tenancy import Role
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.event_loop import Turn
from fairlead.engine.worker_records import WorkerState
from fairlead.server.auth.credentials import FRESH
from fairlead.server.caller_view import View
from fairlead.server.endpoint import Answer, Call, EndpointGroup, serve
from fairlead.server.http.bodies import Disconnected
from fairlead.server.http.problems import Refusal
from fairlead.server.routes.worker_results import as_claimed, progress, result, seal, start, unseal
from fairlead.storage.values import Beat, Pulse
from fairlead.wire import worker_protocol
from fairlead.wire.endpoint import Empty
from fairlead.wire.text import iso
from fairlead.wire.worker_protocol import (
    MOST_AT_ONCE,
    Deregistered,
    DeregisterRequest,
    DrainNoted,
    HeartbeatNoted,
    HeartbeatRequest,
    LeasedTask,
    Polled,
    PollRequest,
    Registered,
    RegisterRequest,
    Running,
)

_POLL_INTERVAL_MS: Final = 1_000
_USUAL_GRACE: Final = Settings().grace
_PAGES: Final = 100


async def register(call: Call[Empty, RegisterRequest]) -> Answer:
    """Register a worker. The answer has its id, and how often it should call.

    Its id belongs to the key that registers it: no other key can register, poll or settle under it. With a key that is
    bound to a tenant, it can serve queues that are bound to that tenant.
    """
    settings = call.view.rules
    return Answer(
        Registered(
            worker_id=await call.view.register(call.body),
            poll_interval_ms=_POLL_INTERVAL_MS,
            heartbeat_interval_ms=settings.heartbeat // MILLISECOND,
            lease_seconds=seconds(settings.lease),
            grace_seconds=None if settings.grace == _USUAL_GRACE else seconds(settings.grace),
        ),
        status=201,
    )


async def poll(call: Call[Empty, PollRequest]) -> Answer:
    """Claim the most urgent tasks for a worker, waiting for them for up to `wait_seconds`.

    The tasks are leased to the worker from now on. If the caller disconnects before the answer, they are queued again
    at once, and no retry is spent.
    """
    view, body = call.view, call.body
    worker = await view.worker(call.path["worker_id"])
    draining = worker.state is WorkerState.DRAINING
    wait = min(body.wait_seconds, view.settings.wait_seconds)
    limit = min(body.available_capacity, MOST_AT_ONCE)
    # Once the body is read there is only one more thing to hear from the caller: that it hung up.
    gone: asyncio.Future[object] = asyncio.ensure_future(call.receive())
    began = view.monotonic
    try:
        tasks: list[Task] = []
        if limit == 0 or draining:
            await view.pass_time(wait, gone)
        else:
            tasks = await view.poll(worker, body.capabilities, limit, wait, gone, body.task_types)
        if gone.done():
            if tasks:
                await view.hand_back(tasks)
            raise Disconnected
        if view.monotonic - began > FRESH:
            await _recheck(call, tasks)
    finally:
        gone.cancel()
    turn = Turn(len(tasks))
    leased: list[LeasedTask] = []
    for task in await view.engine.told(tasks):
        if turn.is_over:
            await turn.next()
        leased.append(_leased(task))
    return Answer(Polled(tasks=tuple(leased), should_drain=draining, paused=view.is_paused(worker.id)))


async def _recheck(call: Call[Empty, PollRequest], tasks: list[Task]) -> None:
    """Give nothing to a worker whose key was revoked, or has expired, while it waited."""
    try:
        await call.view.recheck(call.scope, Role.WORK)
    except Refusal:
        if tasks:
            await call.view.hand_back(tasks)
        raise


async def heartbeat(call: Call[Empty, HeartbeatRequest]) -> Answer:
    """Report that a worker is alive, renew the leases of its running tasks, and learn which of them to stop.

    With `running`, only the leases that it names are renewed. Without it, the leases of all tasks that the worker was
    given since it registered are renewed, even if the answer to its poll was lost: such a task waits until its timeout.
    """
    view, body = call.view, call.body
    worker = call.path["worker_id"]
    held = [] if body.running is not None else await view.held_by(await view.worker(worker))
    running = held if body.running is None else body.running
    load = len(running) if body.current_load is None else body.current_load
    should_drain = await _beat(view, worker, load, body)
    if body.running is None:
        pulses = await _held_pulses(view.engine, held, renew=body.renew)
    else:
        pulses = await _pulses(view.engine, body.running, renew=body.renew)
    await view.look_at_pauses()
    return Answer(
        HeartbeatNoted(
            acknowledged=True,
            should_drain=should_drain,
            cancel=tuple(task_id for task_id, pulse in pulses.items() if pulse is Pulse.CANCEL),
            lost=tuple(task_id for task_id, pulse in pulses.items() if pulse is Pulse.LOST),
            paused=view.is_paused(call.path["worker_id"]),
        )
    )


async def drain(call: Call[Empty, None]) -> Answer:
    """Drain a worker: it gets no more tasks, and the answers to its heartbeats tell it to leave."""
    await call.view.drain(call.path["worker_id"])
    return Answer(DrainNoted(acknowledged=True))


async def deregister(call: Call[Empty, DeregisterRequest]) -> Answer:
    """Deregister a worker. The tasks that it still holds are queued again; no retry is spent."""
    view = call.view
    worker = await view.worker(call.path["worker_id"])
    await view.leave(worker.id)
    handed_back = await _hand_back_all(view, worker.id, call.body.running)
    return Answer(Deregistered(acknowledged=True, handed_back=tuple(handed_back)))


async def _beat(view: View, worker: str, load: int, body: HeartbeatRequest) -> bool:
    if not body.renew:
        return (await view.worker(worker)).state is WorkerState.DRAINING
    draining = None if body.status is None else body.status == "draining"
    return await view.beat(worker, load, draining=draining, by_kind=body.load_by_kind)


async def _pulses(engine: TenantEngine, running: Sequence[Running], *, renew: bool) -> dict[str, Pulse]:
    """How the leases of what a worker runs stand, by the ids that it gave."""
    pulses = {one.task_id: Pulse.LOST for one in running}
    beats = [(one.task_id, _beat_of(task_id, one)) for task_id, one in _sound(running)]
    if beats:
        ask = engine.heartbeat if renew else engine.look
        answers = await ask([beat for _, beat in beats])
        pulses |= {given: pulse for (given, _), pulse in zip(beats, answers, strict=True)}
    return pulses


async def _held_pulses(
    engine: TenantEngine, held: Sequence[tuple[TaskId, LeaseToken]], *, renew: bool
) -> dict[str, Pulse]:
    """How the leases stand that a worker holds; one that it has settled meanwhile is not lost to it."""
    ask = engine.heartbeat if renew else engine.look
    pulses: dict[str, Pulse] = {}
    for first in range(0, len(held), MOST_AT_ONCE):
        some = held[first : first + MOST_AT_ONCE]
        answers = await ask([Beat(task_id, token) for task_id, token in some])
        pulses |= {task_id: pulse for (task_id, _), pulse in zip(some, answers, strict=True)}
    return {task_id: pulse for task_id, pulse in pulses.items() if pulse is not Pulse.LOST}


def _beat_of(task_id: TaskId, one: Running) -> Beat:
    return Beat(task_id, unseal(one.lease).token, None, span(one.allowance_seconds))


def _sound(running: Sequence[Running]) -> Iterator[tuple[TaskId, Running]]:
    """What can be looked for: an id that is none names nothing that anyone could hold."""
    for one in running:
        with contextlib.suppress(InvalidTask):
            yield parse_task_id(one.task_id), one


async def _hand_back_all(view: View, worker: WorkerId, running: Sequence[Running]) -> list[TaskId]:
    """Hand back what a worker names and what its leases say that it holds."""
    named = dict(_sound(running))
    stored = await view.engine.get_many(list(named))
    others = await view.of_others(holder for task in stored if (holder := _holder(task)) is not None)
    held = [
        as_claimed(task, unseal(one.lease), worker)
        for one, task in zip(named.values(), stored, strict=True)
        if task is not None and _holder(task) not in others
    ]
    handed_back: list[TaskId] = []
    for _ in range(_PAGES):
        if held:
            answers = await view.engine.settle([Settlement(task, HandedBack()) for task in held])
            handed_back += [answer.id for answer in answers if not isinstance(answer, LeaseLost)]
        held = await view.engine.held_by(worker, limit=MOST_AT_ONCE)
        if not held:
            break
    return handed_back


def _holder(task: Task | None) -> WorkerId | None:
    return None if task is None or task.status.lease is None else task.status.lease.worker


def _leased(task: Task) -> LeasedTask:
    spec, status = task.spec, task.status
    return LeasedTask(
        task_id=spec.id,
        task_type=spec.type,
        parameters=Raw(spec.parameters),
        timeout_seconds=status.timeout / SECOND,
        attempt=status.attempts,
        lease=seal(task),
        trace_id=spec.trace_id,
        traceparent=traceparent_in(spec.trace),
        queue=spec.queue,
        priority=status.priority.word,
        required_capabilities=spec.requires,
        retry_count=status.retries,
        max_retries=spec.max_retries,
        created_at=iso(spec.created_at),
        tenant=spec.tenant,
        after=() if spec.after is None else spec.after.tasks,
        tags=spec.tags,
    )


ENDPOINTS = (
    *EndpointGroup(
        "workers",
        "The worker protocol: any program that speaks HTTP can run tasks.\n\n"
        "Servers keep no state about workers, so each call may go to any server.",
    ).of(
        serve(worker_protocol.REGISTER, register),
        serve(worker_protocol.POLL, poll),
        serve(worker_protocol.START, start),
        serve(worker_protocol.PROGRESS, progress),
        serve(worker_protocol.RESULT, result),
        serve(worker_protocol.HEARTBEAT, heartbeat),
        serve(worker_protocol.DRAIN, drain),
        serve(worker_protocol.DEREGISTER, deregister),
    ),
)
