"""Queues that fair keys share, as people use them: settings, submits and claims, on every store that gives turns."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from fairlead.core.errors import InvalidSettings
from fairlead.core.events import HandedBack
from fairlead.core.instant import HOUR
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Sharing, Store
from tests.engine.building import Bench, a_wish


@pytest.fixture
def bench(any_store: Store) -> Bench:
    if not isinstance(any_store, Sharing):
        pytest.skip("the store gives no turns")
    return Bench(store=any_store, batching=False)


async def served(bench: Bench, claims: int, limit: int = 1) -> str:
    """The tenants of what is claimed, by their first letters; - for none."""
    tasks = [task for _ in range(claims) for task in await bench.claim(limit)]
    return "".join((task.spec.tenant or "-")[0] for task in tasks)


async def submit(bench: Bench, count: int, **wish: object) -> None:
    answers = await bench.engine.submit_many([a_wish(**wish)] * count)
    assert not [answer for answer in answers if isinstance(answer, Exception)]


async def test_a_tenant_does_not_wait_for_the_backlog_of_another(bench: Bench) -> None:
    await bench.engine.queues.change("default", fair="tenant")
    await submit(bench, 300, tenant="acme")
    await submit(bench, 1, tenant="umbrella")
    assert await served(bench, 3) == "aua"


async def test_nor_when_that_backlog_is_older_than_every_bound(bench: Bench) -> None:
    await bench.engine.queues.change("default", fair="tenant")
    await submit(bench, 100, tenant="acme")
    bench.clock.advance(5 * HOUR)
    await submit(bench, 1, tenant="umbrella")
    assert "u" in await served(bench, 2)


async def test_in_four_processes_it_waits_for_a_turn_of_each_at_most(bench: Bench) -> None:
    await bench.engine.queues.change("default", fair="tenant")
    others = [Bench(store=bench.store, batching=False, clock=bench.clock, seed=seed) for seed in range(4)]
    await submit(bench, 100, tenant="acme")
    bench.clock.advance(5 * HOUR)
    await submit(bench, 1, tenant="umbrella")
    taken = "".join([await served(other, 1) for _ in range(2) for other in others])
    assert taken.index("u") <= 4


async def test_weights_are_kept(bench: Bench) -> None:
    await bench.engine.queues.change("default", fair="tenant", weight={"acme": 3})
    await submit(bench, 800, tenant="acme")
    await submit(bench, 300, tenant="umbrella")
    assert Counter(await served(bench, 10, 100)) == {"a": 750, "u": 250}


async def test_a_queue_is_made_fair_while_tasks_wait_and_unmade_again(bench: Bench) -> None:
    await submit(bench, 50, tenant="old")
    await bench.engine.queues.change("default", fair="tenant")
    await submit(bench, 20, tenant="acme")
    await submit(bench, 2, tenant="umbrella")
    assert Counter(await served(bench, 6)) == {"o": 2, "a": 2, "u": 2}
    await bench.engine.queues.change("default", fair=None)
    await submit(bench, 5, tenant="later")
    rest = await served(bench, 1, 1_000)
    assert Counter(rest) == {"o": 48, "a": 18, "l": 5}


@pytest.mark.parametrize(
    ("fair", "wishes"),
    [
        ("type", [{"type": "many"}, {"type": "one"}]),
        ("tag:customer", [{"tags": ("customer:many",)}, {"tags": ("x", "customer:one")}]),
        ("parameter:account", [{"parameters": b'{"account":1}'}, {"parameters": b'{"account":2}'}]),
        ("tenant", [{"fair_key": "many"}, {"fair_key": "one"}]),
    ],
)
async def test_a_queue_is_shared_by_what_it_says(bench: Bench, fair: str, wishes: list[dict[str, object]]) -> None:
    await bench.engine.queues.change("default", fair=fair)
    await submit(bench, 20, **wishes[0])
    await submit(bench, 1, **wishes[1])
    taken = [task.spec.fair_key for task in await bench.claim(2)]
    assert len(set(taken)) == 2


async def test_a_parameter_of_any_length_is_a_fair_key(bench: Bench) -> None:
    await bench.engine.queues.change("default", fair="parameter:account")
    chance = random.Random(1)
    digits = "".join(chance.choice("123456789") for _ in range(4_000))
    letters = "".join(chr(chance.randrange(0x10000, 0x10FFFF)) for _ in range(4_000))
    long = [f'{{"account":{digits}}}'.encode(), f'{{"account":"{letters}"}}'.encode()]
    answers = await bench.engine.submit_many([a_wish(parameters=each) for each in long])
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    assert len({task.spec.fair_key for task in await bench.claim(2)}) == 2


async def test_who_is_handed_back_is_the_next_of_its_key(bench: Bench) -> None:
    await bench.engine.queues.change("default", fair="tenant")
    await submit(bench, 9, tenant="acme")
    (first,) = await bench.claim(1)
    await bench.settle(first, HandedBack())
    assert [task.id for task in await bench.claim(1)] == [first.id]


async def test_after_a_cancel_the_others_are_not_delayed(bench: Bench) -> None:
    await bench.engine.queues.change("default", fair="tenant")
    await submit(bench, 100, tenant="acme")
    await bench.engine.queues.purge("default")
    await submit(bench, 3, tenant="umbrella")
    await submit(bench, 3, tenant="acme")
    assert Counter(await served(bench, 4)) == {"u": 2, "a": 2}


async def test_a_store_that_gives_no_turns_refuses() -> None:
    bench = Bench(store=_Without(MemoryStore()))  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="cannot be shared by tenant: its store gives no turns"):
        await bench.engine.queues.change("mail", fair="tenant")
    await bench.engine.queues.change("mail", weight={"acme": 3})


class _Without:
    """A store without one of its operations."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        if name == "line_keys":
            raise AttributeError(name)
        return getattr(self._store, name)
