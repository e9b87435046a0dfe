"""A claim takes what the page on the order of service says, on every store, whatever happened before."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.core.circuit import CircuitSettings
from fairlead.core.events import Completed, Failed, HandedBack
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import DAY, HOUR, MINUTE, SECOND
from fairlead.core.queues.order import HeadStart, Policy, Promote, Strict
from fairlead.core.settings import Settings
from fairlead.core.task import Priority, State, Task
from fairlead.storage.open import open_store
from fairlead.storage.protocol import Store
from tests.engine.building import BOOM, Bench
from tests.properties.order_oracle import HEAD_START, POLICIES, PROMOTE, PROMOTE_ALL, STRICT, Oracle, Rules, Told, ids
from tests.servers.redis import RedisCluster, started_cluster
from tests.servers.stores import Place, database, empty_place, postgres, redis

__all__ = ["database", "postgres", "redis"]

POLICY: Final[dict[str, Policy]] = {
    PROMOTE: Promote(),
    PROMOTE_ALL: Promote(share="all"),
    STRICT: Strict(),
    HEAD_START: HeadStart(),
}
LONGEST_RUN: Final = 3 * HOUR
_numbers: Final = itertools.count()


class Trial:
    """One store and the oracle, to which the same happens."""

    def __init__(self, store: Store, seed: int) -> None:
        self.bench = Bench(Settings(lease=4 * HOUR, heartbeat=HOUR), store=store)
        self.other = Bench(Settings(lease=4 * HOUR, heartbeat=HOUR), store=store, clock=self.bench.clock, seed=7)
        """Another process on the same store."""
        self.engine = self.bench.engine
        self.luck = random.Random(seed)
        number = next(_numbers)
        self.queues = [f"queue-{number}-{each}" for each in range(self.luck.choice([1, 1, 2, 3]))]
        self.types = [f"type-{number}-{each}" for each in range(3)]
        self.oracle = Oracle({queue: self._some_rules() for queue in self.queues})
        self.tasks: dict[str, tuple[Task, Told]] = {}
        """Those that run."""
        self.later: dict[str, Told] = {}
        """Those that are due some time, and are in line from then on."""
        self.ended: list[Told] = []

    def _some_rules(self) -> Rules:
        luck, rules = self.luck, Rules(policy=self.luck.choice(POLICIES))
        if luck.random() < 0.3:
            rules.running = luck.randrange(1, 5)
        if luck.random() < 0.2:
            rules.apart = luck.choice([6, 12]) * SECOND
        if self._takes_turns_beside_others(rules):
            return rules
        if luck.random() < 0.3:
            rules.type_running = {luck.choice(self.types): luck.randrange(1, 3)}
        if luck.random() < 0.2:
            rules.type_apart = {luck.choice(self.types): luck.choice([6, 12]) * SECOND}
        if luck.random() < 0.3:
            rules.key_running = 2
        return rules

    def _takes_turns_beside_others(self, rules: Rules) -> bool:
        """Whether it is the one exception that the page names: such a queue then has no keys, nor limits of types."""
        return len(self.queues) > 1 and rules.policy in (PROMOTE, PROMOTE_ALL)

    async def begin(self) -> None:
        for queue, rules in self.oracle.rules.items():
            await self.engine.queues.change(
                queue,
                order=POLICY[rules.policy],
                running=rules.running,
                rate=_rate(rules.apart),
                type_running=rules.type_running,
                type_rate={each: _rate(apart) for each, apart in rules.type_apart.items()},
                key_running=rules.key_running,
            )
        for task_type in self.types:
            await self.engine.circuits.set(task_type, CircuitSettings(open_for=DAY))
        self.engine.queue_cache.expire()

    async def submit(self) -> None:
        luck = self.luck
        for _ in range(luck.randrange(1, 12)):
            delay = luck.choice([0, 0, 0, 5 * SECOND, 15 * MINUTE])
            queue = luck.choice(self.queues)
            turns = self._takes_turns_beside_others(self.oracle.rules[queue])
            task = await self.bench.submit(
                queue=queue,
                type=luck.choice(self.types),
                priority=Priority(luck.randrange(4)),
                requires=frozenset(luck.choice([(), (), (), ("gpu",), ("eu", "gpu")])),
                concurrency_key=None if turns else luck.choice([None, None, None, "a", "b"]),
                delay=delay,
                timeout=4 * HOUR,
                max_retries=100,
            )
            spec = task.spec
            told = Told(
                task.id,
                spec.queue,
                spec.type,
                int(task.status.priority),
                frozenset(spec.requires),
                spec.concurrency_key,
                self.bench.clock.now() + delay,
            )
            if delay:
                self.later[told.id] = told
            else:
                self.oracle.waiting.append(told)

    async def pass_time(self) -> None:
        span = self.luck.choice([1, SECOND, 6 * SECOND, MINUTE, 11 * MINUTE, 21 * MINUTE, 40 * MINUTE])
        until = self.bench.clock.now() + span
        for task, told in list(self.tasks.values()):
            if until - (task.status.started_at or 0) >= LONGEST_RUN:
                await self._end(task, told)
        self.bench.clock.advance(span)
        await self._sweep()

    async def _sweep(self) -> None:
        while await self.engine.sweep():
            pass
        now = self.bench.clock.now()
        for told in [each for each in self.later.values() if each.waits_since <= now]:
            self.oracle.waiting.append(self.later.pop(told.id))

    async def claim(self) -> None:
        luck = self.luck
        queues = luck.sample(self.queues, luck.randrange(1, len(self.queues) + 1))
        types = luck.choice([self.types, self.types, self.types[:1], self.types[1:]])
        has = luck.choice([("eu", "gpu"), ("gpu",), ()])
        limit = luck.choice([1, 1, 2, 7])
        process = luck.choice([0, 0, 0, 1])
        expected = self.oracle.claim(process, queues, types, has, limit, self.bench.clock.now())
        engine = (self.engine, self.other.engine)[process]
        taken = await engine.claim(WorkerId("w"), queues, limit=limit, capabilities=has, types=types)
        assert [task.id for task in taken] == ids(expected)
        self.tasks |= {task.id: (task, told) for task, told in zip(taken, expected, strict=True)}

    async def settle(self) -> None:
        for task, told in self.luck.sample(list(self.tasks.values()), min(len(self.tasks), 2)):
            match self.luck.randrange(5):
                case 0:
                    await self.bench.settle(task, HandedBack())
                    self._stop(told)
                    self.oracle.waiting.append(told)
                case 1:
                    after = self.luck.choice([0, SECOND, 7 * MINUTE])
                    await self.bench.settle(task, Failed(failure=BOOM, after=after))
                    self._stop(told)
                    told.waits_since = self.bench.clock.now() + after
                    self.later[told.id] = told
                    await self._sweep()
                case _:
                    await self._end(task, told)

    async def _end(self, task: Task, told: Told) -> None:
        await self.bench.settle(task, Completed())
        self._stop(told)

    def _stop(self, told: Told) -> None:
        del self.tasks[told.id]
        self.oracle.running.remove(told)

    async def cancel_or_replay(self) -> None:
        if self.ended and self.luck.random() < 0.5:
            told = self.ended.pop()
            task = await self.engine.replay(TaskId(told.id))
            assert task.state is State.QUEUED
            told.waits_since = self.bench.clock.now()
            self.oracle.waiting.append(told)
        elif self.oracle.waiting:
            told = self.oracle.waiting.pop(self.luck.randrange(len(self.oracle.waiting)))
            await self.engine.cancel(TaskId(told.id))
            self.ended.append(told)

    async def pause_or_resume(self) -> None:
        queue = self.luck.choice(self.queues)
        rules = self.oracle.rules[queue]
        rules.paused = not rules.paused
        await (self.engine.queues.pause(queue) if rules.paused else self.engine.queues.resume(queue))

    async def hold_or_release_a_type(self) -> None:
        task_type, held = self.luck.choice(self.types), self.oracle.held_types
        if task_type in held:
            held.remove(task_type)
            await self.engine.queues.resume_type(task_type)
            await self.engine.circuits.close(task_type)
        else:
            held.add(task_type)
            if self.luck.random() < 0.5:
                await self.engine.queues.pause_type(task_type)
            else:
                await self.engine.circuits.open(task_type)

    async def step(self, seed: int) -> None:
        self.luck = random.Random(seed)
        (does,) = self.luck.choices(
            [
                self.submit,
                self.claim,
                self.settle,
                self.pass_time,
                self.cancel_or_replay,
                self.pause_or_resume,
                self.hold_or_release_a_type,
            ],
            [25, 60, 25, 20, 3, 1, 1],
        )
        await does()
        for bench in (self.bench, self.other):
            bench.engine.queue_cache.expire()


def _rate(apart: int | None) -> str | None:
    return None if apart is None else f"{MINUTE // apart}/m"


seeds = st.lists(st.integers(0, 2**32 - 1), min_size=20, max_size=60)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    yield from started_cluster()


@pytest.fixture(params=["memory", "sqlite", "redis", "postgresql", "journal", "cluster"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "cluster":
        place = Place(request.getfixturevalue("cluster").url(prefix=f"order{next(_numbers)}"))
    else:
        place = empty_place(request, tmp_path)
    store = await open_store(place.url, journal=place.journal)
    yield store
    await store.close()


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.integers(0, 2**32 - 1), seeds)
async def test_a_claim_takes_what_the_page_says(store: Store, seed: int, steps: list[int]) -> None:
    trial = Trial(store, seed)
    await trial.begin()
    for step in steps:
        await trial.step(step)
