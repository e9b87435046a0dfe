"""Turns of fair tasks: they are in step with who waits, whatever version changed that, and cost little."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from fairlead.core.events import CancelAsked, Completed, HandedBack, Prioritized
from fairlead.core.queues.fairness import STEP, LineTurns
from fairlead.core.queues.order import Promote
from fairlead.core.task import Priority, Task
from fairlead.storage.sqlite.database import _APPLICATION_ID, _migrations
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import NOW, a_claim, a_decision, a_removal, a_settle, a_task, some_tasks
from fairlead.testing.steps import add, apply_one, contents, ids, read, settle
from tests.storage.sqlite.surveying import survey
from tests.storage.sqlite.test_lane_counts import counted

SHARED = Promote(share="all")

_COUNT = "UPDATE lane SET queued = queued + ?, {state} = {state} + ?, writes = writes + 1 WHERE lane = ?"
"""How a process of the seventh version counts: no trigger sees that it knows of no turns."""
_BOUND = "UPDATE lane SET head_ready_at = ?, head_id = ? WHERE lane = ?"
"""How it says that what it has queued may be the head of a lane."""


def keys(tasks: list[Task]) -> str:
    return "".join(task.spec.fair_key or "-" for task in tasks)


def requeue_as_before(path: Path, task: Task) -> None:
    """Queue an executing task as a process of the seventh version does when its worker gives it back."""
    with closing(sqlite3.connect(path)) as old, old:
        lane, number = old.execute("SELECT lane, number FROM status WHERE id = ?", (task.id,)).fetchone()
        old.execute("UPDATE status SET state = 'queued', alarm = NULL WHERE number = ?", (number,))
        place = task.status.ready_at, task.id
        old.execute("INSERT INTO ready (lane, ready_at, id, number) VALUES (?, ?, ?, ?)", (lane, *place, number))
        old.execute(_COUNT.format(state="executing"), (1, -1, lane))
        old.execute(_BOUND, (*place, lane))


def cancel_as_before(path: Path, task: Task) -> None:
    """Cancel a task that waits and was never touched, as a process of the seventh version does."""
    with closing(sqlite3.connect(path)) as old, old:
        row = "SELECT number, id, lane, 'cancelled', NULL, added FROM task WHERE id = ?"
        old.execute(f"INSERT INTO status (number, id, lane, state, alarm, status) {row}", (task.id,))
        (lane,) = old.execute("SELECT lane FROM ready WHERE id = ?", (task.id,)).fetchone()
        old.execute("DELETE FROM ready WHERE id = ?", (task.id,))
        old.execute(_COUNT.format(state="cancelled"), (-1, 1, lane))


@pytest.fixture(params=[16, 0], ids=["few lanes", "by the index"])
def few(request: pytest.FixtureRequest) -> int:
    return int(request.param)


async def test_turns_are_in_step_with_who_waits_whatever_becomes_of_tasks(path: Path, few: int) -> None:
    store = SqliteStore(path, few=few)
    await add(store, *(a_task(fair="ABC"[number % 3], type=f"{number % 2}") for number in range(30)), *some_tasks(5))
    survey(path)
    taken = await store.claim(a_claim(limit=8, policy=SHARED))
    survey(path)
    first, second, third, *_ = [task for task in taken if task.lane.fair]
    await settle(store, first, HandedBack())
    await settle(store, second, Completed())
    await settle(store, third, HandedBack())
    survey(path)
    waiting = [task for task in await contents(store) if task.lane.fair and task.state == "queued"]
    await apply_one(store, a_decision(waiting[0], CancelAsked()))
    await apply_one(store, a_decision(waiting[1], Prioritized(Priority.HIGH)))
    await apply_one(store, a_removal(waiting[2]))
    both = [a_decision(waiting[at], Prioritized(Priority.LOW)) for at in (3, 4, 5)]
    await store.apply(both)
    survey(path)
    while taken := await store.claim(a_claim(limit=4, policy=SHARED)):
        survey(path)
        await store.apply([a_settle(task, Completed()) for task in taken])
    assert survey(path).keys() == {"completed", "executing", "cancelled"}
    with closing(sqlite3.connect(path)) as connection:
        for table in ("turn", "line_turn", "line_key"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    await store.close()


async def test_many_queues_that_are_shared_are_served_by_one_claim(path: Path, few: int) -> None:
    store = SqliteStore(path, few=few)
    names = [f"q{number}" for number in range(40)]
    tasks = [a_task(queue=name, fair=key) for name in names for key in "AAB"]
    await add(store, *tasks, a_task(queue="q0"), a_task(queue="plain"))
    claim = a_claim(*names, "plain", limit=200, policy=SHARED)
    taken = await store.claim(claim)
    assert len(taken) == len(tasks) + 2
    assert keys([task for task in taken if task.spec.queue == "q7"]) == "ABA"
    survey(path)
    await store.close()


def write_seventh_version(path: Path) -> None:
    """An empty file as the version before left it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for number, script in enumerate(_migrations()[:7], start=1):
            for statement in script.split(";\n"):
                connection.execute(statement)
            connection.execute("INSERT INTO migration (version) VALUES (?)", (number,))
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")


