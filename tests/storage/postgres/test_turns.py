"""Turns of fair tasks: what is committed late, processes of the version before, and what claims and submits read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from uuid import UUID

import psycopg
import pytest

from fairlead.core.events import AlarmRang, CancelAsked, Completed
from fairlead.core.queues.fairness import STEP
from fairlead.core.queues.order import Policy, Promote, Strict
from fairlead.core.task import Priority, State, Task
from fairlead.storage.postgres import schema
from fairlead.storage.postgres.store import PostgresStore, open_postgres
from fairlead.storage.postgres.transactional import ParameterStyle, addition
from fairlead.storage.values import Claim
from fairlead.testing.builders import NOW, a_claim, a_decision, a_settle, a_task, an_id
from fairlead.testing.steps import add, apply_one, ids
from tests.servers.postgres import PostgresServer
from tests.storage.postgres.steps import Counting

SHARED = Promote(share="all")
_BEFORE = 5
"""The version of the schema before turns."""

_MANY = """
INSERT INTO fairlead.task (
    id, ready_at, timeout, created_at, version, beats, attempts, route, lane_group, priority, state, cancel_asked, rest,
    spec, fair_key, fair_step, turn, place
)
SELECT
    g.id::uuid, t.ready_at + n, t.timeout, t.created_at, 1, 0, 0, t.route, t.lane_group, t.priority, 1, false, t.rest,
    overlay(t.spec PLACING convert_to(g.id, 'UTF8') FROM 6), {key}, t.fair_step, t.place + {turn}, t.place + {turn}
