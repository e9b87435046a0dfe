"""A world in which tasks are explained: an engine, workers and submitters in virtual time, moved from event to event.

It is the same whenever it runs with the same seed, so a second one that has come to the same moment is a copy: there
claims are made until nothing is left, with nothing ending, and show the place of every task that waits.
"""

from __future__ import annotations

import heapq
import itertools
import random
from typing import Any, Final, Literal

from msgspec import Struct, field

from fairlead.admin.engine import AdminEngine
from fairlead.core.circuit import CircuitSettings
from fairlead.core.events import Completed, Failed, Outcome
from fairlead.core.explain.explanation import Explanation
from fairlead.core.identity import LeaseToken, TaskId, WorkerId
from fairlead.core.instant import MILLISECOND, MINUTE, SECOND, Instant, Span
from fairlead.core.queues.order import Policy, Promote
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Failure, Priority, State, Task
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.clock import ManualClock
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Beat

_POLL: Final = 100 * MILLISECOND
"""How often a worker looks again that found nothing."""
_MOST_CLAIMED: Final = 2_000


class Stream(Struct, frozen=True, kw_only=True):
    """Tasks of one kind that come."""

    every: Span
    """How far apart they come, on average."""
    mean: Span
    """How long one takes, on average."""
    spread: Literal["even", "random", "heavy"] = "random"
    """Whether that is about the same for all, spread as waiting times are, or very long for a few."""
    queue: str = "default"
    type: str = "work"
    priorities: tuple[Priority, ...] = (Priority.MEDIUM,)
    batch: int = 1
    """How many come at once."""
    first: int = 0
    """How many wait at the beginning."""
    keys: int = 0
    """Of how many concurrency keys they are."""
    requires: frozenset[str] = frozenset()
    fails: float = 0.0
    """How many of their attempts fail."""


class Fleet(Struct, frozen=True, kw_only=True):
    """Workers of one kind."""

    workers: int = 4
    slots: int = 4
    queues: tuple[str, ...] = ("default",)
    types: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] = ()
    apart: bool = False
    """Whether each of them has an engine of its own."""


class Scenario(Struct, frozen=True, kw_only=True):
    """What happens in a world."""

    name: str
    streams: tuple[Stream, ...]
    fleets: tuple[Fleet, ...] = (Fleet(),)
    order: Policy = Promote()
    queues: dict[str, dict[str, Any]] = {}
    """The settings of queues."""
    circuits: dict[str, CircuitSettings] = {}
    steady: bool = False
    span: Span = 5 * MINUTE


class Asked(Struct, frozen=True):
    """What was said of a task."""

    task: TaskId
    told: Explanation


class Worker(Struct):
    """One that claims."""

    id: WorkerId
    fleet: Fleet
    engine: AdminEngine
    running: dict[TaskId, LeaseToken] = {}


class World(Struct):
    """What a world holds, and what it has seen."""

    scenario: Scenario
    luck: random.Random
    clock: ManualClock = field(default_factory=ManualClock)
    engines: list[AdminEngine] = []
    workers: list[Worker] = []
    waiting: dict[TaskId, Stream] = {}
    asked: list[Asked] = []
    starts: dict[TaskId, list[Instant]] = {}
    events: list[tuple[Instant, int, str, Any]] = []
    numbers: Any = None
    polled: Instant = 0

    def now(self) -> Instant:
        return self.clock.now()

    def at(self, moment: Instant, kind: str, what: Any = None) -> None:
        """Let something happen at a moment."""
        heapq.heappush(self.events, (moment, next(self.numbers), kind, what))


def a_world(scenario: Scenario, seed: int) -> World:
    """A world at its beginning."""
    world = World(scenario, random.Random(seed), numbers=itertools.count())
    store, now = MemoryStore(world.clock.now), world.now()
    settings = Settings(order=scenario.order)

    def an_engine() -> AdminEngine:
        engine = AdminEngine(
            store, settings, clock=world.clock, chance=random.Random(len(world.engines)), batching=False
        )
        world.engines.append(engine)
        return engine

    main = an_engine()
    for queue, options in scenario.queues.items():
        run_inline(main.queues.change(queue, **options))
    for task_type, circuit in scenario.circuits.items():
        run_inline(main.circuits.set(task_type, circuit))
    for fleet in scenario.fleets:
        for _ in range(fleet.workers):
            worker = Worker(WorkerId(f"worker-{len(world.workers)}"), fleet, an_engine() if fleet.apart else main)
            world.workers.append(worker)
            run_inline(_join(worker))
            world.at(now + world.luck.randrange(settings.heartbeat), "beat", worker)
    for engine in world.engines:
        world.at(now + world.luck.randrange(settings.heartbeat), "report", engine)
    world.at(now + SECOND, "sweep")
    for stream in scenario.streams:
        for _ in range(stream.first):
            _submit(world, stream)
        world.at(now + world.luck.randrange(1, stream.every + 1), "submit", stream)
    return world


