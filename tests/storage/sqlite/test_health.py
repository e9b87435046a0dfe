"""What a SQLite store finds out about its own file."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from fairlead.core.health.diagnosis import SQLITE_FULL, SQLITE_NORMAL, Examination, Finding, Level
from fairlead.core.task import State
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.sqlite import health
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import a_task


def found(examination: Examination, what: str) -> Finding:
    (finding,) = [finding for finding in examination.findings if finding.what == what]
    return finding


async def test_index_entries_without_their_task_are_found(store: SqliteStore, path: Path) -> None:
    await store.add([a_task(), a_task(), a_task(state=State.SCHEDULED, alarm=1)], now=0, bounds={})
    assert found(await store.examine(), "orphans").level is Level.GREEN
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("DELETE FROM task WHERE number <> 2")
    orphans = found(await store.examine(), "orphans")
    assert (orphans.level, orphans.value[:2]) == (Level.RED, "4 ")


async def test_a_large_file_is_not_read_through(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(await store.examine(), "integrity").value == "quick_check finds no fault"
    monkeypatch.setattr(health, "CHECKED", 1)
    assert found(await store.examine(), "integrity").value.startswith("not checked")


def test_the_tier_is_that_of_the_connection(path: Path) -> None:
    for synchronous, tier in (("FULL", SQLITE_FULL), ("NORMAL", SQLITE_NORMAL)):
        store = SqliteStore(path, blocking=True, synchronous=synchronous)
        assert run_inline(store.examine()).tier is tier
        run_inline(store.close())
