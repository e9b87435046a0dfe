"""Circuits, on every store: what keeps failing waits, is tried with a few, and goes on when they pass."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from fairlead.core.circuit import CircuitSettings, CircuitState
from fairlead.core.errors import CircuitNotFound
from fairlead.core.events import Completed, Failed, HandedBack, Outcome
from fairlead.core.instant import HOUR, MINUTE, SECOND
from fairlead.core.retry import Backoff
from fairlead.core.task import State, Task
from fairlead.engine.events.types import CircuitEvent, EventType
from fairlead.engine.runtime.clock import ManualClock
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store
from tests.engine.building import BOOM, Bench

SETTINGS = CircuitSettings(min_outcomes=4, open_for=30 * SECOND, probes=2)
AT_ONCE = Backoff(initial=0)


class Site(Bench):
    """A bench for a type that may fail."""

    def __init__(self, store: Store | None = None, clock: ManualClock | None = None, seed: int = 42) -> None:
        # Without a task of its own that publishes, which would outlive the test's store.
        super().__init__(store=store, clock=clock, seed=seed, batching=False)

    async def flaky(self, count: int) -> None:
        for _ in range(count):
            await self.submit(type="flaky", max_retries=1_000, backoff=AT_ONCE)

    async def ended(self, tasks: Sequence[Task], outcome: Outcome) -> None:
        for task in tasks:
            await self.settle(task, outcome)

    async def state(self) -> CircuitState:
        return (await self.engine.circuits.get("flaky")).state

    async def open(self, count: int = 10) -> None:
        """Tasks of the type, and its circuit just open."""
        await self.engine.circuits.set("flaky", SETTINGS)
        await self.flaky(count)
        await self.ended(await self.claim(4), Failed(failure=BOOM))
        self.clock.advance(SECOND)
        await self.claim(0)
        assert await self.state() is CircuitState.OPEN


async def test_a_type_that_keeps_failing_is_no_longer_claimed_and_loses_nothing(any_store: Store) -> None:
    site = Site(store=any_store)
    await site.open()
    await site.submit(type="sound")

    assert [task.spec.type for task in await site.claim(50)] == ["sound"]
    assert await site.claim(50) == []
    stats = await site.engine.stats()
    assert stats.queues["default"].types == {"flaky": 10}
    assert stats.states[State.DEAD_LETTER] == 0
    circuit = stats.circuits["flaky"]
    assert (circuit.state, circuit.status.until) == (CircuitState.OPEN, circuit.status.since + 30 * SECOND)
    assert (circuit.status.outcomes, circuit.status.failures) == (4, 4)


async def test_it_is_tried_with_a_few_in_all_processes_together_and_closes_when_they_pass(any_store: Store) -> None:
    site = Site(store=any_store)
    await site.open()
    other = Site(store=any_store, clock=site.clock, seed=7)
    assert await other.claim(50) == []

    site.clock.advance(30 * SECOND)
    (first,) = await site.claim(1)
    (second,) = await other.claim(50)
    assert await site.claim(50, "worker-2") == await other.claim(50, "worker-2") == []
    assert await site.state() is CircuitState.HALF_OPEN

    await site.ended([first], Completed())
    await other.ended([second], Completed())
    assert await site.state() is CircuitState.CLOSED
    site.clock.advance(SECOND)
    assert len(await site.claim(50)) == 8


async def test_however_many_claim_at_once_only_the_probes_are_taken(any_store: Store) -> None:
    site = Site(store=any_store)
    await site.open()
    sites = [Site(store=any_store, clock=site.clock, seed=seed) for seed in range(8)]
    for each in sites:
        assert await each.claim(50) == []
    site.clock.advance(30 * SECOND)
    claims = await asyncio.gather(*(each.claim(50, f"worker-{number}") for number, each in enumerate(sites)))
    assert sum(len(tasks) for tasks in claims) == 2


async def test_one_probe_that_fails_opens_it_again(any_store: Store) -> None:
    site = Site(store=any_store)
    await site.open()
    site.clock.advance(30 * SECOND)
    first, second = await site.claim(50)
    await site.ended([first], Completed())
    await site.ended([second], Failed(failure=BOOM))
    assert await site.state() is CircuitState.OPEN
    assert await site.claim(50) == []
    site.clock.advance(30 * SECOND)
    assert len(await site.claim(50)) == 2


async def test_a_probe_may_be_answered_in_a_process_that_does_not_know_of_it(any_store: Store) -> None:
    site = Site(store=any_store)
    await site.open()
    other = Site(store=any_store, clock=site.clock, seed=7)
    await other.claim(0)
    site.clock.advance(30 * SECOND)
    await other.ended(await site.claim(50), Completed())
    site.clock.advance(SECOND)
    await other.claim(0)
    assert await site.state() is CircuitState.CLOSED


async def test_a_lane_is_withheld_until_its_type_may_be_probed() -> None:
    site = Site()
    await site.open()
    (task,) = await site.engine.find(limit=1)
    assert site.engine.queue_cache.withheld(task.lane)
    site.clock.advance(30 * SECOND)
    assert not site.engine.queue_cache.withheld(task.lane)
    await site.claim(50)
    assert site.engine.queue_cache.withheld(task.lane)


async def test_processes_count_together(any_store: Store) -> None:
    one = Site(store=any_store)
    two = Site(store=any_store, clock=one.clock, seed=7)
    await one.engine.circuits.set("flaky", SETTINGS)
    await one.flaky(6)
    mine, yours = await one.claim(2), await two.claim(2)
    await one.ended(mine, Failed(failure=BOOM))
    await two.ended(yours, Failed(failure=BOOM))
    one.clock.advance(SECOND)
    await one.claim(0)
    await two.claim(0)
    assert await one.state() is CircuitState.OPEN


async def test_a_probe_of_a_process_that_died_is_lost_with_its_lease_and_opens_it_again(any_store: Store) -> None:
    site = Site(store=any_store)
    await site.open()
    site.clock.advance(30 * SECOND)
    assert len(await site.claim(50)) == 2
    # Its worker sends no heartbeat; another process sweeps.
    sweeping = Site(store=any_store, clock=site.clock, seed=7)
    await sweeping.claim(0)
    site.clock.advance(31 * SECOND)
    await sweeping.engine.sweep()
    assert await sweeping.state() is CircuitState.OPEN


async def test_room_that_a_process_took_and_died_with_is_given_up() -> None:
    class Dying(MemoryStore):
        """A store whose claims fail, as they do for a process that is killed before them."""

        dies = False

        async def claim(self, claim: object) -> list[Task]:
            if self.dies:
                raise asyncio.CancelledError
            return await super().claim(claim)  # type: ignore[arg-type]

    store = Dying()
    site = Site(store=store)
    await site.open()
    site.clock.advance(30 * SECOND)
    store.dies = True
    with pytest.raises(asyncio.CancelledError):
        await site.claim(50)
    store.dies = False
    assert await site.claim(50) == []
    assert await site.state() is CircuitState.HALF_OPEN
    site.clock.advance(site.engine.settings.lease)
    assert len(await site.claim(50)) == 2


async def test_a_probe_that_takes_its_time_keeps_its_room() -> None:
    site = Site()
    await site.open()
    site.clock.advance(30 * SECOND)
    assert len(await site.claim(50)) == 2
    site.clock.advance(5 * MINUTE)
    assert await site.claim(50) == []


async def test_a_probe_that_is_handed_back_makes_room_for_another(any_store: Store) -> None:
    site = Site(store=any_store)
    await site.open()
    site.clock.advance(30 * SECOND)
    first, _ = await site.claim(50)
    await site.ended([first], HandedBack())
    assert await site.state() is CircuitState.HALF_OPEN
    assert len(await site.claim(50)) == 1


async def test_without_tasks_it_stays_half_open_and_keeps_no_room() -> None:
    site = Site()
    await site.open(count=4)
    await site.engine.queues.purge("default")
    site.clock.advance(30 * SECOND)
    assert await site.claim(50) == []
    await site.flaky(3)
    assert await site.claim(50) == []
    site.clock.advance(SECOND)
    assert len(await site.claim(50)) == 2


async def test_attempts_that_began_before_it_turned_do_not_count_after() -> None:
    site = Site()
    await site.engine.circuits.set("flaky", SETTINGS)
    await site.flaky(20)
    old = await site.claim(10)
    await site.ended(old[:4], Failed(failure=BOOM))
    site.clock.advance(SECOND)
    await site.claim(0)
    site.clock.advance(30 * SECOND)
    probes = await site.claim(50)
    await site.ended(old[4:6], Failed(failure=BOOM))
    assert await site.state() is CircuitState.HALF_OPEN
    await site.ended(probes, Completed())
    assert await site.state() is CircuitState.CLOSED
    await site.ended(old[6:], Failed(failure=BOOM))
    site.clock.advance(SECOND)
    await site.claim(0)
    assert await site.state() is CircuitState.CLOSED


async def test_a_type_without_a_circuit_and_one_that_is_paused_are_left_alone() -> None:
    site = Site()
    await site.open()
    site.clock.advance(30 * SECOND)
    await site.engine.queues.pause_type("flaky")
    assert await site.claim(50) == []
    assert await site.state() is CircuitState.OPEN
    await site.engine.queues.resume_type("flaky")
    assert await site.claim(50, types=["other"]) == []
    assert len(await site.claim(50, types=["flaky"])) == 2


async def test_settling_calls_the_store_once_a_second_at_most_for_circuits() -> None:
    class Counting(MemoryStore):
        puts = 0

        async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
            self.puts += 1
            return await super().put(kind, name, value, expected=expected)

    store = Counting()
    site = Site(store=store)
    await site.engine.circuits.set("flaky", SETTINGS)
    await site.flaky(300)
    tasks = await site.claim(300)
    before = store.puts
    await site.ended(tasks, Completed())
    assert store.puts - before <= 1


async def test_it_is_told_in_the_feed_and_in_the_log(any_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    site = Site(store=any_store)
    await site.engine.feed.want()
    with caplog.at_level(logging.INFO, "fairlead.circuits"):
        await site.open()
        site.clock.advance(30 * SECOND)
        await site.engine.feed.want()
        await site.ended(await site.claim(50), Completed())
    told = [one.event for one in await site.engine.feed.read(None)]
    assert [(one.type, one.data.task_type) for one in told if isinstance(one, CircuitEvent)] == [
        (EventType.CIRCUIT_OPENED, "flaky"),
        (EventType.CIRCUIT_HALF_OPEN, "flaky"),
        (EventType.CIRCUIT_CLOSED, "flaky"),
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"]
    assert "4 of 4 attempts failed" in caplog.text


async def test_people_set_turn_and_remove_circuits(any_store: Store) -> None:
    site = Site(store=any_store)
    circuits = site.engine.circuits
    with pytest.raises(CircuitNotFound):
        await circuits.open("flaky")
    assert await circuits.find("flaky") is None
    await circuits.set("flaky", SETTINGS)
    await site.flaky(3)
    assert (await circuits.open("flaky")).state is CircuitState.OPEN
    assert await site.claim(50) == []
    assert (await circuits.set("flaky", CircuitSettings())).state is CircuitState.OPEN
    assert (await circuits.close("flaky")).state is CircuitState.CLOSED
    assert len(await site.claim(1)) == 1
    await circuits.open("flaky")
    await circuits.remove("flaky")
    assert await circuits.all() == {}
    assert len(await site.claim(50)) == 2
    with pytest.raises(CircuitNotFound):
        await circuits.remove("flaky")


async def test_what_a_program_declares_gives_way_to_what_a_person_has_set() -> None:
    circuits = Site().engine.circuits
    await circuits.declare({"flaky": SETTINGS})
    await circuits.declare({"flaky": CircuitSettings(probes=5)})
    assert (await circuits.get("flaky")).settings.probes == 5
    await circuits.set("flaky", CircuitSettings(probes=7))
    await circuits.declare({"flaky": SETTINGS})
    assert (await circuits.get("flaky")).settings.probes == 7


async def test_a_circuit_removed_and_set_anew_is_heeded(any_store: Store) -> None:
    site = Site(store=any_store)
    await site.open()
    other = Site(store=any_store, clock=site.clock, seed=7)
    await other.claim(0)
    await site.engine.circuits.remove("flaky")
    await site.engine.circuits.set("flaky", SETTINGS)
    other.clock.advance(HOUR)
    tasks = await other.claim(4)
    assert len(tasks) == 4
    await other.ended(tasks, Failed(failure=BOOM))
    other.clock.advance(SECOND)
    await other.claim(0)
    assert await other.state() is CircuitState.OPEN