FROM generate_series(1, $1::bigint) AS n
CROSS JOIN LATERAL (SELECT '018f' || lpad(to_hex(n), 8, '0') || '80008000' || lpad(to_hex(n), 12, '0') AS id) AS g
CROSS JOIN (SELECT * FROM fairlead.task LIMIT 1) AS t
"""
"""More of the only task there is, as if they had been added one after the other."""


def keys(tasks: Sequence[Task]) -> str:
    """The fair keys of tasks, - for none."""
    return "".join(task.spec.fair_key or "-" for task in tasks)


def claim_of(limit: int, policy: Policy = SHARED) -> Claim:
    return a_claim(limit=limit, policy=policy)


async def multiply(store: PostgresStore, url: str, count: int, *, tenants: bool = False) -> None:
    """Have so many more of one task of A, or one each of so many tenants."""
    await add(store, a_task(fair="A"))
    key, turn = ("t.fair_key || convert_to(n::text, 'UTF8')", "0") if tenants else ("t.fair_key", "n * 5040")
    with psycopg.connect(url, autocommit=True) as connection:
        text = _MANY.replace("{key}", key).replace("{turn}", turn)
        psycopg.RawCursor(connection).execute(text.encode(), (count,))
        connection.execute("VACUUM ANALYZE fairlead.task")


async def steps(store: PostgresStore, url: str, limit: int) -> int:
    """The pages and rows that one of the next claims reads."""
    inner = store._connections
    counting = Counting.within(store, url)
    await store.claim(claim_of(limit))
    count = await counting.steps(store.claim(claim_of(limit)))
    counting.stop()
    for part in (store, store._adder, store._claimer, store._claimer._bounds, store._changer):
        part._connections = inner
    return count


@pytest.mark.parametrize("ahead", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
async def test_one_task_of_another_key_behind_very_many_is_second(own_url: str, ahead: int) -> None:
    store = await open_postgres(own_url)
    await multiply(store, own_url, ahead)
    # The oldest are past every bound, or not; it makes no difference.
    await add(store, a_task(fair="B"))
    assert keys(await store.claim(claim_of(3))) == "ABA"
    await add(store, a_task(fair="B"))
    assert keys(await store.claim(a_claim(limit=3, policy=SHARED, now=NOW + 10_000_000_000))) == "ABA"
    await store.close()


async def test_a_claim_and_a_submit_cost_as_much_with_very_many_keys(own_url: str, url: str) -> None:
    store, other = await open_postgres(url), await open_postgres(own_url)
    await multiply(store, url, 500)
    await multiply(other, own_url, 100_000, tenants=True)
    few = [await steps(store, url, limit) for limit in (1, 100)]
    many = [await steps(other, own_url, limit) for limit in (1, 100)]
    assert many[0] <= 1.5 * few[0]
    assert many[1] <= 1.5 * few[1]
    reads = []
    for each, at in ((store, url), (other, own_url)):
        counting = Counting.within(each, at)
        reads.append(await counting.reads(each.add([a_task(fair="B"), a_task(fair="C")], now=NOW, bounds={})))
        counting.stop()
        for part in (each, each._adder, each._claimer, each._claimer._bounds, each._changer):
            part._connections = counting._inner
        await each.close()
    assert reads[1] <= 1.5 * reads[0]


async def test_a_claim_of_a_queue_without_fair_tasks_reads_nothing_of_turns(store: PostgresStore, url: str) -> None:
    await add(store, *[a_task() for _ in range(50)], a_task(queue="other", fair="A"))
    await store.claim(claim_of(1))
    counting = Counting.within(store, url)
    await store.claim(claim_of(1))
    await store.add([a_task(), a_task()], now=NOW, bounds={})
    counting.stop()
    assert len(counting.plans) == 2
    assert not any("line_turn" in plan or "place IS NOT NULL" in plan for plan in counting.plans)


async def test_four_claimers_serve_a_new_key_within_a_round(url: str) -> None:
    stores = [await open_postgres(url) for _ in range(4)]
    await add(stores[0], *[a_task(fair="A") for _ in range(400)])
    taken: list[Task] = []

    async def work(store: PostgresStore) -> None:
        for _ in range(10):
            taken.extend(await store.claim(claim_of(1)))

    await asyncio.gather(*map(work, stores))
    await add(stores[0], *[a_task(fair="B") for _ in range(20)])
    taken.clear()
    await asyncio.gather(*map(work, stores))
    assert len(set(ids(taken))) == 40
    # In turn, but for those that are taken at the same time and know nothing of each other.
    assert 16 <= keys(taken).count("B") <= 20
    for store in stores:
        await store.close()


async def test_a_late_commit_has_its_place_among_others_and_nobody_waits_for_it(store: PostgresStore, url: str) -> None:
    await add(store, *[a_task(fair="A") for _ in range(20)])
    await store.claim(claim_of(10))
    late = [a_task(fair="B"), a_task(fair="A")]
    added = addition(url, late, now=NOW, style=ParameterStyle.FORMAT)
    with psycopg.connect(url) as other:
        for written in (added.routes, added.tasks):
            other.execute(written.text.encode(), written.parameters)
        # Meanwhile all are served, the line begins anew, and the same keys come again.
        while await store.claim(claim_of(5)):
            pass
        await add(store, a_task(fair="A"), a_task(fair="B"), a_task(fair="C"), *[a_task(fair="C") for _ in range(20)])
        assert keys(await store.claim(claim_of(3))) == "ABC"
        other.commit()
    # Not behind what the line has reached, though its turns were counted from another beginning.
    assert set(ids(await store.claim(claim_of(4)))) >= {late[0].id, late[1].id}


async def test_a_transaction_that_finds_a_line_empty_puts_nobody_back(store: PostgresStore, url: str) -> None:
    await add(store, *[a_task(fair="A") for _ in range(30)])
    await store.claim(claim_of(30))
    added = addition(url, [a_task(fair="B")], now=NOW, style=ParameterStyle.FORMAT)
    with psycopg.connect(url) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("SELECT 1 FROM fairlead.task LIMIT 1")
        await add(store, *[a_task(fair="A") for _ in range(30)])
        assert len(await store.claim(claim_of(10))) == 10
        for written in (added.routes, added.tasks):
            other.execute(written.text.encode(), written.parameters)
        other.commit()
    await add(store, *[a_task(fair="C") for _ in range(10)])
    assert keys(await store.claim(claim_of(7))).count("A") >= 3


async def test_what_was_served_by_age_is_not_behind_others_for_ever(store: PostgresStore) -> None:
    """Where a worker knows none of the first types, the others are found, by age if they are very far behind."""
    await add(store, *[a_task(fair="A", type="other") for _ in range(3_000)])
    mine = [a_task(fair="B", type="mine") for _ in range(5)]
    await add(store, *mine)
    assert ids(await store.claim(a_claim(limit=5, policy=SHARED, types=["mine"]))) == ids(mine)


async def test_priorities_are_apart_and_turns_within_them(store: PostgresStore) -> None:
    await add(store, *[a_task(fair=key, priority=Priority.LOW) for key in "AAB"])
    await add(store, *[a_task(fair=key, priority=Priority.HIGH) for key in "CCD"], a_task(priority=Priority.HIGH))
    assert keys(await store.claim(claim_of(7, Strict()))) == "CD-CABA"


async def test_rows_about_turns_are_folded_and_forgotten(store: PostgresStore, url: str) -> None:
    await add(store, *[a_task(fair=key) for key in "AB" * 150])
    taken = [task for _ in range(300) for task in await store.claim(claim_of(1))]
    assert keys(taken) == "AB" * 150
    await store._fold()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) <= 32 FROM fairlead.line_turn").fetchone() == (True,)
    await add(store, a_task(fair="A"))
    assert keys(await store.claim(claim_of(1))) == "A"
    for task in await store.get(ids(taken)):
        assert task is not None
        await store.apply([a_settle(task, Completed(None))])


@pytest.fixture
def old_url(server: PostgresServer) -> Iterator[str]:
    """A database with the schema of the version before."""
    database = server.create_database()
    url = server.url(database)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA fairlead")
        connection.execute(
            "CREATE TABLE fairlead.migration (version int PRIMARY KEY, name text NOT NULL, "
            "applied_at timestamptz NOT NULL DEFAULT now())"
        )
        for number, (name, text) in enumerate(schema.migrations()[:_BEFORE], start=1):
            connection.execute(text.replace("{schema}", "fairlead").encode())
            connection.execute("INSERT INTO fairlead.migration (version, name) VALUES (%s, %s)", (number, name))
    yield url
    server.drop_database(database)


_OLD_ROUTE = """
INSERT INTO fairlead.route (name, queue, type, requires, keyed)
VALUES ('["default","work",[]]', 'default', 'work', '{}', false) ON CONFLICT (name) DO NOTHING
"""
_OLD_TASK = """
INSERT INTO fairlead.task (
    id, ready_at, timeout, created_at, version, beats, attempts, route, lane_group, priority, state, cancel_asked, rest,
    spec
)
SELECT %s, %s, 1000000, %s, 1, 0, 0, r.id, r.lane_group, 2, 1, false, %s, %s FROM fairlead.route AS r WHERE NOT r.keyed
AND r.queue = 'default' AND r.name NOT LIKE '%%fair%%'
"""
"""What processes of that version do, without what does not matter to turns."""


def _add_as_before(url: str, *tasks: Task) -> None:
    import msgspec

    from fairlead.storage.postgres.columns import packed_rest

    with psycopg.connect(url) as connection:
        connection.execute(_OLD_ROUTE)
        for task in tasks:
            packed = packed_rest(task.status), msgspec.msgpack.encode(task.spec)
            connection.execute(_OLD_TASK, (UUID(task.id), task.status.ready_at, NOW, *packed))


async def test_what_waited_before_is_together_one_key_and_nothing_of_it_is_rewritten(old_url: str) -> None:
    before = [a_task() for _ in range(20)]
    _add_as_before(old_url, *before)
    with psycopg.connect(old_url) as connection:
        rows = connection.execute("SELECT xmin::text, id FROM fairlead.task ORDER BY id").fetchall()
    assert schema.migrate(old_url) == ["0006_turns"]
    with psycopg.connect(old_url) as connection:
        assert connection.execute("SELECT xmin::text, id FROM fairlead.task ORDER BY id").fetchall() == rows
    store = await open_postgres(old_url)
    await add(store, *[a_task(fair="B") for _ in range(3)])
    more = [a_task() for _ in range(2)]
    _add_as_before(old_url, *more)
    taken = await store.claim(claim_of(25))
    assert keys(taken) == "-B-B-B" + "-" * 19
    assert [task.id for task in taken if task.spec.fair is None] == ids(before + more)
    await store.close()


async def test_what_a_process_of_the_version_before_does_to_fair_tasks_keeps_their_turns(
    store: PostgresStore, url: str
) -> None:
    """Of a task that it gives back it is the one that it had."""
    first, later = a_task(fair="A"), a_task(fair="B", state=State.SCHEDULED)
    await add(store, first, later, *[a_task(fair="A") for _ in range(5)])
    with psycopg.connect(url) as connection:
        taken = "UPDATE fairlead.task SET state = 2, token = 'old', version = 2, attempts = 1 WHERE id = %s"
        connection.execute(taken, (UUID(first.id),))
        ready = "UPDATE fairlead.task SET state = 1, alarm = NULL, token = NULL, version = version + 1 WHERE id = %s"
        connection.execute(ready, (UUID(later.id),))
        connection.execute(ready, (UUID(first.id),))
    by_id = {task.id: task for task in await store.get([first.id, later.id]) if task}
    assert by_id[later.id].status.turn == STEP
    assert by_id[first.id].status.turn == STEP
    assert keys(await store.claim(claim_of(3))) in ("ABA", "BAA")


async def test_after_very_many_are_cancelled_a_key_begins_where_its_last_stands(store: PostgresStore, url: str) -> None:
    await add(store, *[a_task(id=an_id(number=number), fair="A") for number in range(200)])
    for number in range(199, 1, -1):
        (task,) = await store.get([an_id(number=number)])
        assert task is not None
        await apply_one(store, a_decision(task, CancelAsked()))
    await add(store, last := a_task(fair="A"), a_task(fair="B"))
    (found,) = await store.get([last.id])
    assert found is not None
    assert found.status.turn == 3 * STEP
    assert keys(await store.claim(claim_of(4))) == "ABAA"


async def test_many_that_become_due_at_once_get_turns_in_the_order_of_the_call(store: PostgresStore) -> None:
    waiting = [a_task(fair="A", state=State.SCHEDULED) for _ in range(6)]
    await add(store, *waiting, a_task(fair="B"))
    order = [waiting[at] for at in (3, 0, 5, 1, 4, 2)]
    await store.apply([a_decision(task, AlarmRang()) for task in order])
    turns = [task.status.turn for task in await store.get(ids(order)) if task]
    assert turns == [STEP * number for number in range(1, 7)]
