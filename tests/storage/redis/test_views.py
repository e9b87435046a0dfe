"""Claims from queues with many lanes read views of them, and take the same tasks as by looking at each lane."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from fairlead.core.events import CancelAsked, Completed, HandedBack, Prioritized
from fairlead.core.instant import SECOND
from fairlead.core.queues.limits import Limit, Limits
from fairlead.core.queues.order import Promote
from fairlead.core.task import Priority, Task
from fairlead.storage.memory.store import MemoryStore
from fairlead.storage.protocol import Store
from fairlead.storage.redis.keys import Keys
from fairlead.storage.redis.store import RedisStore
from fairlead.storage.values import Claim, Verdict
from fairlead.testing.builders import NOW, a_claim, a_decision, a_settle, a_task, a_token
from fairlead.testing.steps import add, ids
from tests.servers.redis import RedisServer

_TYPES = [f"type-{number}" for number in range(40)]
_PARAMETERS = b"{}"


@pytest.mark.parametrize("seed", range(12))
async def test_what_is_taken_by_views_is_what_memory_takes(store: RedisStore, seed: int) -> None:
    chance = random.Random(seed)
    keyed = seed % 3 == 2
    pair: Sequence[Store] = (store, MemoryStore())
    held: list[Task] = []
    waiting: dict[str, Task] = {}
    for _ in range(60):
        match chance.choice(("add", "add", "claim", "claim", "end", "change")):
            case "add":
                tasks = [_some_task(chance, keyed=keyed) for _ in range(chance.choice((1, 1, 5, 40)))]
                for each in pair:
                    await add(each, *tasks)
                waiting |= {task.id: task for task in tasks}
            case "claim":
                claim = _some_claim(chance, limited=seed % 4 == 1)
                taken = [await each.claim(claim) for each in pair]
                assert ids(taken[0]) == ids(taken[1])
                held += taken[0]
                for task in taken[0]:
                    del waiting[task.id]
            case "end" if held:
                chance.shuffle(held)
                ended, held = held[:5], held[5:]
                outcomes = [HandedBack() if chance.random() < 0.5 else Completed(b"1") for _ in ended]
                changes = [a_settle(task, outcome) for task, outcome in zip(ended, outcomes, strict=True)]
                for each in pair:
                    assert await each.apply(changes) == [Verdict.APPLIED] * len(changes)
                back = [task for task, outcome in zip(ended, outcomes, strict=True) if isinstance(outcome, HandedBack)]
                waiting |= {task.id: task for task in await store.get(ids(back)) if task is not None}
            case "change" if waiting:
                task = chance.choice(list(waiting.values()))
                cancels = chance.random() < 0.5
                event = CancelAsked() if cancels else Prioritized(Priority((task.status.priority + 1) % 4))
                change = a_decision(task, event, NOW + SECOND)
                for each in pair:
                    assert await each.apply([change]) == [Verdict.APPLIED]
                del waiting[task.id]
                if not cancels:
                    (moved,) = await store.get([task.id])
                    assert moved is not None
                    waiting[task.id] = moved
            case _:
                pass
    everything = a_claim(limit=1_000, capabilities={"gpu"})
    assert ids(await store.claim(everything)) == ids(await pair[1].claim(everything))


def _some_task(chance: random.Random, *, keyed: bool) -> Task:
    return a_task(
        type=chance.choice(_TYPES),
        requires=("gpu",) if chance.random() < 0.3 else (),
        priority=chance.choice(list(Priority)),
        ready_at=NOW - chance.randrange(40),
        concurrency_key=chance.choice("abc") if keyed and chance.random() < 0.2 else None,
    )


def _some_claim(chance: random.Random, *, limited: bool) -> Claim:
    return a_claim(
        limit=chance.choice((1, 1, 7, 30)),
        capabilities={"gpu"} if chance.random() < 0.5 else (),
        types=_TYPES[::2] if chance.random() < 0.3 else None,
        excluded_types=_TYPES[1::3] if chance.random() < 0.3 else (),
        policy=Promote(low=10, medium=10, high=10, share=chance.choice(("critical", "all"))),
        passed=chance.randrange(4),
        limits=Limits(queue=Limit(running=20), types={_TYPES[3]: Limit(running=1)}) if limited else None,
    )


async def test_a_large_selection_is_sent_once(store: RedisStore, single: RedisServer, prefix: str) -> None:
    names = [f"type-{number}" for number in range(300)]
    tasks = [a_task(type=name, ready_at=NOW - number) for number, name in enumerate(names)]
    await add(store, *tasks)
    claim = a_claim(limit=10, types=names[::2], excluded_types=names[::4])
    expected = [task for task in reversed(tasks) if task.spec.type in names[2::4]]
    assert ids(await store.claim(claim)) == ids(expected[:10])
    keys = Keys(prefix)
    for key in single.ask("KEYS", keys.base(keys.slot("default")).decode() + "s*"):
        single.ask("DEL", key)
    single.ask("DEL", *single.ask("KEYS", keys.base(keys.slot("default")).decode() + "h*"))
    assert ids(await store.claim(replace(claim, token=a_token()))) == ids(expected[10:20])


async def test_who_writes_no_log_is_found_out(store: RedisStore, single: RedisServer, prefix: str) -> None:
    """A process of an earlier version adds a lane, and only lists it."""
    tasks = [a_task(type=f"type-{number}", ready_at=NOW - number) for number in range(20)]
    await add(store, *tasks)
    assert ids(await store.claim(a_claim())) == [tasks[-1].id]
    keys = Keys(prefix)
    base = keys.base(keys.slot("default"))
    log = single.ask("DUMP", base + b"zdefault")
    late = a_task(type="late", ready_at=NOW - 100)
    await add(store, late)
    single.ask("RESTORE", base + b"zdefault", 60_000, log, "REPLACE")
    assert ids(await store.claim(a_claim())) == [late.id]
    assert ids(await store.claim(a_claim(limit=30))) == ids(tasks[-2::-1])


async def test_a_log_that_was_lost_is_begun_again(store: RedisStore, single: RedisServer, prefix: str) -> None:
    tasks = [a_task(type=f"type-{number}", ready_at=NOW - number) for number in range(20)]
    await add(store, *tasks)
    assert ids(await store.claim(a_claim())) == [tasks[-1].id]
    keys = Keys(prefix)
    single.ask("DEL", keys.base(keys.slot("default")) + b"zdefault")
    late = a_task(type="late", ready_at=NOW - 100)
    await add(store, late)
    assert ids(await store.claim(a_claim())) == [late.id]


async def test_a_queue_whose_last_keyed_task_is_gone_is_claimed_from_as_before(store: RedisStore) -> None:
    await add(store, a_task(concurrency_key="one"), a_task(), a_task())
    claim = a_claim()
    for is_plain in (True, False, True):
        assert store._claimer.is_plain(claim) is is_plain
        await store.claim(replace(claim, token=a_token()))


async def test_the_tally_tells_the_oldest_task_of_each_of_many_lanes(store: RedisStore) -> None:
    tasks = [a_task(type=f"type-{number}", ready_at=NOW - number) for number in range(1_203)]
    await add(store, *tasks)
    told = {tally.lane.type: tally.oldest_ready for tally in (await store.tally()).lanes}
    assert told == {task.spec.type: task.status.ready_at for task in tasks}
