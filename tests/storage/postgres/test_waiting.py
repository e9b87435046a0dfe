"""Waiting: a notification wakes within milliseconds, from any process; without LISTEN a wait is a short sleep."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.postgres.store import PostgresStore, open_postgres
from fairlead.storage.postgres.wait import POLL, queue_of
from fairlead.testing.builders import a_task
from fairlead.testing.steps import add

QUICKLY = 60.0
"""Far above the milliseconds that it takes, for machines that have other things to do; far below the timeouts."""
LONG = 300.0


async def listening(store: PostgresStore) -> None:
    """Return when the store listens: the first wait opens the connection."""
    while not store._listener._listening:  # type: ignore[attr-defined]
        await store.wait(["nothing"], 0.05)


async def test_a_store_hears_what_another_adds(store: PostgresStore, url: str) -> None:
    await listening(store)
    other = await open_postgres(url)
    waiter = asyncio.create_task(store.wait(["default"], LONG))
    await asyncio.sleep(0.05)
    began = time.monotonic()
    await add(other, a_task())
    await waiter
    assert time.monotonic() - began < QUICKLY
    await other.close()


async def test_who_waits_before_the_store_listens_looks_once_more_when_it_does(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.storage.postgres.wait.POLL", LONG)
    async with asyncio.timeout(QUICKLY):
        await store.wait(["default"], LONG)
        await add(store, a_task())
        await store.wait(["default"], LONG)


async def test_what_came_between_two_waits_is_not_missed(store: PostgresStore) -> None:
    await listening(store)
    await add(store, a_task())
    async with asyncio.timeout(QUICKLY):
        await store.wait(["default"], LONG)


async def test_a_store_that_listens_does_nothing_until_it_is_told(url: str) -> None:
    """But that the deadlines of the calls before ring once more, and are not set again."""
    store = await open_postgres(f"{url}?timeout=0.5")
    await listening(store)
    timers = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    while left := [timer for timer in timers if not timer.cancelled()]:  # noqa: ASYNC110 - there is no event for it
        # A timer that was set again would keep this from its end.
        await asyncio.sleep(max(timer.when() for timer in left) - time.monotonic())
    await store.close()


def test_a_blocking_wait_is_woken_by_another_thread(url: str) -> None:
    store = run_inline(open_postgres(url, blocking=True))
    run_inline(store.wait(["default"], 0.0))
    teller = threading.Timer(0.1, lambda: run_inline(add(store, a_task())))
    teller.start()
    began = time.monotonic()
    run_inline(store.wait(["default"], LONG))
    assert time.monotonic() - began < QUICKLY
    teller.join()
    run_inline(store.close())


async def test_without_listen_a_wait_is_a_short_sleep(url: str) -> None:
    store = await open_postgres(f"{url}?listen=off")
    began = time.monotonic()
    await store.wait(["default"], LONG)
    assert time.monotonic() - began < POLL + QUICKLY
    await store.close()


def test_a_payload_names_a_queue_whatever_the_queue_is_called() -> None:
    assert queue_of("a queue 12") == "a queue"
    assert queue_of("?probe") is None
