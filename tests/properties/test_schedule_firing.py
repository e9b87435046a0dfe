"""Whatever processes fire schedules at once, wherever they die and however long they stand still: one task a time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Coroutine, Generator, Mapping, Sequence
from typing import Any

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fairlead.admin.engine import AdminEngine
from fairlead.admin.sweeper import Sweeper
from fairlead.core.events import Completed
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import MINUTE, SECOND, Instant
from fairlead.core.schedule import Missed, Overlap, Schedule, ScheduleEntry, upcoming
from fairlead.core.settings import Retention, Rules, Settings
from fairlead.core.submission import Submission
from fairlead.core.task import State, Task
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.clock import ManualClock
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Added, Filter, Receipt, Record

_PROCESSES = 3


class Turn:
    """Gives way to whoever is next."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Stepwise(MemoryStore):
    """A store whose callers give way before and after what matters to schedules, so that they can die there too."""

    def __init__(self) -> None:
        super().__init__()
        self.fires: dict[tuple[str, TaskId], Instant] = {}
        """Everything that was ever decided: the fire time of each task of each schedule."""
        self.added: Counter[TaskId] = Counter()

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        await Turn()
        version = await super().put(kind, name, value, expected=expected)
        if kind == "schedule" and version is not None:
            pending = msgspec.msgpack.decode(value, type=ScheduleEntry).status.pending
            self.fires |= {(name, fire.task): fire.at for fire in pending}
        await Turn()
        return version

    async def scan(self, kind: str) -> list[Record]:
        await Turn()
        found = await super().scan(kind)
        await Turn()
        return found

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        # In one step with what is decided right before it: that takes a store call longer than a few seconds to break.
        receipts = await super().add(tasks, now=now, bounds=bounds)
        self.added.update(task.id for task, receipt in zip(tasks, receipts, strict=True) if isinstance(receipt, Added))
        await Turn()
        return receipts


class World:
    """Some processes over one store, each of them somewhere in the midst of firing."""

    def __init__(self, schedules: Sequence[Schedule], *, forgetful: bool) -> None:
        self.clock = ManualClock()
        self.start = self.clock.now()
        self.store = Stepwise()
        retention = Retention(completed=0, cancelled=0) if forgetful else Retention()
        self._settings = Settings(rules=Rules(retention=retention))
        self.engines = [self._engine(seed) for seed in range(_PROCESSES)]
        self.worker = self._engine(77)
        self.under_way: dict[int, Coroutine[Any, Any, int]] = {}
        for schedule in schedules:
            finish(self.engines[0].schedules.add(schedule))

    def step(self, process: int, times: int) -> None:
        """Let one process go on with its firing, or begin one."""
        coroutine = self.under_way.pop(process, None) or self.engines[process].schedules.fire()
        for _ in range(times):
            try:
                coroutine.send(None)
            except StopIteration:
                return
        self.under_way[process] = coroutine

    def die(self, process: int) -> None:
        """End a process where it is; another takes its place, knowing nothing."""
        if process in self.under_way:
            self.under_way.pop(process).close()
        self.engines[process] = self._engine(random.randrange(1 << 30))

    def work(self) -> None:
        """Run what is queued, and sweep: what ended is forgotten, if nothing is to be kept."""
        engine = self.worker
        for task in finish(engine.claim(WorkerId("w"), ["default"], limit=1_000)):
            finish(engine.settle([Settlement(task, Completed(b"null"))]))
        finish(Sweeper(engine).once())

    def settle(self) -> None:
        """Let the others end, and a last one see to what is left."""
        for process in list(self.under_way):
            while process in self.under_way:
                self.step(process, 1)
        for _ in range(3):
            self.clock.advance(MINUTE)
            finish(Sweeper(self._engine(99)).once())

    def _engine(self, seed: int) -> AdminEngine:
        return AdminEngine(self.store, self._settings, clock=self.clock, chance=random.Random(seed), batching=False)


def finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Drive a coroutine to its end, alone."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value


steps = st.one_of(
    st.tuples(st.just("step"), st.integers(0, _PROCESSES - 1), st.integers(1, 25)),
    st.tuples(st.just("step"), st.integers(0, _PROCESSES - 1), st.integers(1, 4)),
    st.tuples(st.just("die"), st.integers(0, _PROCESSES - 1), st.just(0)),
    st.tuples(st.just("pass"), st.sampled_from([1, 4, 5, 11, 700]), st.just(0)),
    st.tuples(st.just("work"), st.just(0), st.just(0)),
)


def act(world: World, script: Sequence[tuple[str, int, int]]) -> None:
    for verb, number, times in script:
        match verb:
            case "step":
                world.step(number, times)
            case "die":
                world.die(number)
            case "pass":
                world.clock.advance(number * SECOND)
            case _:
                world.work()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=5, max_size=120), st.booleans())
# Died after the submit; what was submitted ran and was forgotten before, or while, someone else took over.
@example([("pass", 5, 0), ("step", 0, 13), ("work", 0, 0), ("die", 0, 0), ("pass", 11, 0)], True)
@example([("pass", 5, 0), ("step", 1, 13), ("pass", 700, 0), ("step", 0, 4), ("work", 0, 0)], True)
@example([("pass", 5, 0), ("step", 1, 13), ("pass", 700, 0), ("step", 0, 6), ("work", 0, 0)], True)
def test_every_fire_time_has_exactly_one_task(script: list[tuple[str, int, int]], forgetful: bool) -> None:
    schedules = [
        Schedule(name=name, cron=cron, submission=Submission(type=name), missed=Missed.RUN_ALL, missed_cap=1_000)
        for name, cron in (("often", "every 5 seconds"), ("seldom", "*/1 * * * *"))
    ]
    world = World(schedules, forgetful=forgetful)
    act(world, script)
    world.settle()

    added = world.store.added
    assert all(count == 1 for count in added.values())
    for schedule in schedules:
        entry = run_entry(world, schedule.name)
        assert entry.status.next_at is not None
        due = []
        for at in upcoming(schedule, world.start):
            if at >= entry.status.next_at:
                break
            due.append(at)
        submitted = [at for (name, task), at in world.store.fires.items() if name == schedule.name and task in added]
        assert sorted(submitted) == due
        assert entry.status.fired == len(due)
        assert entry.status.pending == ()


def run_entry(world: World, name: str) -> ScheduleEntry:
    found = finish(world.engines[0].schedules.get(name))
    assert isinstance(found, ScheduleEntry)
    return found


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=5, max_size=100), st.sampled_from([Overlap.SKIP, Overlap.REPLACE]))
def test_what_must_not_overlap_never_does(script: list[tuple[str, int, int]], overlap: Overlap) -> None:
    schedule = Schedule(name="alone", cron="every 5 seconds", submission=Submission(type="alone"), overlap=overlap)
    world = World([schedule], forgetful=False)
    for action in script:
        act(world, [action])
        waiting = run_inline(
            MemoryStore.find(world.store, Filter(states=frozenset({State.QUEUED, State.EXECUTING})), limit=100)
        )
        assert len(waiting) <= 1
    world.settle()
    assert all(count == 1 for count in world.store.added.values())
