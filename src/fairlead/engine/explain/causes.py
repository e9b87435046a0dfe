"""What may hold a waiting task back: each feature that can do so has a function here, and a code in `CauseCode`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from fairlead.core.circuit import CircuitState
from fairlead.core.explanation import Cause, CauseCode, Datum
from fairlead.core.instant import SECOND, Instant, brief
from fairlead.core.task import Task
from fairlead.engine.ability import obstacle
from fairlead.engine.circuits import Circuits
from fairlead.engine.ledger import Ledger
from fairlead.engine.limits import LimitOf, blocking
from fairlead.engine.presence import WorkerPresence

_LIMITED: Final = {LimitOf.QUEUE: "queue", LimitOf.TYPE: "task type", LimitOf.KEY: "concurrency key"}


class Circumstances(Struct, frozen=True, kw_only=True):
    """What a source of causes may look at."""

    ledger: Ledger
    """The store, and the queues as the engine knows them."""
    task: Task
    """One that waits."""
    now: Instant
    workers: Sequence[WorkerPresence]


Source: TypeAlias = Callable[[Circumstances], Awaitable[Sequence[Cause]]]


async def pauses(seen: Circumstances) -> Sequence[Cause]:
    """That someone paused its queue or its type."""
    spec, book = seen.task.spec, seen.ledger.book
    causes: list[Cause] = []
    if spec.queue in book.paused:
        text = f"the queue {spec.queue} is paused; `fairlead queues resume {spec.queue}` lets it go on"
        causes.append(Cause(CauseCode.QUEUE_PAUSED, text, {"queue": spec.queue}, blocks=True))
    if spec.type in book.paused_types:
        text = f"the task type {spec.type} is paused; `fairlead queues resume --type {spec.type}` lets it go on"
        causes.append(Cause(CauseCode.TYPE_PAUSED, text, {"type": spec.type}, blocks=True))
    return causes


async def circuits(seen: Circumstances) -> Sequence[Cause]:
    """That so many attempts of its type failed that none is claimed for now."""
    task_type = seen.task.spec.type
    circuit = await Circuits(seen.ledger).find(task_type)
    if circuit is None or circuit.state is CircuitState.CLOSED:
        return ()
    status = circuit.status
    data: dict[str, Datum] = {"type": task_type, "failures": status.failures, "outcomes": status.outcomes}
    why = f", as {status.failures:,} of {status.outcomes:,} attempts failed" if status.outcomes else ", by hand"
    text = f"the circuit of {task_type} is open{why}"
    if circuit.state is CircuitState.HALF_OPEN:
        text = f"the circuit of {task_type} is half-open: only a few tasks are let through until they have passed"
    elif status.until is not None:
        left = max(0, status.until - seen.now)
        data["seconds"] = left / SECOND
        text += f"; a few tasks are tried in {brief(left)}"
    text += f"; `fairlead circuits close {task_type}` lets all go on"
    return (Cause(CauseCode.CIRCUIT_OPEN, text, data, blocks=True),)


async def limits(seen: Circumstances) -> Sequence[Cause]:
    """That as many tasks run, or have started lately, as its queue, type or key may have. It passes by itself."""
    reached = await blocking(seen.ledger.store, seen.ledger.book, seen.ledger.clock, seen.task)
    if reached is None:
        return ()
    what = f"the {_LIMITED[reached.of]} {reached.name}"
    data: dict[str, Datum] = {"of": reached.of.value, "name": reached.name, "running": reached.running}
    if reached.most is not None:
        data["most"] = reached.most
        text = f"{what} has {reached.running:,} running, and {reached.most:,} may run at once"
    else:
        left = 0 if reached.opens_at is None else max(0, reached.opens_at - seen.now)
        data["seconds"] = left / SECOND
        text = f"{what} has started as many as its rate allows; the next may start in {brief(left)}"
    return (Cause(CauseCode.LIMIT_REACHED, text, data),)


async def abilities(seen: Circumstances) -> Sequence[Cause]:
    """That no live worker could take it."""
    cause = obstacle(seen.workers, seen.task.lane)
    return () if cause is None else (cause,)


SOURCES: Final[tuple[Source, ...]] = (pauses, circuits, limits, abilities)
"""Who may know why a waiting task cannot start; what is told first comes first."""
