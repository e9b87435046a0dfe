"""The worker protocol: any program that speaks HTTP can run tasks.

Nothing of a worker is kept in a server, so each of its calls may go to any of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Raw

from fairlead.core.errors import InvalidTask, LeaseLost
from fairlead.core.events import HandedBack
from fairlead.core.identity import TaskId, WorkerId, parse_task_id
from fairlead.core.instant import MILLISECOND, SECOND, seconds
from fairlead.core.task import State, Task
from fairlead.core.trace import trace_id_of, traceparent_in
from fairlead.engine.engine import Engine, Settlement
from fairlead.engine.presence import WorkerPresence, WorkerState
from fairlead.server.bodies import Disconnected
from fairlead.server.dispatch import Wish
from fairlead.server.endpoint import Answer, Call, Empty, Endpoint
from fairlead.server.hub import Hub
from fairlead.server.leases import as_claimed, seal, unseal
from fairlead.server.principal import Role
from fairlead.server.results import progress, result
from fairlead.storage.values import Beat, Filter, Pulse
from fairlead.wire.moments import iso
from fairlead.wire.workers import (
    MOST_AT_ONCE,
    Deregistered,
    DeregisterRequest,
    DrainNoted,
    HeartbeatNoted,
    HeartbeatRequest,
    LeasedTask,
    Polled,
    PollRequest,
    ProgressNoted,
    ProgressRequest,
    Registered,
    RegisterRequest,
    Result,
    ResultAnswer,
    ResultRequest,
    ResultsRequest,
    Running,
)

_POLL_INTERVAL_MS: Final = 1_000
_BATCH_LIMIT: Final = 10 * 1024 * 1024
_PAGES: Final = 100


async def register(call: Call[Empty, RegisterRequest]) -> Answer:
    """Introduce a worker. The answer says what it is called and how often it should call."""
    settings = call.hub.engine.settings
    return Answer(
        Registered(
            worker_id=await call.hub.roster.register(call.body),
            poll_interval_ms=_POLL_INTERVAL_MS,
            heartbeat_interval_ms=settings.heartbeat // MILLISECOND,
            lease_seconds=seconds(settings.lease),
        ),
        status=201,
    )


async def poll(call: Call[Empty, PollRequest]) -> Answer:
    """Take the best tasks for a worker, waiting for them for up to `wait_seconds`.

    The tasks are leased to the worker from now on. If the caller hangs up before it is answered, they wait again at
    once, and no retry is spent.
    """
    hub, body = call.hub, call.body
    worker = await hub.roster.get(call.path["worker_id"])
    draining = worker.state is WorkerState.DRAINING
    wait = min(body.wait_seconds, hub.settings.wait_seconds)
    limit = min(body.available_capacity, MOST_AT_ONCE)
    # Once the body is read there is only one more thing to hear from the caller: that it hung up.
    gone: asyncio.Future[object] = asyncio.ensure_future(call.receive())
    try:
        tasks: list[Task] = []
        if limit == 0 or draining:
            await hub.dispatcher.pass_time(wait, gone)
        else:
            tasks = await hub.dispatcher.poll(worker.id, _wish(worker, body.capabilities), limit, wait, gone)
        if gone.done():
            if tasks:
                await hub.dispatcher.hand_back(tasks)
            raise Disconnected
    finally:
        gone.cancel()
    return Answer(Polled(tasks=tuple(_leased(task) for task in tasks), should_drain=draining))


async def heartbeat(call: Call[Empty, HeartbeatRequest]) -> Answer:
    """Say that a worker is alive, renew the leases of what it runs, and learn what it should stop."""
    hub, body = call.hub, call.body
    load = len(body.running) if body.current_load is None else body.current_load
    should_drain = await _beat(call.hub, call.path["worker_id"], load, body)
    pulses = await _pulses(hub.engine, body.running, renew=body.renew)
    return Answer(
        HeartbeatNoted(
            acknowledged=True,
            should_drain=should_drain,
            cancel=tuple(task_id for task_id, pulse in pulses.items() if pulse is Pulse.CANCEL),
            lost=tuple(task_id for task_id, pulse in pulses.items() if pulse is Pulse.LOST),
        )
    )


async def drain(call: Call[Empty, Empty]) -> Answer:
    """Have a worker drain: it gets no more tasks, and its heartbeats tell it to leave."""
    await call.hub.roster.drain(call.path["worker_id"])
    return Answer(DrainNoted(acknowledged=True))


async def deregister(call: Call[Empty, DeregisterRequest]) -> Answer:
    """Say that a worker leaves. What it still holds waits again; no retry is spent."""
    hub = call.hub
    worker = await hub.roster.get(call.path["worker_id"])
    await hub.roster.leave(worker.id)
    handed_back = await _hand_back_all(hub.engine, worker.id, call.body.running)
    return Answer(Deregistered(acknowledged=True, handed_back=tuple(handed_back)))


async def _beat(hub: Hub, worker: str, load: int, body: HeartbeatRequest) -> bool:
    if not body.renew:
        return (await hub.roster.get(worker)).state is WorkerState.DRAINING
    return await hub.roster.beat(worker, load, draining=None if body.status is None else body.status == "draining")


async def _pulses(engine: Engine, running: Sequence[Running], *, renew: bool) -> dict[str, Pulse]:
    """How the leases of what a worker runs stand, by the ids that it gave."""
    pulses = {one.task_id: Pulse.LOST for one in running}
    beats = [(one.task_id, Beat(task_id, unseal(one.lease).token)) for task_id, one in _sound(running)]
    if beats:
        ask = engine.heartbeat if renew else engine.look
        answers = await ask([beat for _, beat in beats])
        pulses |= {given: pulse for (given, _), pulse in zip(beats, answers, strict=True)}
    return pulses


def _sound(running: Sequence[Running]) -> Iterator[tuple[TaskId, Running]]:
    """What can be looked for: an id that is none names nothing that anyone could hold."""
    for one in running:
        with contextlib.suppress(InvalidTask):
            yield parse_task_id(one.task_id), one


async def _hand_back_all(engine: Engine, worker: WorkerId, running: Sequence[Running]) -> list[TaskId]:
    """Hand back what a worker names and what its leases say that it holds."""
    named = dict(_sound(running))
    stored = await engine.store.get(list(named)) if named else []
    held = [
        as_claimed(task, unseal(one.lease), worker)
        for one, task in zip(named.values(), stored, strict=True)
        if task is not None
    ]
    matching = Filter(states=frozenset({State.EXECUTING}), worker=worker)
    handed_back: list[TaskId] = []
    for _ in range(_PAGES):
        if held:
            answers = await engine.settle([Settlement(task, HandedBack()) for task in held])
            handed_back += [answer.id for answer in answers if not isinstance(answer, LeaseLost)]
        held = await engine.find(matching, limit=MOST_AT_ONCE)
        if not held:
            break
    return handed_back


def _wish(worker: WorkerPresence, capabilities: Sequence[str] | None) -> Wish:
    """What a worker can take, given what it can do now."""
    return Wish(
        tuple(sorted(worker.queues)),
        frozenset(worker.capabilities if capabilities is None else capabilities),
        None if worker.types is None else frozenset(worker.types),
    )


def _leased(task: Task) -> LeasedTask:
    spec, status = task.spec, task.status
    return LeasedTask(
        task_id=spec.id,
        task_type=spec.type,
        parameters=Raw(spec.parameters),
        timeout_seconds=status.timeout / SECOND,
        attempt=status.attempts,
        lease=seal(task),
        trace_id=trace_id_of(spec.trace),
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
    Endpoint(
        method="POST",
        path="/internal/workers/register",
        handler=register,
        summary="Register a worker",
        role=Role.WORK,
        body=RegisterRequest,
        answers={201: Registered},
    ),
    Endpoint(
        method="POST",
        path="/internal/workers/{worker_id}/poll",
        handler=poll,
        summary="Take tasks",
        role=Role.WORK,
        body=PollRequest,
        answers={200: Polled},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/internal/workers/{worker_id}/progress",
        handler=progress,
        summary="Say how far an attempt is",
        role=Role.WORK,
        body=ProgressRequest,
        answers={200: ProgressNoted},
        problems=(409,),
    ),
    Endpoint(
        method="POST",
        path="/internal/workers/{worker_id}/result",
        handler=result,
        summary="Say how attempts ended",
        role=Role.WORK,
        body=ResultRequest,
        bodies={"application/json": (Result, ResultsRequest)},
        body_limit=_BATCH_LIMIT,
        answers={200: ResultAnswer},
        problems=(409,),
    ),
    Endpoint(
        method="POST",
        path="/internal/workers/{worker_id}/heartbeat",
        handler=heartbeat,
        summary="Renew leases",
        role=Role.WORK,
        body=HeartbeatRequest,
        answers={200: HeartbeatNoted},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/internal/workers/{worker_id}/drain",
        handler=drain,
        summary="Have a worker drain",
        role=Role.WORK,
        answers={200: DrainNoted},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/internal/workers/{worker_id}/deregister",
        handler=deregister,
        summary="Take a worker's leave",
        role=Role.WORK,
        body=DeregisterRequest,
        answers={200: Deregistered},
        problems=(404,),
    ),
)
