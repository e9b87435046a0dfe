"""While a slot of a Cluster is being moved its queues pause, and then go on: no half of a slot is ever served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NamedTuple

import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.core.events import Completed
from fairlead.core.health.diagnosis import Finding, Level
from fairlead.core.identity import slot_of
from fairlead.core.instant import HOUR
from fairlead.core.queues.limits import Limit, Limits
from fairlead.core.queues.promotion import BEFORE_ALL, Place
from fairlead.core.task import Lane, Priority, State, Task
from fairlead.storage.journal.outbox import Done
from fairlead.storage.redis import slot_registry
from fairlead.storage.redis.keys import Keys, hash_slot
from fairlead.storage.redis.outbox import open_noting_redis
from fairlead.storage.redis.store import RedisStore, open_redis
from fairlead.storage.values import Added, Filter, Stretch, Verdict
from fairlead.testing.builders import NOW, a_beat, a_claim, a_removal, a_settle, a_task, an_id
from fairlead.testing.steps import add, contents, ids
from tests.servers.redis import RedisCluster, until
from tests.servers.slots import SlotMove, fix, is_well, owner_of
from tests.storage.redis.orphans import assert_no_orphans

pytestmark = pytest.mark.slow

QUEUE: Final = "moving"
ELSEWHERE: Final = "default"
"""A queue of another slot."""
MOMENT: Final = 0.3
"""The time limit of a store whose calls are to fail soon."""


class Filled(NamedTuple):
    """A store with tasks in the queue that is moved."""

    store: RedisStore
    tasks: list[Task]
    held: Task
    """The one that is executing."""


Operation = Callable[[Filled], Awaitable[Any]]

WRITES: Final[dict[str, Operation]] = {
    "add one": lambda at: at.store.add([a_task(queue=QUEUE)], now=NOW, bounds={}),
    "add some": lambda at: at.store.add([a_task(queue=QUEUE), a_task(queue=QUEUE)], now=NOW, bounds={}),
    "add with a key": lambda at: at.store.add([a_task(queue=QUEUE, key="new")], now=NOW, bounds={}),
    "add to a bounded queue": lambda at: at.store.add([a_task(queue=QUEUE)], now=NOW, bounds={QUEUE: 100}),
    "claim": lambda at: at.store.claim(a_claim(QUEUE, limit=3)),
    "claim under limits": lambda at: at.store.claim(a_claim(QUEUE, limits=Limits(queue=Limit(running=9)))),
    "extend": lambda at: at.store.extend([a_beat(at.held)], lease=1, now=NOW, grace=0),
    "settle": lambda at: at.store.apply([a_settle(at.held, Completed())]),
    "remove": lambda at: at.store.apply([a_removal(at.held)]),
}
LANE: Final = Lane(QUEUE, "work", (), Priority.MEDIUM)
READS: Final[dict[str, Operation]] = {
    "find": lambda at: at.store.find(Filter(queue=QUEUE), limit=100),
    "find in all queues": lambda at: at.store.find(Filter(), limit=100),
    "find what is executing": lambda at: at.store.find(Filter(states=frozenset({State.EXECUTING})), limit=100),
    "get one": lambda at: at.store.get([at.held.id]),
    "get all": lambda at: at.store.get(ids(at.tasks)),
    "get one that is not there": lambda at: at.store.get([an_id(QUEUE)]),
    "tally": lambda at: at.store.tally(),
    "count": lambda at: at.store.count([Stretch(LANE, BEFORE_ALL, Place(2 * NOW, an_id(QUEUE)))]),
    "usage": lambda at: at.store.usage(QUEUE, "work", None),
}
PARTS: Final[dict[str, Callable[[int], int]]] = {
    "no key has moved": lambda number: 0,
    "one key has moved": lambda number: 1,
    "half of the keys have moved": lambda number: number // 2,
    "one key is left": lambda number: number - 1,
    "all keys have moved": lambda number: number,
}


@pytest.fixture
async def store(cluster: RedisCluster, prefix: str) -> AsyncIterator[RedisStore]:
    store = await open_redis(cluster.url(prefix=prefix))
    yield store
    await store.close()
    assert_no_orphans(cluster.servers, prefix)


@pytest.fixture
async def hasty(cluster: RedisCluster, prefix: str) -> AsyncIterator[RedisStore]:
    """The same store, by one who does not wait."""
    store = await open_redis(cluster.url(prefix=prefix, timeout=MOMENT))
    yield store
    await store.close()


@pytest.fixture
def move(cluster: RedisCluster, prefix: str) -> SlotMove:
    return SlotMove(cluster, hash_slot(Keys(prefix).base(slot_of(QUEUE))))


async def filled(store: RedisStore) -> Filled:
    """Tasks of every kind, in both queues."""
    tasks = [a_task(queue=QUEUE) for _ in range(5)]
    tasks += [a_task(queue=QUEUE, key="one"), a_task(queue=QUEUE, state=State.SCHEDULED, ready_at=NOW + 1)]
    await add(store, *tasks, a_task(queue=ELSEWHERE))
    (held,) = await store.claim(a_claim(QUEUE))
    return Filled(store, tasks, held)


async def outcomes(at: Filled, operations: dict[str, Operation]) -> dict[str, Any]:
    """What operations at once answer; for those that the store does not do, StoreUnavailable."""
    answers = await asyncio.gather(*(each(at) for each in operations.values()), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, StoreUnavailable):
            raise answer
    kinds = (StoreUnavailable if isinstance(answer, StoreUnavailable) else answer for answer in answers)
    return dict(zip(operations, kinds, strict=True))


@pytest.mark.parametrize("part", PARTS)
async def test_while_a_slot_is_being_moved_nothing_is_done_to_it_and_no_half_is_read(
    store: RedisStore, hasty: RedisStore, move: SlotMove, part: str
) -> None:
    at = (await filled(store))._replace(store=hasty)
    before, read = await contents(store), await outcomes(at, READS)

    move.open()
    try:
        keys = move.keys()
        move.carry(*keys[: PARTS[part](len(keys))])
        written = await outcomes(at, WRITES)
        answered = await outcomes(at, READS)
        await add(store, elsewhere := a_task(queue=ELSEWHERE))
    finally:
        move.finish()

    assert written == dict.fromkeys(WRITES, StoreUnavailable)
    assert {name: answer for name, answer in answered.items() if answer not in (StoreUnavailable, read[name])} == {}
    assert await contents(store) == sorted([*before, elsewhere], key=lambda task: task.id)
    assert (await outcomes(at, READS)).keys() == READS.keys()


async def test_what_is_asked_for_while_a_slot_is_being_moved_is_done_when_it_has_arrived(
    store: RedisStore, move: SlotMove
) -> None:
    at = await filled(store)
    move.open()
    keys = move.keys()
    move.carry(*keys[: len(keys) // 2])
    new = a_task(queue=QUEUE)
    adding = asyncio.create_task(store.add([new], now=NOW, bounds={}))
    settling = asyncio.create_task(store.apply([a_settle(at.held, Completed())]))
    listing = asyncio.create_task(store.find(Filter(queue=QUEUE), limit=100, newest_first=False))
    await asyncio.wait([adding, settling, listing], timeout=MOMENT)
    assert not adding.done() and not settling.done() and not listing.done()
    move.finish()
    assert (await adding, await settling) == ([Added()], [Verdict.APPLIED])
    assert set(ids(await listing)) >= set(ids(at.tasks))
    assert set(ids(await contents(store))) >= {*ids(at.tasks), new.id}


async def test_a_slot_is_used_again_when_its_new_node_has_it(store: RedisStore, move: SlotMove) -> None:
    """Who was told of the move waits until the old node, too, knows of its end."""
    at = await filled(store)
    move.open()
    move.carry(*move.keys())
    move.tell_target()
    adding = asyncio.create_task(add(store, new := a_task(queue=QUEUE)))
    await asyncio.sleep(0)
    move.close()
    await adding
    assert set(ids(await contents(store))) >= {*ids(at.tasks), new.id}


async def test_a_claim_that_waits_through_a_move_goes_on_at_the_new_node(store: RedisStore, move: SlotMove) -> None:
    assert await store.claim(a_claim(QUEUE)) == []
    waiter = asyncio.create_task(store.wait_and_claim(a_claim(QUEUE), 60))
    await asyncio.to_thread(until, lambda: b"blocked_clients:1" in move.source.ask("INFO", "clients"), "the wait")
    move.open()
    move.finish()
    # The server sends away who waits for what it no longer has, and the worker looks for itself.
    assert await waiter is None
    waiter = asyncio.create_task(store.wait_and_claim(a_claim(QUEUE), 60))
    await asyncio.to_thread(until, lambda: b"blocked_clients:1" in move.target.ask("INFO", "clients"), "the wait")
    await add(store, task := a_task(queue=QUEUE))
    assert ids(await waiter or await store.claim(a_claim(QUEUE))) == [task.id]


async def test_a_claim_cannot_wait_while_its_slot_is_being_moved(store: RedisStore, move: SlotMove) -> None:
    """It is to be made in the ordinary way, which tries until the slot has arrived; and it takes its time to say so."""
    at = await filled(store)
    move.open()
    began = time.monotonic()
    assert await store.wait_and_claim(a_claim(QUEUE), 60) is None
    await store.wait([QUEUE], 60)
    assert 0.1 < time.monotonic() - began < 10
    claiming = asyncio.create_task(store.claim(a_claim(QUEUE, limit=100)))
    move.finish()
    assert len(await claiming) == len([task for task in at.tasks if task.state is State.QUEUED]) - 1


async def test_a_record_is_stored_in_no_half_of_a_slot(
    store: RedisStore, hasty: RedisStore, cluster: RedisCluster, prefix: str
) -> None:
    """The registry, the records and the feed are in a slot of their own."""
    await filled(store)
    assert await store.put("settings", "one", b"1") == 1
    await store.publish([b"told"], now=NOW, keep=10)
    move = SlotMove(cluster, hash_slot(Keys(prefix).registry))
    move.open()
    move.carry(*move.keys()[:1])
    try:
        with pytest.raises(StoreUnavailable, match=f"slot {move.slot} of the Redis Cluster is being moved"):
            await hasty.put("settings", "two", b"2")
        with pytest.raises(StoreUnavailable):
            await hasty.publish([b"lost"], now=NOW, keep=10)
        assert [record.name for record in await store.scan("settings")] == ["one"]
        assert [entry.value for entry in await store.feed(None, 10)] == [b"told"]
        assert len(await store.find(Filter(), limit=100)) == 8
    finally:
        move.finish()
    assert await store.put("settings", "two", b"2") == 1
    assert [record.name for record in await store.scan("settings")] == ["one", "two"]


async def test_queues_go_on_while_the_registry_of_slots_is_being_moved(
    store: RedisStore, hasty: RedisStore, cluster: RedisCluster, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was taken goes to who took it, and a slot that was registered not long ago needs no registering."""
    monkeypatch.setattr(slot_registry, "_REGISTERED_FOR", 0.0)
    await add(store, *(a_task(queue=ELSEWHERE) for _ in range(3)))
    move = SlotMove(cluster, hash_slot(Keys(prefix).registry))
    move.open()
    try:
        await add(store, a_task(queue=ELSEWHERE))
        assert len(await store.claim(a_claim(ELSEWHERE, limit=2))) == 2
        assert len(await store.claim(a_claim(ELSEWHERE, QUEUE, limit=1))) == 1
        assert len(await store.wait_and_claim(a_claim(ELSEWHERE, limit=2), 60) or ()) == 1
        with pytest.raises(StoreUnavailable):
            await hasty.add([a_task(queue=QUEUE)], now=NOW, bounds={})
    finally:
        move.finish()
    await add(store, a_task(queue=QUEUE))


