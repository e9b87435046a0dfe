"""PostgreSQL alone: one table, plain statements, every commit on the disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import psycopg

from bench.ceilings import Ceiling

_TABLE: Final = """
CREATE TABLE waiting (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    priority smallint NOT NULL,
    state smallint NOT NULL DEFAULT 0,
    payload bytea NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX ON waiting (priority, id) WHERE state = 0;
"""
_INSERT: Final = "INSERT INTO waiting (priority, payload) VALUES (2, %s)"
_UNNEST: Final = "INSERT INTO waiting (priority, payload) SELECT 2, unnest(%s::bytea[])"
_COPY: Final = "COPY waiting (priority, payload) FROM STDIN"
_CLAIM: Final = """
UPDATE waiting SET state = 1 WHERE id = ANY (ARRAY(
    SELECT id FROM waiting WHERE state = 0 ORDER BY priority, id LIMIT %s FOR UPDATE SKIP LOCKED
)) RETURNING id, payload
"""
_SETTLE: Final = "UPDATE waiting SET state = 2 WHERE id = ANY (%s)"
_PAYLOAD: Final = b'{"number":1}'
_CROWD: Final = 50
_BULK: Final = 1_000
_CLAIMED: Final = 50


async def measure(url: str, *, single: int, waiting: int) -> list[Ceiling]:
    """What the server does with statements that nobody thought about for long."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(_TABLE)
        payloads = [_PAYLOAD] * _BULK

        async def one_by_one() -> None:
            for _ in range(single):
                await connection.execute(_INSERT, (_PAYLOAD,))

        async def unnested() -> None:
            for _ in range(waiting // _BULK):
                await connection.execute(_UNNEST, (payloads,))

        async def copied() -> None:
            for _ in range(waiting // _BULK):
                async with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
                    for payload in payloads:
                        await copy.write_row((2, payload))

        async def claimed() -> None:
            for _ in range(waiting // _CLAIMED):
                rows = await (await connection.execute(_CLAIM, (_CLAIMED,))).fetchall()
                await connection.execute(_SETTLE, ([row[0] for row in rows],))

        return [
            Ceiling("INSERT, one by one", single / await _timed(one_by_one), "submit one by one"),
            Ceiling("INSERT by 50 connections", await _crowded(url, waiting // 4), "submit by 50 at once"),
            Ceiling("INSERT from unnest by 1,000", waiting / await _timed(unnested), "submit in bulk of 1,000"),
            Ceiling("COPY by 1,000", waiting / await _timed(copied), "submit in bulk of 1,000"),
            Ceiling("SKIP LOCKED by 50, then UPDATE by 50", waiting / await _timed(claimed), "run, 1 process"),
        ]


async def _crowded(url: str, count: int) -> float:
    connections = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(_CROWD)]
    each = count // _CROWD

    async def insert(connection: psycopg.AsyncConnection) -> None:
        for _ in range(each):
            await connection.execute(_INSERT, (_PAYLOAD,))

    async def all_at_once() -> None:
        await asyncio.gather(*map(insert, connections))

    try:
        return each * _CROWD / await _timed(all_at_once)
    finally:
        for connection in connections:
            await connection.close()


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began
