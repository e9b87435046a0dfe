"""A client whose host's clock is wrong by an hour changes nothing: the server's clock counts, for all of its clients.

Time passes here as it does for users, so what is compared are moments an hour apart with seconds of tolerance.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.app.connection import Connection
from fairlead.core.events import Completed
from fairlead.core.identity import WorkerId
from fairlead.core.instant import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Instant, Span
from fairlead.core.queues.order import Promote
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Lease, Priority, State, Task
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.clock import FollowingClock, SystemClock
from fairlead.storage.values import Beat, Pulse
from tests.servers.redis import RedisServer
from tests.storage.redis.orphans import assert_no_orphans

SETTINGS: Final = Settings(key_retention=10 * MINUTE)
SLACK: Final = 60 * SECOND
"""How much later than asked for something may happen on a busy machine."""


class WrongClock(SystemClock):
    """A host's clock that someone set wrong; what has passed, it still measures rightly."""

    def __init__(self, off: Span) -> None:
        self._off = off

    def now(self) -> Instant:
        return super().now() + self._off


class Pair:
    """Two clients of one store, on a host whose clock is right and on one whose clock is wrong."""

    def __init__(self, right: AdminEngine, wrong: AdminEngine) -> None:
        self.right = right
        self.wrong = wrong

    def both_ways(self) -> tuple[tuple[AdminEngine, AdminEngine], tuple[AdminEngine, AdminEngine]]:
        return (self.right, self.wrong), (self.wrong, self.right)


@pytest.fixture(params=[HOUR, -HOUR], ids=["an-hour-ahead", "an-hour-behind"])
def off(request: pytest.FixtureRequest) -> Span:
    wrong: Span = request.param
    return wrong


@asynccontextmanager
async def clients(server: RedisServer, prefix: str, off: Span, settings: Settings = SETTINGS) -> AsyncIterator[Pair]:
    """Both as an app opens its store."""
    async with AsyncExitStack() as closing:
        engines: list[AdminEngine] = []
        for clock in (SystemClock(), WrongClock(off)):
            connection = Connection(server.url(prefix=prefix), settings, clock=FollowingClock(clock))
            engines.append(await connection.engine())
            closing.push_async_callback(connection.close)
        yield Pair(*engines)
    assert_no_orphans([server], prefix)


async def submit(
    engine: AdminEngine, priority: Priority = Priority.MEDIUM, *, delay: Span | None = None, key: str | None = None
) -> Task:
    wish = Submission(type="work", priority=priority, delay=delay, idempotency_key=key)
    return (await engine.submit(wish)).task


async def claim(engine: AdminEngine, limit: int = 1) -> list[Task]:
    return await engine.claim(WorkerId("worker-1"), ["default"], limit=limit)


def ids(tasks: list[Task]) -> list[str]:
    return [task.id for task in tasks]


def lease_of(task: Task) -> Lease:
    assert task.status.lease is not None
    return task.status.lease


async def server_time(engine: AdminEngine) -> Instant:
    now = await engine.store.time()
    assert now is not None
    return now


async def test_tasks_are_served_in_the_order_of_submitting_whoever_submits_and_claims(
    single: RedisServer, prefix: str, off: Span
) -> None:
    async with clients(single, prefix, off) as pair:
        for one, other in pair.both_ways():
            tasks: list[Task] = []
            for submitter in (one, other) * 3:
                tasks.append(await submit(submitter))
                # More than the clocks of two clients may be apart after asking the same server.
                await asyncio.sleep(0.05)
            now = await server_time(pair.right)
            assert all(now - SLACK < task.spec.created_at <= now + SECOND for task in tasks)

            assert ids(await claim(one, 3) + await claim(other, 3)) == ids(tasks)


async def test_nothing_is_promoted_before_its_time(single: RedisServer, prefix: str, off: Span) -> None:
    """By any of the clocks alone the low task would have waited an hour, or would not be ready for an hour."""
    async with clients(single, prefix, off) as pair:
        for one, other in pair.both_ways():
            for claimer in (one, other):
                low = await submit(one, Priority.LOW)
                high = await submit(other, Priority.HIGH)
                critical = await submit(one, Priority.CRITICAL)

                assert ids(await claim(claimer, 3)) == ids([critical, high, low])


