"""A Redis Cluster under load while slots are moved and nodes come and go: every acknowledged task is run once.

Workers are processes, started as a user starts them; slots are moved by `redis-cli`, as an operator moves them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import StoreUnavailable
from fairlead.core.identity import TaskId, slot_of
from fairlead.core.submission import Submission
from fairlead.core.task import State
from fairlead.storage.redis.keys import Keys, hash_slot
from tests.e2e.processes import Yard
from tests.servers.redis import RedisCluster, started_cluster, until
from tests.servers.slots import SlotMove, fix, is_well, owner_of, redis_cli, reshard, until_agreed

FIRST_SLOTS: Final = 40
"""The slots of a node that `reshard` moves first: those with the queues of these tests."""


def some_queues(count: int) -> list[str]:
    """Queues that are in the first slots of the first node."""
    keys = Keys("fl")
    names = (f"queue-{number}" for number in itertools.count())
    return list(itertools.islice((name for name in names if hash_slot(keys.base(slot_of(name))) < FIRST_SLOTS), count))


QUEUES: Final = some_queues(4)
PRODUCERS: Final = 2 * QUEUES
"""Whom each producer submits to."""


class Load:
    """Producers that submit to all queues, and what was acknowledged to them."""

    def __init__(self, yard: Yard, engine: AdminEngine) -> None:
        self.acknowledged: dict[int, TaskId] = {}
        self.refused = 0
        self._yard = yard
        self._engine = engine
        self._numbers = itertools.count()
        self._over = False

    async def hire(self, count: int) -> None:
        """Start workers, and wait until they are there: one that finds no node to begin with leaves again."""
        for _ in range(count):
            self._yard.hire("--queues", ",".join(QUEUES))
        await asyncio.to_thread(until, lambda: self._yard.present() == len(self._yard.workers), "every worker")

    async def submit(self, count: int) -> None:
        """Submit so many tasks, each until it is acknowledged."""
        numbers = iter(list(itertools.islice(self._numbers, count)))
        await asyncio.gather(*(self._produce(numbers, queue) for queue in PRODUCERS))

    @contextlib.asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Submit all the while."""
        producers = [asyncio.create_task(self._produce(self._until_over(), queue)) for queue in PRODUCERS]
        try:
            yield
        finally:
            self._over = True
            await asyncio.gather(*producers)

    def _until_over(self) -> Iterator[int]:
        while not self._over:
            yield next(self._numbers)

    async def _produce(self, numbers: Iterator[int], queue: str) -> None:
        for number in numbers:
            submission = Submission(
                type="work",
                parameters=b'{"number":%d}' % number,
                queue=queue,
                idempotency_key=str(number),
            )
            while number not in self.acknowledged:
                try:
                    self.acknowledged[number] = (await self._engine.submit(submission)).task.id
                except StoreUnavailable:
                    self.refused += 1
                await asyncio.sleep(0.002)

    async def assert_all_done_once(self, *, crashes: bool = False) -> None:
        """Every acknowledged task has completed, there are no others, and each was run once."""
        await asyncio.to_thread(self._yard.until_all_ended)
        tasks = {task.id: task for task in await asyncio.to_thread(self._yard.tasks)}
        assert set(self.acknowledged.values()) - tasks.keys() == set(), "acknowledged tasks are lost"
        assert tasks.keys() - set(self.acknowledged.values()) == set(), "tasks were accepted twice"
        assert Counter(task.state for task in tasks.values()) == {State.COMPLETED: len(tasks)}
        counts = await asyncio.to_thread(self._yard.counts)
        assert {state: count for state, count in counts.items() if count} == {State.COMPLETED: len(tasks)}
        ends = Counter(line.number for line in self._yard.ledger() if line.event == "end")
        assert self.acknowledged.keys() - ends.keys() == set()
        if not crashes:
            assert [(task.id, task.spec.queue) for task in tasks.values() if task.status.crashes] == []
            assert {number: count for number, count in ends.items() if count > 1} == {}


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    yield from started_cluster()


