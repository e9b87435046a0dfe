"""What a claim, a submit or a settle reads does not grow with the types in a queue. Pages and rows are counted."""

from __future__ import annotations

import psycopg
import pytest
from msgspec.structs import replace

from fairlead.core.events import Completed
from fairlead.storage.postgres.store import PostgresStore
from fairlead.testing.builders import NOW, a_settle
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
    # So much of the tally is folded at a time that two of them have it all, at 10,000 types as well.
    for _ in range(2):
        await store._fold()
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
        # A type is looked up in its set for each task that is passed over, and what runs is counted by type.
        most = 4 if operation.startswith("claim") and (one.knows_every_second or one.paused_every_second) else 2
        most = 3 if operation.startswith("claim") and one.limited else most
        assert count <= most * few[operation], (operation, few, counts)


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
