"""Blocking mode: no event loop, any number of threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.core.events import Completed
from fairlead.core.identity import WorkerId
from fairlead.core.submission import Submission
from fairlead.core.task import Task
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import a_task
from fairlead.testing.steps import add, contents
from tests.storage.sqlite.surveying import survey

_THREADS = 8


def test_eight_threads_share_one_store(path: Path) -> None:
    engine = AdminEngine(SqliteStore(path, blocking=True, synchronous="NORMAL"), batching=False)
    start = threading.Barrier(_THREADS)

    def live(number: int) -> list[str]:
        start.wait(30)
        done: list[str] = []
        for _ in range(40):
            run_inline(engine.submit(Submission(type="work")))
            for task in run_inline(engine.claim(WorkerId(f"thread-{number}"), ["default"], limit=2)):
                (answer,) = run_inline(engine.settle([Settlement(task, Completed())]))
                assert isinstance(answer, Task)
                done.append(answer.id)
            run_inline(engine.stats())
        return done

    with ThreadPoolExecutor(_THREADS) as threads:
        done = [task_id for answer in threads.map(live, range(_THREADS)) for task_id in answer]
    run_inline(engine.close())
    assert len(done) == len(set(done))
    assert survey(path) == {"completed": len(done)} | (
        {"queued": _THREADS * 40 - len(done)} if len(done) < _THREADS * 40 else {}
    )


def test_a_call_never_suspends(path: Path) -> None:
    store = SqliteStore(path, blocking=True)
    run_inline(add(store, a_task()))
    assert len(run_inline(contents(store))) == 1
    run_inline(store.wait(["default"], 0.01))
    run_inline(store.close())


def test_a_call_that_is_interrupted_leaves_no_transaction_open(path: Path) -> None:
    store = SqliteStore(path, blocking=True)

    def interrupt(connection: object) -> None:
        raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            run_inline(store._writer.run(interrupt))
        run_inline(add(store, a_task()))
    run_inline(store.close())
    assert survey(path) == {"queued": 3}