@contextlib.asynccontextmanager
async def loaded(cluster: RedisCluster, folder: Path, **options: object) -> AsyncIterator[tuple[Yard, Load]]:
    with Yard(folder, cluster.url(**options)).manned() as yard:
        async with yard.engine() as engine:
            yield yard, Load(yard, engine)


@pytest.mark.slow
async def test_a_reshard_under_load_loses_nothing_and_runs_nothing_twice(cluster: RedisCluster, tmp_path: Path) -> None:
    async with loaded(cluster, tmp_path) as (_, load):
        await load.submit(6_000)
        await load.hire(2)
        async with load.going_on():
            for source, target in ((0, 1), (1, 2)):
                await asyncio.to_thread(reshard, cluster.servers[source], cluster.servers[target], FIRST_SLOTS)
        assert owner_of(cluster, hash_slot(Keys("fl").base(slot_of(QUEUES[0])))) is cluster.servers[2]
        await load.assert_all_done_once()


@pytest.mark.slow
async def test_a_move_that_stops_half_way_and_is_ended_later_loses_nothing(
    cluster: RedisCluster, tmp_path: Path
) -> None:
    """Its queue pauses, also beyond the length of a lease; what executed is not taken for lost, the others go on."""
    async with loaded(cluster, tmp_path) as (yard, load):
        await load.submit(800)
        await load.hire(2)
        move = SlotMove(cluster, hash_slot(Keys("fl").base(slot_of(QUEUES[0]))))
        async with load.going_on():
            move.open()
            keys = move.keys()
            move.carry(*keys[: len(keys) // 2])
            await asyncio.to_thread(until, lambda: load.refused > 0, "a submit to be refused")
            before = len(yard.starts())
            await asyncio.to_thread(until, lambda: len(yard.starts()) > before + 20, "the other queues to go on")
            await asyncio.to_thread(fix, move.source)
        await load.assert_all_done_once()


@pytest.mark.soak
async def test_slots_that_are_moved_while_nodes_come_and_go_lose_nothing(tmp_path: Path) -> None:
    """A node is added and takes its share, masters are killed one after the other, and slots go back and forth.

    What is acknowledged is on a replica by then; an outcome that was not may be found out once more.
    """
    cluster = RedisCluster(replicas=True)
    try:
        cluster.start()
        async with loaded(cluster, tmp_path, replicas=1) as (_, load):
            await load.submit(2_000)
            await load.hire(2)
            async with load.going_on():
                for source, target in ((0, 1), (1, 2), (2, 0)):
                    await asyncio.to_thread(reshard, cluster.servers[source], cluster.servers[target], FIRST_SLOTS)
                for number in range(len(cluster.servers)):
                    await asyncio.to_thread(fail_over, cluster, number)
                await asyncio.to_thread(share_with_a_new_node, cluster)
                for number in range(3):
                    await asyncio.to_thread(fail_over, cluster, number)
            await load.assert_all_done_once(crashes=True)
    finally:
        cluster.stop()


def fail_over(cluster: RedisCluster, number: int) -> None:
    """Kill a master; its replica takes its place, and it comes back as the replica of that one."""
    master, replica = cluster.servers[number], cluster.replicas[number]
    master.halt()
    everyone = [each for each in (*cluster.servers, *cluster.replicas) if each is not master]
    until(lambda: b"role:master" in replica.ask("INFO", "replication"), "the failover")
    until(lambda: all(map(is_well, everyone)), "the cluster to be well again")
    master.start()
    until(lambda: b"master_link_status:up" in master.ask("INFO", "replication"), "the old master to follow")
    cluster.servers[number], cluster.replicas[number] = replica, master


def share_with_a_new_node(cluster: RedisCluster) -> None:
    """Add a node and its replica, and let it have its share of all slots."""
    added = cluster.add()
    cluster.follow(added)
    address = f"127.0.0.1:{cluster.servers[0].port}"
    until_agreed(cluster.servers[0])
    redis_cli("--cluster", "rebalance", address, "--cluster-use-empty-masters")
