"""The plans of the statements that workers and users run: none reads the whole table, however many tasks there are.

The statements are run as the store runs them, on a session set up as it sets them up, and again without any settings,
as behind PgBouncer, where the planner must come to the same by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest
from msgspec import Struct

from fairlead.core.events import Completed
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.queues.order import Promote, Weighted
from fairlead.core.task import Priority, State
from fairlead.storage.postgres.connection.connect import connect
from fairlead.storage.postgres.connection.pool import Connections
from fairlead.storage.postgres.connection.session import BlockingSession, Row
from fairlead.storage.postgres.statements import Statement
from fairlead.storage.postgres.store import PostgresStore, open_postgres
from fairlead.storage.postgres.url import Address, parse
from fairlead.storage.values import Beat, Filter
from fairlead.testing.builders import NOW, a_claim, a_removal, a_settle, a_token, an_id, some_tasks
from tests.servers.postgres import PostgresServer

_FILL = """
INSERT INTO fairlead.task (
    id, ready_at, timeout, alarm, created_at, version, beats, attempts, route, lane_group, priority, state,
    cancel_asked, rest, spec
)
SELECT
    g.id::uuid, n, 1000000,
    CASE WHEN n % 10 < 5 THEN NULL ELSE 2000000000000000 + n END, n, 1, 0, 0, r.id, r.lane_group, n % 4,
    CASE WHEN n % 10 < 5 THEN 1 ELSE 3 END, false, s.rest,
    -- Behind three bytes of an array and two of a text.
    overlay(s.spec PLACING convert_to(g.id, 'UTF8') FROM 6)
FROM generate_series(1, $1::bigint) AS n
CROSS JOIN LATERAL (SELECT '018f' || lpad(to_hex(n), 8, '0') || '80008000' || lpad(to_hex(n), 12, '0') AS id) AS g
CROSS JOIN fairlead.route AS r
CROSS JOIN (SELECT rest, spec FROM fairlead.task LIMIT 1) AS s
"""


class Plan(Struct, frozen=True):
    """A statement and the lines of its plan."""

    statement: str
    lines: list[str]

    def whole_reads(self) -> list[str]:
        """The steps that read all tasks: a sequential scan, or an index scan without a condition or a limit above."""
        return [line.strip() for line in self.lines if "Seq Scan on task" in line]


class Explaining:
    """Explains every statement, then runs it."""

    def __init__(self, inner: Connections, address: Address) -> None:
        self._inner = inner
        self._session = BlockingSession(connect(address), address)
        self.plans: list[Plan] = []

    async def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        text = statement.text.decode()
        if not text.startswith("LOCK "):
            rows = await self._session.fetch(Statement(f"EXPLAIN {text}", prepared=False), parameters)
            self.plans.append(Plan(text, [str(line) for (line,) in rows]))
        return await self._inner.fetch(statement, parameters)

    async def transaction(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        return await work(self)

    async def close(self) -> None:
        self._session.close()
        await self._inner.close()


@pytest.fixture(params=[100_000, pytest.param(1_000_000, marks=pytest.mark.slow)], scope="module")
def full_url(request: pytest.FixtureRequest, server: PostgresServer) -> Iterator[str]:
    """A store with many tasks, half of them waiting."""
    database = server.copy_of_template()
    url = server.url(database)
    _fill(url, request.param)
    yield url
    server.drop_database(database)


def _fill(url: str, count: int) -> None:
    import asyncio

    async def one() -> None:
        store = await open_postgres(url)
        await store.add(some_tasks(1), now=NOW, bounds={})
        await store.close()

    asyncio.run(one())
    with psycopg.connect(url, autocommit=True) as connection:
        # A plan must not wait on when the server finds the time.
        connection.execute("ALTER TABLE fairlead.task SET (autovacuum_enabled = false)")
        psycopg.RawCursor(connection).execute(_FILL.encode(), (count,))
        connection.execute("ANALYZE fairlead.task")


@pytest.fixture(params=[True, False], ids=["set up", "as it comes"])
async def explained(request: pytest.FixtureRequest, full_url: str) -> Any:
    """A store all of whose plans are kept."""
    store = await open_postgres(full_url)
    address = parse(full_url if request.param else f"{full_url}?prepare=off")
    explaining = Explaining(store._connections, address)
    for part in (store, store._adder, store._claimer, store._claimer._bounds, store._routes, store._changer):
        part._connections = explaining
    yield store, explaining
    await store.close()


async def test_no_statement_reads_all_tasks(explained: tuple[PostgresStore, Explaining]) -> None:
    store, explaining = explained
    await _work(store)
    for states in (frozenset[State](), *(frozenset({state}) for state in State)):
        for matching in (Filter(states=states), Filter(states=states, worker=WorkerId("w"))):
            await store.find(matching, limit=50)
    await store.find(Filter(states=frozenset({State.FAILED, State.DEAD_LETTER})), limit=50)
    await store.find(Filter(queue="default", type="work", priority=Priority.LOW), limit=50, newest_first=False)
    await store.find(Filter(tag="red"), limit=50)
    await store.find(Filter(), limit=50, after=an_id(number=7))
    assert len(explaining.plans) > 20
    for plan in explaining.plans:
        assert plan.whole_reads() == [], "\n".join([plan.statement, *plan.lines])


@pytest.mark.parametrize(
    ("types", "index"), [(None, "task_group"), (["work"], "task_group"), (["other"], "task_ready")]
)
async def test_a_claim_reads_the_first_tasks_from_their_index(
    explained: tuple[PostgresStore, Explaining], types: Sequence[str] | None, index: str
) -> None:
    store, explaining = explained
    await store.claim(a_claim(limit=10, policy=Promote(), types=types))
    plans = [plan for plan in explaining.plans if "candidate AS" in plan.statement]
    assert plans
    for plan in plans:
        text = "\n".join(plan.lines)
        assert f"using {index} on task" in text
        assert "Tid Scan on task" in text


async def test_a_settle_finds_its_tasks_by_id(explained: tuple[PostgresStore, Explaining]) -> None:
    store, explaining = explained
    tasks = await store.claim(a_claim(limit=10))
    await store.apply([a_settle(task, Completed(None)) for task in tasks])
    plans = [plan for plan in explaining.plans if "settled AS" in plan.statement]
    assert plans
    for plan in plans:
        assert any("task_pkey" in line for line in plan.lines), "\n".join(plan.lines)
        assert not any("task_lease" in line for line in plan.lines), "\n".join(plan.lines)


async def _work(store: PostgresStore) -> None:
    tasks = some_tasks(100)
    await store.add(tasks, now=NOW, bounds={})
    await store.add(some_tasks(1), now=NOW, bounds={})
    await store.add(some_tasks(3), now=NOW, bounds={"default": 10})
    claimed = await store.claim(a_claim(limit=100, policy=Promote()))
    await store.claim(a_claim(limit=10, policy=Weighted()))
    for types in (["work"], ["other"]):
        claim = a_claim(limit=10, types=types)
        await store.claim(claim)
        store._claimer._bounds.move_after = 1
        await store._claimer._bounds.passed_over(claim, 0)
    await store.extend([Beat(task.id, a_token()) for task in claimed], lease=0, now=NOW, grace=0)
    await store.curtail(lease=0, limit=100, now=NOW)
    await store.apply([a_settle(task, Completed(None)) for task in claimed])
    await store.apply([a_removal(task) for task in tasks])
    await store.get([task.id for task in claimed])
    await store.due(NOW, 100)
    await store.due(None, 100)
    await store.due(NOW, 100, (NOW, TaskId("f" * 32)))
    await store.tally()
    await store._fold()
    await store._forget()