@pytest.mark.slow
async def test_what_has_waited_long_enough_is_promoted(single: RedisServer, prefix: str, off: Span) -> None:
    settings = Settings(order=Promote(low=100 * MILLISECOND, medium=100 * MILLISECOND, high=100 * MILLISECOND))
    async with clients(single, prefix, off, settings) as pair:
        for one, other in pair.both_ways():
            for claimer in (one, other):
                low = await submit(one, Priority.LOW)
                await asyncio.sleep(0.5)
                high = await submit(other, Priority.HIGH)

                assert ids(await claim(claimer, 2)) == ids([low, high])


async def test_a_lease_is_not_ended_early_by_the_other_and_its_outcome_counts(
    single: RedisServer, prefix: str, off: Span
) -> None:
    async with clients(single, prefix, off) as pair:
        for holder, sweeper in pair.both_ways():
            submitted = await submit(sweeper)
            (task,) = await claim(holder)
            now = await server_time(holder)
            assert now < lease_of(task).until <= now + SETTINGS.lease + SECOND
            assert await sweeper.sweep() == []

            assert await holder.heartbeat([Beat(task.id, lease_of(task).token)]) == [Pulse.HELD]
            assert await sweeper.sweep() == []
            renewed = await sweeper.get(task.id)
            assert renewed.state is State.EXECUTING
            now = await server_time(holder)
            assert lease_of(task).until < lease_of(renewed).until <= now + SETTINGS.lease + SECOND

            (settled,) = await holder.settle([Settlement(task, Completed(b"1"))])
            assert isinstance(settled, Task)
            assert (settled.id, settled.state) == (submitted.id, State.COMPLETED)
            # Kept for as long as it should be, not an hour less or more.
            assert abs((settled.status.alarm or 0) - (now + DAY)) < SLACK
            assert await sweeper.sweep() == []


@pytest.mark.slow
async def test_a_lease_that_is_not_renewed_ends_in_its_time(single: RedisServer, prefix: str, off: Span) -> None:
    lease = 1.0
    settings = Settings(lease=SECOND, heartbeat=100 * MILLISECOND)
    async with clients(single, prefix, off, settings) as pair:
        for holder, sweeper in pair.both_ways():
            await submit(holder)
            began = time.monotonic()
            (task,) = await claim(holder)
            taken = await swept(sweeper, task, unlike=State.EXECUTING)

            assert lease * 0.9 < taken - began < lease + SLACK / SECOND
            assert (await holder.get(task.id)).status.crashes == 1


@pytest.mark.slow
async def test_a_delay_is_over_in_its_time(single: RedisServer, prefix: str, off: Span) -> None:
    async with clients(single, prefix, off) as pair:
        for submitter, sweeper in pair.both_ways():
            began = time.monotonic()
            task = await submit(submitter, delay=SECOND)
            assert task.state is State.SCHEDULED
            due = await swept(sweeper, task, unlike=State.SCHEDULED)

            assert 0.9 < due - began < 1 + SLACK / SECOND
            assert ids(await claim(submitter)) == [task.id]


async def test_a_key_is_held_for_its_time(single: RedisServer, prefix: str, off: Span) -> None:
    """The hour that the clock is wrong by is longer than the key is held."""
    async with clients(single, prefix, off) as pair:
        for number, (one, other) in enumerate(pair.both_ways()):
            task = await submit(one, key=f"key-{number}")
            now = await server_time(one)
            assert abs((task.spec.key_until or 0) - (now + SETTINGS.key_retention)) < SLACK

            assert (await submit(other, key=f"key-{number}")).id == task.id


async def swept(sweeper: AdminEngine, task: Task, *, unlike: State) -> float:
    """Sweep until a task is no longer in that state; the moment."""
    deadline = time.monotonic() + 2 * SLACK / SECOND
    while (await sweeper.get(task.id)).state is unlike:
        assert time.monotonic() < deadline, f"the task stays {unlike}"
        await asyncio.sleep(0.02)
        await sweeper.sweep()
    return time.monotonic()
