"""What may hold a waiting task back: each feature that can do so has a function here, and a code in `CauseCode`."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, assert_never

from msgspec import Struct

from fairlead.core.circuit import CircuitState
from fairlead.core.explain.explanation import Cause, CauseCode, Datum
from fairlead.core.instant import SECOND, Instant, brief
from fairlead.core.queues.limits import NEVER, NO_LIMITS, Limit, Meter
from fairlead.core.task import State, Task
from fairlead.engine.changes import TaskChanges
from fairlead.engine.explain.eligibility import obstacle
from fairlead.engine.queue_cache import QueueCache
from fairlead.engine.runtime.clock import Clock
from fairlead.engine.worker_records import WorkerRecord
from fairlead.storage.protocol import Store
from fairlead.storage.values import Used


class LimitOf(enum.StrEnum):
    """What a limit is of."""

    QUEUE = "queue"
    TYPE = "type"
    KEY = "key"


class LimitReached(Struct, frozen=True, kw_only=True):
    """A limit that lets no more tasks start for now."""

    of: LimitOf
    name: str
    """The queue, the task type or the concurrency key."""
    running: int
    """How many tasks that count towards it are executing."""
    most: int | None
    """How many may be at once; None if it is the rate that is reached."""
    opens_at: Instant | None
    """From when on a rate lets the next one start; None if one that runs must end first."""


async def blocking(store: Store, queue_cache: QueueCache, clock: Clock, task: Task) -> LimitReached | None:
    """The limit that keeps a queued task from being claimed now; None if no limit does."""
    spec = task.spec
    if task.state is not State.QUEUED:
        return None
    await queue_cache.refresh()
    limits = queue_cache.limits.get(spec.queue, NO_LIMITS)
    used = await store.usage(spec.queue, spec.type, spec.concurrency_key)
    candidates = [
        (LimitOf.QUEUE, spec.queue, limits.queue, used.queue),
        (LimitOf.TYPE, spec.type, limits.types.get(spec.type, Limit()), used.type),
    ]
    if spec.concurrency_key is not None:
        candidates.append((LimitOf.KEY, spec.concurrency_key, limits.key, used.key))
    now = clock.now()
    found = (_reached(of, name, limit, each, now) for of, name, limit, each in candidates)
    return next((reached for reached in found if reached is not None), None)


def _reached(of: LimitOf, name: str, limit: Limit, used: Used, now: Instant) -> LimitReached | None:
    opens_at = Meter(limit, used.running, used.due).opens_at(now)
    if opens_at <= now:
        return None
    full = opens_at == NEVER
    return LimitReached(
        of=of,
        name=name,
        running=used.running,
        most=limit.running if full else None,
        opens_at=None if full else opens_at,
    )


_LIMITED: Final = {LimitOf.QUEUE: "queue", LimitOf.TYPE: "task type", LimitOf.KEY: "concurrency key"}


class Circumstances(Struct, frozen=True, kw_only=True):
    """What a source of causes may look at."""

    task_changes: TaskChanges
    """The store, and the queues as the engine knows them."""
    task: Task
    """One that waits."""
    now: Instant
    workers: Sequence[WorkerRecord]


Source: TypeAlias = Callable[[Circumstances], Awaitable[Sequence[Cause]]]


async def pauses(seen: Circumstances) -> Sequence[Cause]:
    """That someone paused its queue or its type."""
    spec, queue_cache = seen.task.spec, seen.task_changes.queue_cache
    causes: list[Cause] = []
    if spec.queue in queue_cache.paused:
        text = f"the queue {spec.queue} is paused; `fairlead queues resume {spec.queue}` resumes it"
        if spec.queue in queue_cache.unreadable:
            text = (
                f"the queue {spec.queue} is paused because its settings cannot be read; "
                f"`fairlead quarantine show queue/{spec.queue}` says why, and what to do"
            )
        causes.append(Cause(CauseCode.QUEUE_PAUSED, text, {"queue": spec.queue}, blocks=True))
    if spec.type in queue_cache.paused_types:
        text = f"the task type {spec.type} is paused; `fairlead queues resume --type {spec.type}` resumes it"
        causes.append(Cause(CauseCode.TYPE_PAUSED, text, {"type": spec.type}, blocks=True))
    return causes


async def circuits(seen: Circumstances) -> Sequence[Cause]:
    """That so many attempts of its type failed that none is claimed for now."""
    task_type = seen.task.spec.type
    circuit = await seen.task_changes.breakers.find(task_type)
    if circuit is None or circuit.state is CircuitState.CLOSED:
        return ()
    status = circuit.status
    data: dict[str, Datum] = {"type": task_type, "failures": status.failures, "outcomes": status.outcomes}
    why = f", as {status.failures:,} of {status.outcomes:,} attempts failed" if status.outcomes else ", by hand"
    text = f"the circuit breaker of {task_type} is open{why}"
    if circuit.state is CircuitState.HALF_OPEN:
        text = f"the circuit breaker of {task_type} is half-open: only a few tasks run, to see whether they succeed"
    elif status.until is not None:
        left = max(0, status.until - seen.now)
        data["seconds"] = left / SECOND
        text += f"; a few tasks are tried in {brief(left)}"
    text += f"; `fairlead circuits close {task_type}` lets all tasks run again"
    return (Cause(CauseCode.CIRCUIT_OPEN, text, data, blocks=True),)


async def limits(seen: Circumstances) -> Sequence[Cause]:
    """That as many tasks run, or have started lately, as its queue, type or key may have. It passes by itself."""
    reached = await blocking(seen.task_changes.store, seen.task_changes.queue_cache, seen.task_changes.clock, seen.task)
    if reached is None:
        return ()
    what = f"the {_LIMITED[reached.of]} {reached.name}"
    data: dict[str, Datum] = {"of": reached.of.value, "name": reached.name, "running": reached.running}
    if reached.most is not None:
        data["most"] = reached.most
        text = f"{what} has {reached.running:,} running, and {reached.most:,} may run at once; {_raise(reached, seen)}"
    else:
        left = 0 if reached.opens_at is None else max(0, reached.opens_at - seen.now)
        data["seconds"] = left / SECOND
        text = f"{what} has started as many as its rate allows; the next may start in {brief(left)}"
        text += f"; {_raise(reached, seen)}"
    return (Cause(CauseCode.LIMIT_REACHED, text, data),)


def _raise(reached: LimitReached, seen: Circumstances) -> str:
    """How to let more start."""
    queue, rate = seen.task.spec.queue, reached.most is None
    match reached.of:
        case LimitOf.QUEUE:
            option = "--rate N/s" if rate else "--running N"
        case LimitOf.TYPE:
            option = f"--type-{'rate' if rate else 'running'} {reached.name}={'N/s' if rate else 'N'}"
        case LimitOf.KEY:
            option = "--key-rate N/s" if rate else "--key-running N"
        case _:
            assert_never(reached.of)
    return f"`fairlead queues set {queue} {option}` changes that"


async def abilities(seen: Circumstances) -> Sequence[Cause]:
    """That no live worker could take it."""
    cause = obstacle(seen.workers, seen.task.lane)
    return () if cause is None else (cause,)


SOURCES: Final[tuple[Source, ...]] = (pauses, circuits, limits, abilities)
"""Who may know why a waiting task cannot start; what is told first comes first."""
