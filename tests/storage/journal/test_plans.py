"""The plans of searches: none reads all tasks, however many there are and whether what is asked for is rare or common.

How long a search takes depends on the machine; how many pages of the tables and indexes it looks at does not, as long
as the planner knows the same. What ANALYZE finds out from its sample is a matter of luck: every fiftieth sample has a
parameter in it that one task in five thousand has, and makes it look common. So here it looks at all rows, and nobody
else does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest

from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import SECOND
from fairlead.core.task import Priority, State
from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.rows import Search, Statements, searching
from fairlead.storage.journal.url import JournalAddress, parse_journal
from fairlead.storage.postgres.connection.connect import connect
from fairlead.storage.values import Filter
from fairlead.testing.builders import NOW, a_task
from tests.servers.postgres import PostgresServer

_PAGES: Final = 8_000
"""That a search may look at: some 10 milliseconds where they are in memory. All tasks have a multiple of that."""

_FILL: Final = """
WITH sample AS (SELECT t.spec, s.status FROM {schema}.task AS t JOIN {schema}.status AS s ON s.id = t.id LIMIT 1),
given AS (
    SELECT n, ('018f' || lpad(to_hex(n), 8, '0') || '80008000' || lpad(to_hex(n), 12, '0'))::uuid AS id,
        n <= 50 AS rare, n % 20 = 0 AS failed
    FROM generate_series(1, $1::bigint) AS n
), asked AS (
    INSERT INTO {schema}.task (id, created_at, queue, type, tags, parameters, spec)
    SELECT id, $2::bigint + n * 1000000, CASE WHEN rare THEN 'rare' ELSE 'queue-' || n % 20 END,
        CASE WHEN rare THEN 'rare' ELSE 'type-' || n % 50 END,
        jsonb_build_array(CASE WHEN rare THEN 'rare' ELSE 'customer-' || n % 5000 END),
        jsonb_build_object('order', n, 'customer', n % 5000, 'kind', CASE WHEN rare THEN 'rare' ELSE 'invoice' END),
        spec
    FROM given, sample
)
INSERT INTO {schema}.status (
    id, version, beats, ended_at, alarm, accepted_at, leaves_at, state, priority, worker, error, status
)
SELECT id, 2, 0, $2::bigint + n * 1000000 + 1, 4000000000000000, NULL, NULL,
    CASE WHEN rare THEN 5 WHEN failed THEN 4 WHEN n % 1000 = 1 THEN 2 ELSE 3 END,
    CASE WHEN rare THEN 0 ELSE 2 + n % 2 END,
    CASE WHEN rare THEN 'rare' ELSE 'worker-' || n % 200 END,
    CASE WHEN rare THEN 'RareError: once' WHEN failed THEN 'ConnectionError: no answer from host ' || n % 1000 END,
    status
FROM given, sample
"""

_RARE: Final = WorkerId("rare")
_SOME_TIME: Final = (NOW + 5_000 * SECOND, NOW + 5_060 * SECOND)
_EXECUTING: Final = frozenset({State.EXECUTING})
SEARCHES: Final = {
    "everything": Search(),
    "a common state": Search(matching=Filter(states=frozenset({State.COMPLETED}))),
    "a rare state": Search(matching=Filter(states=frozenset({State.DEAD_LETTER}))),
    "several states": Search(matching=Filter(states=frozenset({State.FAILED, State.DEAD_LETTER}))),
    "a common queue": Search(matching=Filter(queue="queue-3")),
    "a rare queue": Search(matching=Filter(queue="rare")),
    "a common type": Search(matching=Filter(type="type-7")),
    "a rare type": Search(matching=Filter(type="rare")),
    "a common priority": Search(matching=Filter(priority=Priority.LOW)),
    "a rare priority": Search(matching=Filter(priority=Priority.CRITICAL)),
    "a common tag": Search(matching=Filter(tag="customer-4321")),
    "a rare tag": Search(matching=Filter(tag="rare")),
    "a holder": Search(matching=Filter(states=_EXECUTING, worker=WorkerId("worker-1"))),
    "who ran much": Search(ran_by="worker-77"),
    "who ran little": Search(ran_by=_RARE),
    "created in a minute": Search(matching=Filter(created_from=_SOME_TIME[0], created_before=_SOME_TIME[1])),
    "created long ago": Search(matching=Filter(created_before=NOW + 100 * SECOND)),
    "created since": Search(matching=Filter(created_from=NOW + 100 * SECOND)),
    "ended in a minute": Search(ended_from=_SOME_TIME[0], ended_before=_SOME_TIME[1]),
    "ended long ago": Search(ended_before=NOW + 100 * SECOND),
    "ended since": Search(ended_from=NOW + 100 * SECOND),
    "words of a rare error": Search(error="rareerror once"),
    "words of an error": Search(error="connectionerror 500"),
    "words of many errors": Search(error="no answer"),
    "one order": Search(parameters=b'{"order": 4321}'),
    "a customer": Search(parameters=b'{"customer": 1234}'),
    "a rare parameter": Search(parameters=b'{"kind": "rare"}'),
    "a common parameter": Search(parameters=b'{"kind": "invoice"}'),
    "a state and a type": Search(matching=Filter(states=frozenset({State.FAILED}), type="type-40")),
    "a queue and a priority": Search(matching=Filter(queue="queue-3", priority=Priority.LOW)),
    "all that is rare": Search(
        matching=Filter(
            states=frozenset({State.DEAD_LETTER}), queue="rare", type="rare", priority=Priority.CRITICAL, tag="rare"
        ),
        ran_by=_RARE,
        error="once",
    ),
}


_SAMPLED_PER_TARGET: Final = 300
"""How many rows ANALYZE looks at for each unit of a column's statistics target."""


