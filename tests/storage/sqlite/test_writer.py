"""Which process is writing to a file: what a keeper asks before it ends its worker."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fairlead.storage.open import open_store
from fairlead.storage.protocol import OneWriter
from fairlead.storage.sqlite import runner

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the locks of its processes")


async def test_the_writer_is_the_process_that_has_begun_to_write(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    store = await open_store(f"sqlite:///{path}")
    try:
        assert isinstance(store, OneWriter)
        assert store.writer() is None
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            assert store.writer() == os.getpid()
            connection.execute("COMMIT")
            assert store.writer() is None
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM task").fetchone()
            assert store.writer() is None
    finally:
        await store.close()


def test_a_lock_on_all_of_the_file_is_a_writer_s_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tasks.db"
    (tmp_path / "tasks.db-shm").touch()
    index = (tmp_path / "tasks.db-shm").stat().st_ino
    locks = tmp_path / "locks"
    monkeypatch.setattr(runner, "_LOCKS", str(locks))

    def writer(*lines: str) -> int | None:
        locks.write_text("".join(f"{line}\n" for line in lines))
        return runner.writer_of(path)

    assert writer(f"1: POSIX  ADVISORY  WRITE 71 fd:00:{index} 0 EOF") == 71
    assert writer(f"1: POSIX  ADVISORY  WRITE 72 fd:00:{index} 120 120") == 72
    assert writer(f"1: POSIX  ADVISORY  WRITE 72 fd:00:{index} 121 128") is None
    assert writer(f"1: POSIX  ADVISORY  READ  72 fd:00:{index} 120 120") is None
    assert writer(f"1: POSIX  ADVISORY  WRITE 72 fd:00:{index}1 120 120") is None
    assert (
        writer("1: FLOCK  ADVISORY  WRITE 7 fd:00:1 0 EOF", f"1: -> POSIX  ADVISORY  WRITE 7 fd:00:{index} 120 120")
        is None
    )


def test_where_the_system_does_not_tell_there_is_no_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tasks.db-shm").touch()
    monkeypatch.setattr(runner, "_LOCKS", str(tmp_path / "nothing"))
    assert runner.writer_of(tmp_path / "tasks.db") is None
    assert runner.writer_of(tmp_path / "nothing.db") is None
