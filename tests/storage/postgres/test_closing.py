"""Closing: no connection outlives the store, not even one that a call still uses at that moment."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import psycopg

from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.postgres.store import open_postgres
from tests.worker.building import eventually

HELD = "LOCK TABLE record IN ACCESS EXCLUSIVE MODE"


def waiting_calls(connection: psycopg.Connection[tuple[object, ...]]) -> int:
    """How many calls wait for the lock that this connection holds."""
    row = connection.execute(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = "
        "(SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchone()
    assert row is not None
    return int(str(row[0]))


def sessions(connection: psycopg.Connection[tuple[object, ...]]) -> int:
    """How many others are connected to this database now: within a transaction the answer would stay the same."""
    connection.rollback()
    row = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ).fetchone()
    assert row is not None
    return int(str(row[0]))


async def test_a_call_that_is_cancelled_as_the_store_closes_leaves_no_connection(own_url: str) -> None:
    store = await open_postgres(own_url)
    with psycopg.connect(own_url) as holder:
        holder.execute(HELD)
        call = asyncio.create_task(store.scan("queue"))
        await eventually(lambda: waiting_calls(holder) > 0, "the call to wait for the lock")
        call.cancel()
        await store.close()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        await eventually(lambda: sessions(holder) == 0, "the connection to go")


def test_a_call_of_another_thread_as_the_store_closes_leaves_no_connection(own_url: str) -> None:
    store = run_inline(open_postgres(own_url, blocking=True))
    with psycopg.connect(own_url) as holder:
        holder.execute(HELD)
        call = threading.Thread(target=lambda: run_inline(store.scan("queue")))
        call.start()
        asyncio.run(eventually(lambda: waiting_calls(holder) > 0, "the call to wait for the lock"))
        run_inline(store.close())
        holder.rollback()  # lets the call go on
        call.join()
        asyncio.run(eventually(lambda: sessions(holder) == 0, "the connection to go"))
