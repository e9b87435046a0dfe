"""What is set aside of Redis when a value says nothing of itself: not even its lane, its state or its keys."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.core.errors import StoreMismatch
from fairlead.core.events import Completed
from fairlead.core.health.quarantine import QUARANTINE, SEAL, Quarantined
from fairlead.core.identity import slot_of_id
from fairlead.core.task import Priority, State, Task
from fairlead.storage.redis.keys import Keys
from fairlead.storage.redis.store import RedisStore
from fairlead.storage.values import Added, Filter, Pulse, Verdict
from fairlead.testing.builders import LEASE, NOW, a_beat, a_claim, a_dependent, a_settle, a_task, some_tasks
from fairlead.testing.steps import add, contents, ids
from fairlead.testing.vandalism import assert_tallied
from tests.servers.redis import RedisServer

Wreck = Callable[..., None]

WHOLE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "zeros": lambda value: bytes(len(value)),
    "another value": lambda _: b"OK",
    "head only": lambda value: value[:9],
}


@pytest.fixture(params=WHOLE)
def wreck(request: pytest.FixtureRequest, single: RedisServer, prefix: str) -> Wreck:
    """Damages whole values."""
    change = WHOLE[request.param]

    def damage(*tasks: Task) -> None:
        for task in tasks:
            _damage(single, prefix, task, change)

    return damage


def _damage(server: RedisServer, prefix: str, task: Task, change: Callable[[bytes], bytes]) -> None:
    key = Keys(prefix).base(slot_of_id(task.id)) + b"t" + bytes.fromhex(task.id)
    server.ask("SET", key, change(server.ask("GET", key)))


async def test_indexes_tell_where_a_wrecked_task_was(store: RedisStore, wreck: Wreck) -> None:
    """In every state, beside others of other lanes and states."""
    tasks = [
        a_task(state=state, priority=priority, type=name)
        for state, priority, name in itertools.product(State, Priority, ("a", "b"))
        if state is not State.EXECUTING
    ]
    await add(store, *tasks)
    claimed = await store.claim(a_claim(limit=3))
    wrecked = [*claimed[1:], *[task for at, task in enumerate(tasks) if at % 3 == 1 and task.id not in ids(claimed)]]
    wreck(*wrecked)
    await store.claim(a_claim(limit=1))
    left = {task.id for task in tasks} - {task.id for task in wrecked}
    await store.due(NOW + 10 * LEASE, 100)
    assert {task.id for task in await contents(store)} == left
    assert await store.get(ids(wrecked)) == [None] * len(wrecked)
    assert len(await store.scan(QUARANTINE)) == len(wrecked)
    await assert_tallied(store)


async def test_keys_of_wrecked_tasks_are_free(store: RedisStore, wreck: Wreck) -> None:
    """Concurrency keys, of what waits and of what runs; and idempotency keys."""
    first, second, third, other = (a_task(concurrency_key=key, key=f"k{n}") for n, key in enumerate("aaab"))
    await add(store, first, second, third, other)
    held = await store.claim(a_claim(limit=4))
    assert ids(held) == [first.id, other.id]
    wreck(first, second)
    assert await store.get([first.id, second.id]) == [None, None]
    await assert_tallied(store)
    assert ids(await store.claim(a_claim(limit=4))) == [third.id]
    assert await store.add([a_task(key="k0"), a_task(key="k1")], now=NOW, bounds={}) == [Added(), Added()]


async def test_a_batch_of_changes_is_made_whole_beside_a_wrecked_task(store: RedisStore, wreck: Wreck) -> None:
    """A script that fails half-way would leave its first half."""
    parent, other = a_task(), a_task()
    await add(store, parent, other)
    waiting = [a_dependent(parent) for _ in range(3)]
    await add(store, *waiting)
    wreck(parent, waiting[1])
    assert ids(await store.claim(a_claim(limit=5))) == [other.id]
    assert {task.id for task in await store.find(Filter(), limit=9)} == {other.id, waiting[0].id, waiting[2].id}
    assert ids(await store.due(0, 9)) == [waiting[0].id, waiting[2].id]
    await assert_tallied(store)


async def test_what_only_a_script_cannot_read_is_set_aside_by_it(
    store: RedisStore, single: RedisServer, prefix: str
) -> None:
    """A kind that no task is of: the others of the batch are settled."""
    await add(store, *some_tasks(3))
    tasks = await store.claim(a_claim(limit=3))
    _damage(single, prefix, tasks[1], lambda value: value[:7] + b"unknown!" + value[15:])
    beats = [a_beat(task) for task in tasks]
    assert await store.extend(beats, lease=LEASE, grace=0, now=NOW) == [Pulse.HELD] * 3
    verdicts = await store.apply([a_settle(task, Completed()) for task in tasks])
    assert verdicts == [Verdict.APPLIED, Verdict.MISSING, Verdict.APPLIED]
    assert [record.name for record in await store.scan(QUARANTINE)] == [f"task/{tasks[1].id}"]
    await assert_tallied(store)


@pytest.mark.parametrize("stored", [b"", b" ", b"\xb3 \x81\xa1a\x01", b"3\x00\x81\xa1a\x01", bytes(9), b"?", b"77"])
async def test_a_record_is_set_aside_that_is_damaged_before_its_value(
    store: RedisStore, single: RedisServer, prefix: str, stored: bytes
) -> None:
    """Where it says which version it has. A key still counts; a worker goes."""
    engine = AdminEngine(store)
    for kind in ("key", "worker"):
        await store.put(kind, "one", b"\x80")
        single.ask("HSET", Keys(prefix).records(kind), "one", stored)
    assert await Keyring(engine).read() == ([], ["one"])
    assert [record.value for record in await store.scan("key")] == [SEAL]
    assert (await engine.worker_records.workers(), await store.scan("worker")) == ([], [])
    kept = [msgspec.msgpack.decode(record.value, type=Quarantined) for record in await store.scan(QUARANTINE)]
    assert {each.key: each.parts["value"] for each in kept} == {"key/one": stored, "worker/one": stored}


async def test_damaged_indexes_are_errors_of_the_store(store: RedisStore, single: RedisServer, prefix: str) -> None:
    """Whoever works with a store goes on after each of these, and after no other."""
    task = a_task()
    await add(store, task)
    base = Keys(prefix).base(slot_of_id(task.id))
    kinds = single.ask("HGETALL", base + b"d")
    single.ask("HSET", base + b"d", kinds[0], b"\x93")
    for cut_short in (store.tally(), store.usage("default", "noop", None)):
        with pytest.raises(StoreMismatch, match="cannot be decoded"):
            await cut_short
    single.ask("HSET", base + b"d", kinds[0], kinds[1])
    single.ask("ZADD", Keys(prefix).registry, 1, "?")
    for lost in (store.tally(), store.due(NOW, 5), store.find(Filter(), limit=1), store.examine()):
        with pytest.raises(StoreMismatch, match="is damaged beside its tasks and records"):
            await lost
    single.ask("ZREM", Keys(prefix).registry, "?")