async def test_what_is_noted_while_a_slot_is_being_moved_is_read_when_it_has_arrived(
    cluster: RedisCluster, prefix: str, move: SlotMove
) -> None:
    store = await open_noting_redis(cluster.url(prefix=prefix))
    first, second = a_task(queue=QUEUE), a_task(queue=QUEUE)
    await add(store, first, second)
    await store.note([first.id])
    move.open()
    move.carry(*move.keys()[:-1])
    await store.note([second.id])
    move.finish()
    notes = await store.read(10)
    assert {note.id for note in notes} == {first.id, second.id}
    await store.done([Done(note, first.status.version) for note in notes])
    await store.close()
    assert_no_orphans(cluster.servers, prefix)


async def test_a_queue_that_is_being_moved_does_not_keep_the_others_waiting(store: RedisStore, move: SlotMove) -> None:
    """Not in the claims of a worker that serves both, and not in the sweep."""
    at = await filled(store)
    later = a_task(queue=ELSEWHERE, state=State.SCHEDULED, ready_at=NOW + 1)
    await add(store, later)
    move.open()
    move.carry(*move.keys()[::2])
    try:
        (taken,) = await store.claim(a_claim(QUEUE, ELSEWHERE, limit=10))
        limited = await store.claim(a_claim(QUEUE, ELSEWHERE, limits=Limits(queue=Limit(running=5))))
        due = await store.due(NOW + 1, 10)
    finally:
        move.finish()
    assert (taken.spec.queue, limited, ids(due)) == (ELSEWHERE, [], [later.id])
    assert len(await store.claim(a_claim(QUEUE, ELSEWHERE, limit=10))) == len(at.tasks) - 2


