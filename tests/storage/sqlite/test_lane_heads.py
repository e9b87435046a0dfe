"""The index of lane heads: it is a lower bound whatever happens, and tells nothing of what is gone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from fairlead.core.events import CancelAsked, Completed, HandedBack, Purged
from fairlead.core.queues.limits import Limit, Limits
from fairlead.core.task import Priority
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import NOW, a_claim, a_decision, a_removal, a_task, some_tasks
from fairlead.testing.steps import add, apply_one, claim_one, ids, read, settle
from tests.storage.sqlite.surveying import survey

COUNT_AS_BEFORE = """
    UPDATE lane
    SET scheduled = scheduled + 0, queued = queued + :queued, executing = executing + 0, completed = completed + 0,
        failed = failed + 0, dead_letter = dead_letter + 0, cancelled = cancelled + 0
    WHERE lane = :lane
"""
"""How a process of the sixth version counts; one that has the file open goes on doing so."""


async def test_a_task_that_an_earlier_version_adds_is_found_at_once(path: Path) -> None:
    store = SqliteStore(path, few=0)
    first, second = some_tasks(2, queue="q")
    urgent = a_task(queue="q", ready_at=NOW - 5)
    await add(store, first, second, urgent)
    assert ids(await store.claim(a_claim("q", limit=1))) == [urgent.id]
    assert ids(await store.claim(a_claim("q", limit=9))) == [first.id, second.id]
    requeued = await read(store, urgent)
    assert requeued is not None
    with closing(sqlite3.connect(path)) as old, old:
        (lane, number) = old.execute("SELECT lane, number FROM status WHERE id = ?", (urgent.id,)).fetchone()
        old.execute("INSERT INTO ready (lane, ready_at, id, number) VALUES (?, ?, ?, ?)", (lane, 7, urgent.id, number))
        old.execute("DELETE FROM status WHERE number = ?", (number,))
        old.execute("UPDATE lane SET executing = executing - 1 WHERE lane = ?", (lane,))
        old.execute(COUNT_AS_BEFORE, {"queued": 1, "lane": lane})
    survey(path)
    assert ids(await store.claim(a_claim("q", limit=9))) == [urgent.id]
    await store.close()


async def test_what_is_kept_of_a_queue_is_counted_anew_when_an_earlier_version_has_counted(path: Path) -> None:
    store = SqliteStore(path)
    bounds = {"default": 3}
    await store.add(some_tasks(2), now=NOW, bounds=bounds)
    (task,) = some_tasks(1)
    with closing(sqlite3.connect(path)) as old, old:
        assert old.execute("SELECT waiting FROM total").fetchone() == (2,)
        old.execute(COUNT_AS_BEFORE, {"queued": 1, "lane": 1})
        assert old.execute("SELECT count(*) FROM total").fetchone() == (0,)
    assert type((await store.add([task], now=NOW, bounds=bounds))[0]).__name__ == "Full"
    await store.close()


async def test_the_index_holds_whatever_becomes_of_tasks(path: Path) -> None:
    store = SqliteStore(path, few=0)
    tasks = [
        a_task(type=f"{number % 5}", ready_at=NOW + 10 - number, concurrency_key="k" if number % 3 == 0 else None)
        for number in range(30)
    ]
    await add(store, *tasks)
    survey(path)
    held = await store.claim(a_claim(limit=7, limits=Limits(key=Limit(running=2))))
    survey(path)
    await settle(store, held[0], HandedBack())
    for task in held[1:]:
        await settle(store, task, Completed())
    waiting = [task for task in await store.get(ids(tasks)) if task is not None and task.state == "queued"]
    await apply_one(store, a_decision(waiting[0], CancelAsked()))
    await apply_one(store, a_decision(waiting[1], Purged()))
    await apply_one(store, a_removal(waiting[2]))
    survey(path)
    while taken := await store.claim(a_claim(limit=4)):
        survey(path)
        for task in taken:
            await settle(store, task, Completed())
    assert survey(path).keys() <= {"completed", "cancelled"}
    await store.close()


async def test_a_lane_without_ready_tasks_leaves_the_index_and_one_without_tasks_is_forgotten(path: Path) -> None:
    store = SqliteStore(path, few=0)
    await store.add(some_tasks(2, queue="q"), now=NOW, bounds={"q": 9})
    first = await claim_one(store, a_claim("q"))
    second = await claim_one(store, a_claim("q"))
    assert await store.claim(a_claim("q")) == []
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM lane WHERE head_ready_at IS NOT NULL").fetchone() == (0,)
        for task in (first, second):
            await apply_one(store, a_removal(task))
        for table in ("lane", "total"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    await store.close()


async def test_claims_of_different_types_pass_over_a_lane_once_each(path: Path) -> None:
    """And what passes over it hides it from no other."""
    store = SqliteStore(path, few=0)
    tasks = {name: a_task(type=name, priority=Priority.HIGH) for name in ("a", "b", "c", "d")}
    await add(store, *tasks.values())
    kinds = (("a", "x"), ("b", "x"), ("x", "y"), ("x", "z"), ("z",), ("z", "y"))
    for names in kinds[2:] * 2:
        assert await store.claim(a_claim(limit=9, types=names)) == []
    assert await store.claim(a_claim(limit=9, excluded_types=("a", "b", "c", "d"))) == []
    assert ids(await store.claim(a_claim(limit=9, types=kinds[0]))) == [tasks["a"].id]
    assert ids(await store.claim(a_claim(limit=9, types=kinds[1]))) == [tasks["b"].id]
    assert ids(await store.claim(a_claim(limit=9, excluded_types=("c",)))) == [tasks["d"].id]
    assert ids(await store.claim(a_claim(limit=9))) == [tasks["c"].id]
    await store.close()


async def test_claims_of_ever_other_types_hide_nothing_from_one_another(path: Path) -> None:
    """What is kept of who passes over which lanes is bounded, and forgotten when there is too much of it."""
    store = SqliteStore(path, few=0)
    tasks = [a_task(type=f"type-{number}") for number in range(60)]
    await add(store, *tasks)
    for number in range(60):
        types = [f"type-{number}", *(f"other-{number}-{more}" for more in range(3))]
        assert ids(await store.claim(a_claim(limit=2, types=types))) == [tasks[number].id]
        assert await store.claim(a_claim(limit=2, types=types[1:])) == []
        with closing(sqlite3.connect(path)) as connection:
            query = "SELECT count(DISTINCT shut) FROM lane WHERE head_ready_at IS NOT NULL"
            assert connection.execute(query).fetchone()[0] <= 20
    await store.close()
