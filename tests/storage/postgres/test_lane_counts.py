"""What a claim, a submit or a settle reads does not grow with the types in a queue. Pages and rows are counted."""

from __future__ import annotations

import psycopg
import pytest
from msgspec.structs import replace

from fairlead.core.events import Completed
from fairlead.storage.postgres.store import PostgresStore
from fairlead.storage.postgres.transactional import ParameterStyle, addition
from fairlead.testing.builders import NOW, a_claim, a_settle, a_task
from fairlead.testing.steps import contents
from tests.storage.lane_counts import Crowd, variants
from tests.storage.postgres.emptying import empty
from tests.storage.postgres.steps import Counting

_VARIANTS = [crowd.name for crowd in variants(1)]
_MANY = [1_000, pytest.param(10_000, marks=pytest.mark.slow)]


async def _counts(store: PostgresStore, url: str, crowd: Crowd) -> dict[str, int]:
    """The steps of each operation."""
    empty(url, thoroughly=True)
    store._adder._made.clear()
    store._claimer._bounds.forget()
    store._claimer._bounds._monotonic = lambda: 0.0
    await crowd.fill(store)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE")
    # What is surveyed once and found out once is not what an operation costs.
    for limit in (100, 1):
        held = await store.claim(crowd.claim(limit))
        await store.apply([a_settle(task, Completed(None)) for task in held])
    # So much of the tally is folded at a time that two of them have it all, at 10,000 types as well. The claim after
    # them is the one that meets what they left behind.
    for _ in range(2):
        await store._fold()
    await store.apply([a_settle(task, Completed(None)) for task in await store.claim(crowd.claim(1))])
    inner = store._connections
    counting = Counting.within(store, url)
    counts = {"claim(1)": await counting.steps(store.claim(crowd.claim(1)))}
    claim = crowd.claim(100)
    counts |= {"claim(100)": await counting.steps(store.claim(claim))}
    extra = list(replace(crowd, tasks=103).made())
    # What is submitted and settled is read as often as the statement has parts: only pages count. A vacuum beside a
    # submit has its session read the catalog again, which is as much as five submits.
    alone = [await counting.reads(store.add([task], now=NOW, bounds={})) for task in extra[:3]]
    counts |= {"submit(1)": min(alone)}
    counts |= {"submit(100)": await counting.reads(store.add(extra[3:], now=NOW, bounds={}))}
    held = [task for task in await contents(store) if task.status.lease and task.status.lease.token == claim.token]
    counts |= {"settle(100)": await counting.reads(store.apply([a_settle(task, Completed(None)) for task in held]))}
    counting.stop()
    for part in (store, store._adder, store._claimer, store._claimer._bounds, store._changer):
        part._connections = inner
    return counts


@pytest.mark.parametrize("many", _MANY)
@pytest.mark.parametrize("name", _VARIANTS)
async def test_operations_do_not_feel_how_many_types_there_are(
    store: PostgresStore, url: str, name: str, many: int
) -> None:
    one, crowd = (next(crowd for crowd in variants(types) if crowd.name == name) for types in (1, many))
    few, counts = await _counts(store, url, one), await _counts(store, url, crowd)
    for operation, count in counts.items():
        assert count <= 2 * few[operation], (operation, few, counts)


async def test_a_claim_of_no_known_type_costs_no_more_once_the_bound_has_moved(store: PostgresStore, url: str) -> None:
    crowd = Crowd(types=500, tasks=2_000)
    await crowd.fill(store)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE")
    wish = replace(crowd.claim(10), excluded_types=frozenset(crowd.type_of(number) for number in range(499)))
    assert [len(await store.claim(wish)) for _ in range(2)] == [4, 0]
    counting = Counting.within(store, url)
    steps = await counting.steps(store.claim(wish))
    assert steps < 400, counting.plans
    counting.stop()


@pytest.mark.parametrize("types", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("limited", [False, True])
async def test_a_worker_does_not_feel_the_types_of_a_second_tenant(
    store: PostgresStore, url: str, types: int, limited: bool
) -> None:
    own = Crowd(types=1, tasks=400, limited=limited)
    wish = replace(own.claim(10), types=frozenset({"type-00000"}))

    async def steps() -> int:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ANALYZE")
        counting = Counting.within(store, url)
        count = await counting.steps(store.claim(wish))
        counting.stop()
        for part in (store, store._adder, store._claimer, store._claimer._bounds, store._changer):
            part._connections = counting._inner
        return count

    await own.fill(store)
    await store.claim(wish)
    alone = await steps()
    # All that the other one has is older.
    await replace(own, types=types, tasks=types, limited=limited).fill(store)
    for _ in range(2):
        await store._fold()
    store._claimer._bounds.forget()
    await store.claim(wish)
    assert await steps() <= 2 * alone


async def test_a_route_that_is_committed_behind_a_later_one_is_no_secret(store: PostgresStore, url: str) -> None:
    """What is known of routes for a type set is known by their numbers, which are given before they are committed."""
    crowd = Crowd(types=40, tasks=80)
    late, before, after = (
        a_task(queue="queue-0000", type=name, ready_at=NOW - 9_000 + at)
        for at, name in enumerate(("late", "before", "after"))
    )
    wish = replace(crowd.claim(2), excluded_types=frozenset({"type-00001"}))
    added = addition(url, [late], now=NOW, style=ParameterStyle.FORMAT)
    await crowd.fill(store)
    with psycopg.connect(url) as other:
        other.execute(added.routes.text.encode(), added.routes.parameters)
        await store.add([before], now=NOW, bounds={})
        assert before in [replace(task, status=before.status) for task in await store.claim(wish)]
        other.execute(added.tasks.text.encode(), added.tasks.parameters)
    await store.add([after], now=NOW, bounds={})
    assert [task.id for task in await store.claim(wish)] == [late.id, after.id]


async def test_a_type_that_came_since_the_lanes_were_looked_at_is_left_to_others(store: PostgresStore) -> None:
    store._claimer._bounds._monotonic = lambda: 0.0
    own, other = a_task(type="own"), a_task(type="other", ready_at=NOW - 9_000)
    await store.add([own], now=NOW, bounds={})
    assert len(await store.claim(a_claim(types=["own"]))) == 1
    again = a_task(type="own")
    await store.add([other, again], now=NOW, bounds={})
    assert [task.id for task in await store.claim(a_claim(limit=5, types=["own"]))] == [again.id]