async def test_a_pause_is_not_taken_for_the_death_of_workers(store: RedisStore, move: SlotMove) -> None:
    """Nobody could renew a lease while its slot was on its way: for one lease length none of them has ended."""
    at = await filled(store)
    scheduled = next(task for task in at.tasks if task.state is State.SCHEDULED)
    await store.curtail(lease=HOUR, limit=10, now=NOW)
    move.open()
    assert ids(await store.due(2 * NOW, 10)) == []
    move.finish()
    async with asyncio.timeout(60):
        while not (due := await store.due(2 * NOW, 10)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert ids(due) == [scheduled.id]
    # A lease length of nothing has passed at once.
    await store.curtail(lease=0, limit=10, now=NOW)
    assert set(ids(await store.due(2 * NOW, 10))) == {scheduled.id, at.held.id}


async def test_a_slot_that_was_met_on_its_way_is_left_alone_until_all_nodes_say_that_it_has_arrived(
    store: RedisStore, move: SlotMove
) -> None:
    """As when `redis-cli --cluster fix` calls it stable at its node, and only then brings back what is not there."""
    at = await filled(store)
    before = await contents(store)
    move.open()
    carried = move.keys()[::2]
    move.carry(*carried)
    adding = asyncio.create_task(store.add([new := a_task(queue=QUEUE)], now=NOW, bounds={}))
    claiming = asyncio.create_task(store.claim(a_claim(QUEUE, ELSEWHERE, limit=10)))
    assert [task.spec.queue for task in await claiming] == [ELSEWHERE]
    move.source.ask("CLUSTER", "SETSLOT", move.slot, "STABLE")
    assert await store.claim(a_claim(QUEUE, ELSEWHERE, limit=10)) == []
    await asyncio.wait([adding], timeout=2 * MOMENT)
    assert not adding.done()
    for key in carried:
        move.target.ask("MIGRATE", "127.0.0.1", move.source.port, key, 0, 5_000)
    move.target.ask("CLUSTER", "SETSLOT", move.slot, "STABLE")
    assert await adding == [Added()]
    assert {task.id for task in await contents(store)} == {*ids(before), new.id}
    assert len(await store.claim(a_claim(QUEUE, limit=10))) == len(at.tasks) - 1


async def eventually_refused(store: RedisStore) -> None:
    """Wait until a store knows that a slot is not to be used."""
    async with asyncio.timeout(60):
        while True:
            try:
                await store.find(Filter(queue=QUEUE), limit=1)
                await asyncio.sleep(0.05)
            except StoreUnavailable as error:
                if "is being moved" in str(error):
                    return


async def test_a_node_that_could_not_be_asked_about_moves_is_asked_again(
    store: RedisStore, cluster: RedisCluster, prefix: str
) -> None:
    """It may have been busy. What it alone knows of a slot is that it has a part of it."""
    at = await filled(store)
    keys = Keys(prefix)
    slot = hash_slot(keys.base(slot_of(QUEUE)))
    needed = (owner_of(cluster, slot), owner_of(cluster, hash_slot(keys.registry)))
    move = SlotMove(cluster, slot, next(server for server in cluster.servers if server not in needed))
    url = f"redis+cluster://127.0.0.1:{move.source.port}?prefix={prefix}&timeout=2"
    move.target.pause()
    try:
        reader = await open_redis(url)
        assert await reader.get([at.held.id]) == [at.held]
    finally:
        move.target.resume()
    await asyncio.to_thread(until, lambda: all(map(is_well, cluster.servers)), "the cluster to be well again")
    move.import_()
    await eventually_refused(reader)
    move.finish()
    await reader.close()


async def slots_of(store: RedisStore) -> Finding:
    """What the doctor says of the slots, as soon as it can be read."""
    async with asyncio.timeout(60):
        while True:
            (finding,) = [finding for finding in (await store.examine()).findings if finding.what == "slots"]
            if not finding.value.startswith("could not be read"):
                return finding


async def test_the_doctor_knows_a_move_that_goes_on_from_one_that_stands_still(
    store: RedisStore, move: SlotMove
) -> None:
    await filled(store)
    assert (await slots_of(store)).level is Level.GREEN
    move.open()
    keys = iter(move.keys())
    move.carry(next(keys))

    stuck = await slots_of(store)
    assert stuck.level is Level.RED
    way = f"from 127.0.0.1:{move.source.port} to 127.0.0.1:{move.target.port}"
    assert stuck.value.startswith(f"slot {move.slot} ({QUEUE}) is being moved {way}, and stands still half way")
    assert f"`redis-cli --cluster fix 127.0.0.1:{move.source.port}`" in stuck.remedy

    looking = asyncio.create_task(slots_of(store))
    while not looking.done():
        await asyncio.sleep(0.05)
        move.carry(*[key for key in [next(keys, None)] if key is not None])
    going = await looking
    assert (going.level, going.value) == (
        Level.YELLOW,
        f"slot {move.slot} ({QUEUE}) is being moved {way}: its queues pause until it has arrived",
    )
    move.finish()
    assert (await slots_of(store)).level is Level.GREEN


async def test_a_move_that_stands_still_is_ended_as_the_doctor_advises(store: RedisStore, move: SlotMove) -> None:
    at = await filled(store)
    before = await contents(store)
    move.open()
    move.carry(*move.keys()[::2])
    await asyncio.to_thread(fix, move.source)
    assert await contents(store) == before
    assert (await slots_of(store)).level is Level.GREEN
    assert len(await store.claim(a_claim(QUEUE, limit=10))) == len(at.tasks) - 2


async def test_the_doctor_finds_keys_at_a_node_that_does_not_have_their_slot(store: RedisStore, move: SlotMove) -> None:
    """As when someone who meant well called the half moved slot STABLE."""
    await filled(store)
    before = await contents(store)
    move.open()
    carried = move.keys()[::2]
    move.carry(*carried)
    for node in (move.source, move.target):
        node.ask("CLUSTER", "SETSLOT", move.slot, "STABLE")
    stray = await slots_of(store)
    assert stray.level is Level.RED
    assert stray.value.startswith(f"{len(carried)} keys of slot {move.slot} ")
    assert f"on 127.0.0.1:{move.target.port}: CLUSTER SETSLOT {move.slot} IMPORTING" in stray.remedy

    move.import_()
    await asyncio.to_thread(fix, move.source)
    assert (await slots_of(store)).level is Level.GREEN
    assert await contents(store) == before


async def test_half_a_slot_that_a_failover_left_is_not_taken_for_the_whole(prefix: str) -> None:
    """A replica does not know what its master was moving: it would serve what had not been moved yet."""
    cluster = RedisCluster(replicas=True)
    try:
        cluster.start()
        store = await open_redis(cluster.url(prefix=prefix))
        at = await filled(store)
        before = await contents(store)
        # Not to where the registry is: its node knows of no failover, and would serve nobody.
        slot, home = hash_slot(Keys(prefix).base(slot_of(QUEUE))), owner_of(cluster, hash_slot(Keys(prefix).registry))
        source = owner_of(cluster, slot)
        move = SlotMove(cluster, slot, next(each for each in cluster.servers if each not in (source, home)))
        replica = cluster.replicas[cluster.servers.index(move.source)]
        bystander = next(each for each in cluster.servers if each not in (move.source, move.target))
        move.open()
        move.carry(*move.keys()[::2])
        await asyncio.to_thread(until, lambda: move.source.ask("WAIT", 1, 1000) == 1, "its replica to have all that")
        move.source.halt()
        await asyncio.to_thread(until, lambda: owner_of(cluster, move.slot, bystander) is replica, "the failover")

        await asyncio.to_thread(until, lambda: is_well(replica) and is_well(bystander), "the cluster to be well")

        # The target cannot be asked who has the slot: it goes on believing that its old source does, which is gone.
        url = f"redis+cluster://127.0.0.1:{bystander.port}?prefix={prefix}"
        hasty, patient = await open_redis(f"{url}&timeout={MOMENT}"), await open_redis(url)
        # On a busy machine the target may not answer in time; it is asked again.
        await eventually_refused(hasty)
        assert await outcomes(at._replace(store=hasty), WRITES) == dict.fromkeys(WRITES, StoreUnavailable)
        assert await outcomes(at._replace(store=hasty), READS) == dict.fromkeys(READS, StoreUnavailable)
        half = await slots_of(patient)
        assert half.level is Level.RED
        assert f"slot {move.slot} is half moved between 127.0.0.1:{replica.port} and" in half.value
        await hasty.close()

        move.source.start()
        await asyncio.to_thread(until, lambda: b"role:slave" in move.source.ask("INFO", "replication"), "its return")
        await asyncio.to_thread(fix, replica)
        assert await contents(patient) == before
        for each in (store, patient):
            await each.close()
        assert_no_orphans([replica, *(each for each in cluster.servers if each is not move.source)], prefix)
    finally:
        cluster.stop()
