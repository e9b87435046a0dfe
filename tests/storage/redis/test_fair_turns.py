"""Fair tasks of many types, and such as processes of an earlier version have changed, which know of no turns."""

from __future__ import annotations

import random

import pytest

from fairlead.core.events import CancelAsked, Completed, Event, HandedBack
from fairlead.core.queues.limits import Limit, Limits
from fairlead.core.queues.order import Promote, Strict
from fairlead.core.task import Priority, State, Task
from fairlead.storage.redis.keys import Keys
from fairlead.storage.redis.store import RedisStore
from fairlead.storage.values import Claim
from fairlead.testing.builders import NOW, a_claim, a_decision, a_task
from fairlead.testing.clauses.fairness import FairStory, live_through
from fairlead.testing.steps import add, apply_one, ids, read
from tests.servers.redis import RedisServer

_TYPES = [f"type-{number}" for number in range(40)]


@pytest.mark.parametrize("seed", range(8))
async def test_in_many_lanes_turns_are_taken_as_the_reference_says(store: RedisStore, seed: int) -> None:
    """Where tasks take turns there are no views of many lanes."""
    chance = random.Random(seed)
    await live_through(store, FairStory([[_some_task(chance)], *(_some_step(chance) for _ in range(40))]), "")


def _some_step(chance: random.Random) -> list[Task] | Claim | tuple[int, Event]:
    match chance.choice(("add", "add", "claim", "claim", "end")):
        case "add":
            return [_some_task(chance) for _ in range(chance.choice((1, 1, 5, 30)))]
        case "claim":
            return a_claim(
                limit=chance.choice((1, 1, 7, 20)),
                capabilities={"gpu"} if chance.random() < 0.7 else (),
                policy=chance.choice((Promote(low=10, medium=10, high=10, share="all"), Strict())),
                passed=chance.randrange(4),
                limits=Limits(types={_TYPES[3]: Limit(running=1)}) if chance.random() < 0.3 else None,
            )
        case _:
            return chance.randrange(300), chance.choice((HandedBack(), Completed(b"1"), CancelAsked()))


def _some_task(chance: random.Random) -> Task:
    return a_task(
        type=chance.choice(_TYPES),
        requires=("gpu",) if chance.random() < 0.3 else (),
        priority=chance.choice((Priority.MEDIUM, Priority.MEDIUM, Priority.LOW)),
        ready_at=NOW - chance.randrange(40),
        concurrency_key=chance.choice("abc") if chance.random() < 0.1 else None,
        fair=chance.choice("ABC") if chance.random() < 0.7 else None,
        weight=chance.choice((1, 1, 3)),
    )


@pytest.mark.parametrize("policy", [Promote(share="all"), Strict()])
@pytest.mark.parametrize("types", [1, 2, 30])
async def test_what_was_cancelled_is_not_taken_by_its_turn(
    store: RedisStore, single: RedisServer, prefix: str, policy: Promote | Strict, types: int
) -> None:
    """It is left among the turns, and counted."""
    tasks = [a_task(type=f"type-{number % types}", fair="A", ready_at=NOW + number) for number in range(60)]
    await add(store, *tasks)
    base = Keys(prefix).base(Keys(prefix).slot("default"))
    turns = [key for key in single.ask("KEYS", f"{{{prefix}:*") if key[len(base) :][:1] in (b"x", b"u")]
    before = {key: single.ask("DUMP", key) for key in turns}
    await apply_one(store, a_decision(tasks[0], CancelAsked()))
    for key, dump in before.items():
        single.ask("RESTORE", key, 0, dump, "REPLACE")
    taken = [task for _ in range(7) for task in await store.claim(a_claim(limit=10, policy=policy, now=NOW + 99))]
    assert ids(taken) == ids(tasks[1:])
    stored = await read(store, tasks[0])
    assert stored is not None
    assert stored.state is State.CANCELLED
    left = [key[len(base) :] for key in single.ask("KEYS", f"{{{prefix}:*")]
    assert [name for name in left if name[:1] in (b"x", b"u")] == []


@pytest.mark.parametrize("policy", [Promote(share="all"), Strict()])
@pytest.mark.parametrize("types", [1, 2, 30])
async def test_what_was_queued_again_is_taken_when_it_is_the_oldest(
    store: RedisStore, single: RedisServer, prefix: str, policy: Promote | Strict, types: int
) -> None:
    """It has no turn, until a claim gives it one."""
    tasks = [a_task(type=f"type-{number % types}", fair="A", ready_at=NOW + number) for number in range(60)]
    await add(store, *tasks)
    keys = Keys(prefix)
    for task in tasks[:5]:
        kind = keys.kind(task.spec)
        single.ask("ZREM", kind.base + b"x" + kind.lanes[task.status.priority].encode(), bytes.fromhex(task.id))
    taken = [task for _ in range(9) for task in await store.claim(a_claim(limit=10, policy=policy, now=NOW + 99))]
    assert sorted(ids(taken)) == sorted(ids(tasks))


@pytest.mark.parametrize("damaged", [b"", b"\0", b"\x95\xce\0\0\0\x09"])
async def test_a_damaged_task_leaves_its_line(
    store: RedisStore, single: RedisServer, prefix: str, damaged: bytes
) -> None:
    """Whose turns it takes is what its key has more than there are tasks of it; who is left behind is an orphan."""
    tasks = [a_task(fair=key, ready_at=NOW + at) for at, key in enumerate("AABB")]
    await add(store, *tasks)
    keys = Keys(prefix)
    single.ask("SET", keys.kind(tasks[2].spec).base + b"t" + bytes.fromhex(tasks[2].id), damaged)
    taken = [task for _ in range(4) for task in await store.claim(a_claim(policy=Promote(share="all")))]
    assert sorted(ids(taken)) == sorted(ids([tasks[0], tasks[1], tasks[3]]))