@pytest.fixture(params=[100_000, pytest.param(500_000, marks=pytest.mark.slow)], scope="module")
def full(request: pytest.FixtureRequest, server: PostgresServer) -> Iterator[JournalAddress]:
    """A journal with many tasks, of which fifty, the oldest, are rare in every respect."""
    database = server.create_database()
    address = parse_journal(server.url(database))

    async def one() -> None:
        journal = Journal(address)
        await journal.add([a_task()], accepted=False)
        await journal.close()

    asyncio.run(one())
    with psycopg.connect(address.database.conninfo, autocommit=True) as connection:
        schema = f'"{address.database.schema}"'
        for table in (f"{schema}.task", f"{schema}.status"):
            everything = request.param // _SAMPLED_PER_TARGET + 1
            connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)".encode())
            connection.execute(f"ALTER TABLE {table} ALTER id SET STATISTICS {everything}".encode())
        fill = _FILL.replace("{schema}", schema)
        psycopg.RawCursor(connection).execute(fill.encode(), (request.param, NOW))
        connection.execute("VACUUM ANALYZE")
    yield address
    server.drop_database(database)


@pytest.fixture(params=[True, False], ids=["set up", "as it comes"])
def session(request: pytest.FixtureRequest, full: JournalAddress) -> Iterator[psycopg.Connection[Any]]:
    """A session as the journal sets it up, and one without settings, as behind PgBouncer."""
    database = full.database
    with connect(database) if request.param else psycopg.connect(database.conninfo, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest first", "oldest first"])
@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_finds_its_tasks_without_reading_all(
    session: psycopg.Connection[Any], full: JournalAddress, name: str, newest_first: bool
) -> None:
    plan = explained(session, full, SEARCHES[name], newest_first)
    steps = list(all_steps(plan))
    assert plan["Actual Rows"] > 0, steps
    assert [step for step in steps if step["Node Type"] == "Seq Scan"] == []
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < _PAGES, steps


@pytest.mark.parametrize("name", ["everything", "a common state", "a common queue", "a common priority", "ended since"])
def test_the_next_page_costs_no_more(session: psycopg.Connection[Any], full: JournalAddress, name: str) -> None:
    middle = TaskId("018f" + f"{50_000:08x}" + "80008000" + f"{50_000:012x}")
    plan = explained(session, full, SEARCHES[name], True, middle)
    assert plan["Actual Rows"] == 50
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < _PAGES


def explained(
    session: psycopg.Connection[Any],
    full: JournalAddress,
    search: Search,
    newest_first: bool,
    after: TaskId | None = None,
) -> dict[str, Any]:
    """The plan of one page of a search that was run."""
    statement = searching(Statements(full.database.schema), search, 50, newest_first, after)
    with psycopg.RawCursor(session) as cursor:
        row = cursor.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement.text).fetchone()
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


def all_steps(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan's steps, from the top."""
    yield {key: value for key, value in plan.items() if key != "Plans"}
    for part in plan.get("Plans", ()):
        yield from all_steps(part)