async def test_a_backlog_of_the_version_before_shares_turns_as_one_key(path: Path, tmp_path: Path) -> None:
    """Its rows are those of today's tasks without a fair key, so they are copied from such a file."""
    write_seventh_version(path)
    model = SqliteStore(tmp_path / "model.db", blocking=True)
    backlog = some_tasks(9)
    await add(model, *backlog)
    await model.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS model", (str(tmp_path / "model.db"),))
        for table in ("lane", "task", "directory", "ready", "status"):
            connection.execute(f"INSERT INTO {table} SELECT * FROM model.{table}")
        connection.execute("UPDATE filed SET number = (SELECT number FROM model.filed)")
    store = SqliteStore(path)
    assert await contents(store) == backlog
    await add(store, *(a_task(fair=key) for key in "BBC"))
    assert keys(await store.claim(a_claim(limit=20, policy=SHARED))) == "-BC-B-------"
    assert survey(path) == {"executing": 12}
    await store.close()


async def test_what_the_version_before_queues_again_gets_a_turn(path: Path, few: int) -> None:
    store = SqliteStore(path, few=few)
    await add(store, *(a_task(fair=key) for key in "AAAB"))
    taken = await store.claim(a_claim(limit=2, policy=SHARED))
    assert keys(taken) == "AB"
    for task in taken:
        requeue_as_before(path, task)
    served: list[Task] = []
    for _ in range(8):
        served += await store.claim(a_claim(policy=SHARED))
        survey(path)
    assert Counter(keys(served)) == {"A": 3, "B": 1}
    await store.close()


async def test_what_the_version_before_queues_in_an_empty_line_is_found(path: Path, few: int) -> None:
    store = SqliteStore(path, few=few)
    await add(store, a_task(fair="A"))
    (task,) = await store.claim(a_claim(policy=SHARED))
    requeue_as_before(path, task)
    # By its index a claim meets it when it has chosen, and the next one takes it.
    taken = [*await store.claim(a_claim(policy=SHARED)), *await store.claim(a_claim(policy=SHARED))]
    assert ids(taken) == [task.id]
    assert survey(path) == {"executing": 1}
    await store.close()


async def test_what_the_version_before_cancels_is_not_served(path: Path, few: int) -> None:
    store = SqliteStore(path, few=few)
    tasks = [a_task(fair=key) for key in "AAAB"]
    await add(store, *tasks)
    cancel_as_before(path, tasks[0])
    cancel_as_before(path, tasks[2])
    assert ids(await store.claim(a_claim(limit=9, policy=SHARED))) == [tasks[3].id, tasks[1].id]
    assert survey(path) == {"executing": 2, "cancelled": 2}
    assert (await store.line_keys("default", Priority.MEDIUM, most=9)).turns == LineTurns()
    await store.close()


def test_the_version_before_takes_nothing_of_fair_lanes(path: Path) -> None:
    """What such a lane requires is no capability, and its head has no bound, so that it is not even met."""
    store = SqliteStore(path, blocking=True)
    import fairlead.engine.runtime.inline as inline

    inline.run_inline(add(store, a_task(fair="A", requires=["gpu"]), a_task(fair="B")))
    inline.run_inline(store.close())
    with closing(sqlite3.connect(path)) as old:
        lanes = old.execute("SELECT requires, head_ready_at FROM lane ORDER BY requires").fetchall()
    assert lanes == [("fair turns", None), ("gpu,fair turns", None)]


async def test_a_damaged_fair_task_leaves_its_line(path: Path) -> None:
    store = SqliteStore(path)
    tasks = [a_task(fair=key) for key in "AAB"]
    await add(store, *tasks)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE task SET spec = x'c1' WHERE id = ?", (tasks[0].id,))
    assert ids(await store.claim(a_claim(limit=9, policy=SHARED))) == [tasks[2].id, tasks[1].id]
    survey(path)
    await store.close()


