"""Waiting for tasks that are claimed at once: by what the engine knows, and told as any claim is."""

from __future__ import annotations

import asyncio
import random

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.core.circuit import CircuitSettings
from fairlead.core.identity import WorkerId
from fairlead.core.instant import SECOND, Instant
from fairlead.core.task import State, Task
from fairlead.engine.events.types import Happening, Occurrence
from fairlead.engine.runtime.clock import FollowingClock, ManualClock
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Claim
from tests.conformance.prompt_store import PromptStore
from tests.engine.building import a_wish

WORKER = WorkerId("worker-1")
LONG = 300.0


class Server(PromptStore):
    """A store with a clock that stands still; notes how long it was asked to wait, and for what."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.asked: list[tuple[Claim, float]] = []

    def now(self) -> Instant:
        return self.clock.now()

    async def wait_and_claim(self, claim: Claim, timeout: float) -> list[Task] | None:
        self.asked.append((claim, timeout))
        return await super().wait_and_claim(claim, timeout)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def occurrences() -> list[Occurrence]:
    return []


@pytest.fixture
async def engine(server: Server, occurrences: list[Occurrence]) -> AdminEngine:
    clock = FollowingClock(server.clock)
    engine = AdminEngine(server, clock=clock, chance=random.Random(1), observers=[occurrences.append])
    await engine.follow_clock()
    return engine


async def wait(engine: AdminEngine, *queues: str, timeout: float = LONG) -> list[Task] | None:
    return await engine.wait(WORKER, queues or ["default"], timeout, limit=5)


async def test_a_task_that_comes_is_claimed_and_told_of_as_of_then(
    server: Server, engine: AdminEngine, occurrences: list[Occurrence]
) -> None:
    waiting = asyncio.create_task(wait(engine))
    while not server.asked:  # noqa: ASYNC110 - a list has no event
        await asyncio.sleep(0)
    server.clock.advance(SECOND // 2)
    submitted = await engine.submit(a_wish())
    (task,) = await waiting or []
    now = server.clock.now()
    assert (task.id, task.state, task.status.started_at) == (submitted.task.id, State.EXECUTING, now)
    assert task.status.lease is not None
    assert task.status.lease.until == now + engine.settings.lease
    assert [each.at for each in occurrences if each.happening is Happening.STARTED] == [now]


async def test_a_claim_waits_no_longer_than_what_it_goes_by_is_fresh(server: Server, engine: AdminEngine) -> None:
    """So a pause counts everywhere within a second, though the claim was sent before it."""
    for passed, left in ((0, 1.0), (SECOND // 4, 0.75), (SECOND // 2, 0.25), (SECOND, 1.0)):
        server.clock.advance(passed)
        await engine.submit(a_wish())
        assert len(await wait(engine) or ()) == 1
        assert server.asked[-1][1] == pytest.approx(left)
    await engine.submit(a_wish())
    assert len(await wait(engine, timeout=0.1) or ()) == 1
    assert server.asked[-1][1] == pytest.approx(0.1)


async def test_what_is_paused_is_neither_listened_to_nor_claimed(server: Server, engine: AdminEngine) -> None:
    await engine.queues.pause("held")
    await engine.queues.pause_type("later")
    for wish in (a_wish(queue="held"), a_wish(type="later"), a_wish()):
        await engine.submit(wish)
    (task,) = await wait(engine, "held", "default") or []
    assert (task.spec.queue, task.spec.type) == ("default", "send_mail")
    claim, _ = server.asked[-1]
    assert [order.queue for order in claim.queues] == ["default"]
    assert await wait(engine, "held", timeout=0.001) is None


async def test_a_pause_by_another_process_counts_for_the_wait_a_second_later(
    server: Server, engine: AdminEngine
) -> None:
    await wait(engine, timeout=0.001)
    other = AdminEngine(server, clock=FollowingClock(server.clock), chance=random.Random(2))
    await other.queues.pause("default")
    await other.submit(a_wish())
    server.clock.advance(SECOND)
    assert await wait(engine, timeout=0.001) is None
    assert (await server.tally()).lanes[0].counts == {State.QUEUED: 1}


async def test_what_is_limited_is_claimed_in_a_step_of_its_own(server: Server, engine: AdminEngine) -> None:
    await engine.queues.change("default", running=1)
    await engine.submit(a_wish())
    assert await wait(engine) is None
    assert server.asked == []


async def test_what_is_tried_by_probes_is_claimed_in_a_step_of_its_own(server: Server, engine: AdminEngine) -> None:
    await engine.circuits.set("send_mail", CircuitSettings())
    await engine.circuits.open("send_mail")
    await engine.submit(a_wish())
    assert await wait(engine, timeout=0.001) is None
    assert server.asked == []


async def test_a_clock_that_is_not_the_stores_does_for_no_claim_that_waits(server: Server) -> None:
    engine = AdminEngine(server, clock=server.clock, chance=random.Random(3))
    await engine.submit(a_wish())
    assert await wait(engine) is None
    assert server.asked == []


async def test_a_store_that_cannot_is_waited_for() -> None:
    engine = AdminEngine(MemoryStore(), chance=random.Random(4))
    await engine.submit(a_wish())
    assert await wait(engine) is None
    assert len(await engine.claim(WORKER, ["default"], limit=5)) == 1


async def test_a_paused_worker_has_no_store_wait_for_it(server: Server, engine: AdminEngine) -> None:
    await engine.worker_records.register(WORKER, queues=["default"], capacity=5)
    await engine.submit(a_wish())
    await engine.workers.pause(WORKER)
    assert await wait(engine, timeout=0.0) is None
    assert server.asked == []
    await engine.workers.resume(WORKER)
    assert len(await wait(engine) or []) == 1
