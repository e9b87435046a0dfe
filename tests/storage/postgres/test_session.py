"""How a session speaks with the server: whatever becomes of a call, the next one has an answer of its own."""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator
from uuid import UUID

import psycopg
import pytest

from fairlead.core.errors import StoreError
from fairlead.storage.postgres import binary_arrays
from fairlead.storage.postgres.connection.connect import connect_async
from fairlead.storage.postgres.connection.pool import AsyncConnections, BlockingConnections, Connections
from fairlead.storage.postgres.connection.session import AsyncSession, Session
from fairlead.storage.postgres.statements import Statement
from fairlead.storage.postgres.url import parse

_PID = Statement("SELECT pg_backend_pid()", prepared=True)
_SLEEP = Statement("SELECT pg_sleep(60)", prepared=False)
_FAIL = Statement("SELECT 1 / $1::bigint", prepared=True)
_BIG = 30_000_000
"""Bytes that no socket takes in at once."""


@pytest.fixture(params=[False, True], ids=["async", "blocking"])
async def connections(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Connections]:
    made: Connections = (BlockingConnections if request.param else AsyncConnections)(parse(url))
    yield made
    await made.close()


async def test_parameters_and_rows_keep_their_values(connections: Connections) -> None:
    text = "SELECT $1::bigint, $2::text, $3::bytea, $4::boolean, $5::uuid::text, $6::bigint[], $7::text[]"
    task_id = UUID("018f0000-0000-8000-8000-000000000001")
    given = (
        -(2**62),
        "süß",
        b"\x00\xff",
        True,
        task_id,
        binary_arrays.int8s([1, None, -3]),
        binary_arrays.texts(["a", None]),
    )
    for prepared in (True, False):
        statement = Statement(text, prepared=prepared)
        rows = await connections.fetch(statement, given)
        assert rows == [(-(2**62), "süß", b"\x00\xff", True, str(task_id), [1, None, -3], ["a", None])]
        nothing = await connections.fetch(statement, (None,) * 7)
        assert nothing == [(None,) * 7]


@pytest.mark.parametrize("values", [[], [7] * 40, [None] * 3, [1, None, 2], [2**62, -1, 0], list(range(1_000))])
async def test_numbers_arrive_however_they_are_packed(connections: Connections, values: list[int | None]) -> None:
    statement = Statement("SELECT $1::bigint[]", prepared=True)
    assert await connections.fetch(statement, (binary_arrays.int8s(values),)) == [(values,)]


async def test_a_failed_statement_leaves_the_session_usable(connections: Connections) -> None:
    before = await connections.fetch(_PID)
    with pytest.raises(StoreError, match="division by zero"):
        await connections.fetch(_FAIL, (0,))
    assert await connections.fetch(_FAIL, (1,)) == [(1,)]
    assert await connections.fetch(_PID) == before


async def test_more_than_a_socket_holds_goes_both_ways(connections: Connections) -> None:
    (sent,) = await connections.fetch(Statement("SELECT $1::bytea", prepared=False), (b"x" * _BIG,))
    assert sent == (b"x" * _BIG,)


async def test_a_text_that_the_database_cannot_hold_is_refused(connections: Connections) -> None:
    with pytest.raises(StoreError):
        await connections.fetch(Statement("SELECT $1::text", prepared=False), ("a\x00b",))
    assert len(await connections.fetch(_PID)) == 1


async def test_work_that_raises_is_rolled_back(connections: Connections) -> None:
    async def work(session: Session) -> None:
        insert = "INSERT INTO fairlead.record (kind, name, value, version) VALUES ('seen', 'a', '', 1)"
        await session.fetch(Statement(insert, prepared=False))
        raise LookupError

    with pytest.raises(LookupError):
        await connections.transaction(work)
    count = Statement("SELECT count(*) FROM fairlead.record WHERE kind = 'seen'", prepared=False)
    assert await connections.fetch(count) == [(0,)]


async def test_a_cancelled_call_ends_in_the_server_too(url: str) -> None:
    connections = AsyncConnections(parse(url))
    before = await connections.fetch(_PID)
    with psycopg.connect(url, autocommit=True) as onlooker:

        def sleeping() -> int:
            found = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(60)'"
            row = onlooker.execute(found).fetchone()
            assert row is not None
            return int(row[0])

        call = asyncio.create_task(connections.fetch(_SLEEP))
        async with asyncio.timeout(30):
            while not sleeping():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert sleeping() == 0
    assert await connections.fetch(_PID) == before
    await connections.close()


async def test_a_call_cancelled_while_its_statement_is_prepared_can_be_made_again(url: str) -> None:
    connection = await connect_async(parse(url))
    session = AsyncSession(connection, parse(url))
    call = asyncio.create_task(session.fetch(_PID))
    await asyncio.sleep(0)
    # The server has answered, and no one has looked at it yet.
    assert select.select([connection.fileno()], [], [], 30)[0]
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await session.fetch(_PID) == [(connection.info.backend_pid,)]
    await session.close()