async def test_one_of_another_key_is_second_behind_a_backlog(path: Path) -> None:
    """And a claim takes no more steps than behind a short one."""
    costs: list[int] = []
    for size in (1_000, 20_000):
        async with counted(path.with_name(f"{size}.db")) as made:
            for _ in range(size // 1_000):
                await add(made.store, *(a_task(fair="A") for _ in range(1_000)))
            await add(made.store, a_task(fair="B"))
            await made.store.claim(a_claim(policy=SHARED))
            steps, (second,) = await made.steps(lambda: made.store.claim(a_claim(policy=SHARED)))
            assert (second.spec.fair_key, second.status.turn) == ("B", STEP)
            costs.append(steps)
    assert costs[1] <= 1.05 * costs[0]


async def test_no_operation_feels_how_many_keys_there_are(path: Path) -> None:
    found: dict[int, dict[str, int]] = {}
    for size in (1, 10_000):
        costs = found[size] = {}
        async with counted(path.with_name(f"{size}.db")) as made:
            store = made.store
            for start in range(0, 12_000, 1_000):
                await add(store, *(a_task(fair=f"{number % size}") for number in range(start, start + 1_000)))
            await store.claim(a_claim(policy=SHARED))
            costs["claim(1)"], _ = await made.steps(lambda: store.claim(a_claim(policy=SHARED)))  # noqa: B023
            claim = a_claim(limit=100, policy=SHARED)
            costs["claim(100)"], taken = await made.steps(lambda: store.claim(claim))  # noqa: B023
            assert len(taken) == 100
            changes = [a_settle(task, Completed()) for task in taken]
            costs["settle(100)"], _ = await made.steps(lambda: store.apply(changes))  # noqa: B023
            costs["submit(1)"], _ = await made.steps(lambda: store.add([a_task(fair="1")], now=NOW, bounds={}))  # noqa: B023
            batch = [a_task(fair=f"{number % size}") for number in range(100)]
            costs["submit(100)"], _ = await made.steps(lambda: store.add(batch, now=NOW, bounds={}))  # noqa: B023
            task = next(task for task in reversed(await contents(store)) if task.state == "queued")
            change = a_decision(task, CancelAsked())
            costs["cancel"], _ = await made.steps(lambda: store.apply([change]))  # noqa: B023
    ratios = {name: found[10_000][name] / steps for name, steps in found[1].items()}
    assert {name: round(ratio, 2) for name, ratio in ratios.items() if ratio > 1.5} == {}


async def test_who_has_no_keys_pays_for_none(path: Path) -> None:
    """A queue without fair tasks costs the same beside one that has them, but for a look whether it is that one."""
    found: dict[bool, dict[str, int]] = {}
    for shared in (False, True):
        costs = found[shared] = {}
        async with counted(path.with_name(f"{shared}.db")) as made:
            store = made.store
            await add(store, *some_tasks(300))
            if shared:
                await add(store, *(a_task(queue="shared", fair=f"{number}") for number in range(100)))
            await store.claim(a_claim())
            claim = a_claim(limit=100)
            costs["claim(1)"], _ = await made.steps(lambda: store.claim(a_claim()))  # noqa: B023
            costs["claim(100)"], taken = await made.steps(lambda: store.claim(claim))  # noqa: B023
            changes = [a_settle(task, Completed()) for task in taken]
            costs["settle(100)"], _ = await made.steps(lambda: store.apply(changes))  # noqa: B023
            batch = some_tasks(100)
            costs["submit(100)"], _ = await made.steps(lambda: store.add(batch, now=NOW, bounds={}))  # noqa: B023
    assert found[True]["claim(1)"] <= found[False]["claim(1)"] + 12
    assert found[True]["claim(100)"] <= found[False]["claim(100)"] + 12
    for name in ("settle(100)", "submit(100)"):
        assert found[True][name] == found[False][name]


async def test_a_task_that_arrives_alone_has_its_turn_at_once(path: Path) -> None:
    store = SqliteStore(path)
    first, second = a_task(fair="A"), a_task(fair="A")
    for task in (first, second):
        await store.add([task], now=NOW, bounds={})
    stored = [await read(store, task) for task in (first, second)]
    assert [task.status.turn for task in stored if task is not None] == [STEP, 2 * STEP]
    await store.close()