def run(world: World, moments: list[Instant], each: int) -> None:
    """Let things happen up to the last of the moments; at every moment so many tasks are explained."""
    for moment in moments:
        while world.events[0][0] <= moment:
            at, _, kind, what = heapq.heappop(world.events)
            world.clock.advance(max(0, at - world.now()))
            _HAPPENS[kind](world, what)
            _serve(world)
        world.clock.advance(moment - world.now())
        chosen = random.Random(moment).sample(list(world.waiting), min(each, len(world.waiting)))
        for task_id in chosen:
            told = run_inline(world.engines[0].explain(task_id))
            if told.state is State.QUEUED:
                world.asked.append(Asked(task_id, told))


def served(world: World, worker: Worker) -> list[TaskId]:
    """What a worker would get in this order, claim by claim of one, if nothing ended."""
    order: list[TaskId] = []
    while len(order) < _MOST_CLAIMED and (found := _claim(worker, 1)):
        order += [task.id for task in found]
    return order


def can_take(worker: Worker, told: Explanation, stream: Stream) -> bool:
    """Whether a worker's claims could get to a task."""
    fleet = worker.fleet
    return (
        told.queue in fleet.queues
        and (fleet.types is None or told.type in fleet.types)
        and stream.requires.issubset(fleet.capabilities)
    )


async def _join(worker: Worker) -> None:
    fleet = worker.fleet
    await worker.engine.worker_records.register(
        worker.id, queues=fleet.queues, capacity=fleet.slots, capabilities=fleet.capabilities, types=fleet.types
    )


def _submit(world: World, stream: Stream) -> None:
    key = f"key-{world.luck.randrange(stream.keys)}" if stream.keys else None
    submission = Submission(
        type=stream.type,
        queue=stream.queue,
        priority=world.luck.choice(stream.priorities),
        requires=stream.requires,
        concurrency_key=key,
    )
    task = run_inline(world.engines[0].submit(submission)).task
    world.waiting[task.id] = stream


def _come(world: World, stream: Stream) -> None:
    for _ in range(stream.batch):
        _submit(world, stream)
    apart = stream.every if stream.batch > 1 else max(1, round(world.luck.expovariate(1 / stream.every)))
    world.at(world.now() + apart, "submit", stream)


def _claim(worker: Worker, limit: int) -> list[Task]:
    fleet = worker.fleet
    return run_inline(
        worker.engine.claim(worker.id, fleet.queues, limit=limit, capabilities=fleet.capabilities, types=fleet.types)
    )


def _serve(world: World) -> None:
    """Let the workers claim that have free slots, in any order."""
    for worker in world.luck.sample(world.workers, len(world.workers)):
        free = worker.fleet.slots - len(worker.running)
        if not world.waiting:
            return
        if not free:
            continue
        for task in _claim(worker, free):
            stream = world.waiting.pop(task.id)
            if task.status.lease is not None:
                worker.running[task.id] = task.status.lease.token
            world.starts.setdefault(task.id, []).append(world.now())
            world.at(world.now() + _length(world.luck, stream), "end", (worker, task, stream))
    if world.waiting and world.polled <= world.now():
        world.polled = world.now() + _POLL
        world.at(world.polled, "poll")


def _length(luck: random.Random, stream: Stream) -> Span:
    if stream.spread == "even":
        return round(stream.mean * luck.uniform(0.7, 1.3))
    if stream.spread == "random":
        return max(MILLISECOND, round(luck.expovariate(1 / stream.mean)))
    # Pareto's: a third of the mean at least, and one of a hundred takes seven times the mean.
    return min(60 * stream.mean, round(stream.mean / 3 * luck.paretovariate(1.5)))


def _end(world: World, what: tuple[Worker, Task, Stream]) -> None:
    worker, task, stream = what
    del worker.running[task.id]
    failed = world.luck.random() < stream.fails
    outcome: Outcome = Failed(failure=Failure(type="Boom", message="boom")) if failed else Completed(b"null")
    (settled,) = run_inline(worker.engine.settle([Settlement(task, outcome)]))
    if isinstance(settled, Task) and settled.state.waiting:
        world.waiting[task.id] = stream


def _beat(world: World, worker: Worker) -> None:
    run_inline(worker.engine.worker_records.beat(worker.id, running=len(worker.running)))
    run_inline(worker.engine.heartbeat([Beat(*held) for held in worker.running.items()]))
    world.at(world.now() + worker.engine.settings.heartbeat, "beat", worker)


def _report(world: World, engine: AdminEngine) -> None:
    run_inline(engine.worker_records.report())
    world.at(world.now() + engine.settings.heartbeat, "report", engine)


def _sweep(world: World, _: None) -> None:
    run_inline(world.engines[0].sweep())
    world.at(world.now() + SECOND, "sweep")


def _poll(_: World, __: None) -> None:
    """The workers look again, as after everything that happens."""


_HAPPENS: Final[dict[str, Any]] = {
    "submit": _come,
    "end": _end,
    "beat": _beat,
    "report": _report,
    "sweep": _sweep,
    "poll": _poll,
}
