"""What operators do with tasks, from Python, on every store: the same as over HTTP and on the command line."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from fairlead import Fairlead, State, TaskNotFound
from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import InvalidTask, OperationNotFound, OperationRefused, QueryError
from fairlead.core.health.diagnosis import TIERS
from fairlead.core.instant import DAY, SECOND
from fairlead.core.operation import Operation, Stage
from fairlead.core.task import Priority, Task
from tests.engine.stocking import a_dead_letter


async def stocked(app: Fairlead, count: int = 6) -> list[Task]:
    """Dead letters that ended a minute ago by the real clock."""
    engine = await app.connection().engine()
    assert isinstance(engine, AdminEngine)
    now = engine.clock.now()
    made = []
    for number in range(count):
        task = a_dead_letter(number)
        status = replace(task.status, ended_at=now - 60 * SECOND + number, alarm=now + DAY, ready_at=now - 100 * SECOND)
        made.append(Task(replace(task.spec, created_at=now - 100 * SECOND), status))
    await engine.store.add(made, now=now, bounds={})
    return made


def ids(tasks: list[Task]) -> list[str]:
    return [task.id for task in tasks]


async def test_tasks_are_searched_page_by_page(any_app: Fairlead) -> None:
    tasks = await stocked(any_app)
    first = await any_app.tasks.search("params.user_id:>0 type:send_*", limit=3)
    assert ids(first.tasks) == ids([tasks[5], tasks[4], tasks[3]])
    rest = await any_app.tasks.search("params.user_id:>0", limit=9, after=first.cursor)
    assert (ids(rest.tasks), rest.cursor) == (ids([tasks[2], tasks[1]]), None)
    oldest = await any_app.dead_letters.search("error:unknown", limit=1, newest_first=False)
    assert ids(oldest.tasks) == [tasks[0].id]
    assert (await any_app.dead_letters.search("state:failed")).tasks == []
    with pytest.raises(QueryError):
        await any_app.tasks.search("sate:failed")
    with pytest.raises(InvalidTask):
        await any_app.tasks.search(limit=0)


async def test_single_tasks_are_replayed_discarded_and_cancelled(any_app: Fairlead) -> None:
    first, second, *_ = await stocked(any_app)
    replayed = await any_app.tasks.replay(first.id, priority="low", reset_retries=False)
    assert (replayed.state, replayed.status.priority, replayed.status.retries) == (State.QUEUED, Priority.LOW, 3)
    assert (await any_app.tasks.cancel(first.id)).state is State.CANCELLED
    assert (await any_app.tasks.get(first.id)).state is State.CANCELLED
    assert (await any_app.tasks.discard(second.id)).id == second.id
    with pytest.raises(TaskNotFound):
        await any_app.tasks.get(second.id)
    with pytest.raises(TaskNotFound):
        await any_app.tasks.get("no id")


async def test_dead_letters_are_grouped_and_counted(any_app: Fairlead) -> None:
    tasks = await stocked(any_app)
    grouped = await any_app.dead_letters.groups("params.user_id:<5")
    (group,) = grouped.groups
    assert (grouped.total, group.count, group.pattern, group.example) == (5, 5, "user <n> is unknown", tasks[4].id)
    assert (await any_app.stats()).states[State.DEAD_LETTER] == 6


async def test_many_are_previewed_tried_with_a_canary_and_finished(any_app: Fairlead) -> None:
    await stocked(any_app)
    query = "state:dead_letter params.user_id:>0"
    preview = await any_app.operations.preview("replay", query)
    assert (preview.count, preview.exact, len(preview.sample)) == (5, True, 5)
    as_of = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=preview.as_of)
    with pytest.raises(OperationRefused):
        await any_app.operations.start("replay", query, as_of=as_of, expected=4)
    begun = await any_app.operations.start(
        "replay", query, as_of=as_of, expected=5, canary=2, rate=1_000, priority="high", who="ada"
    )
    steps: list[Operation] = []
    paused = await any_app.operations.finish(begun.id, steps.append)
    assert (paused.stage, paused.done, steps[-1]) == (Stage.PAUSED, 2, paused)
    await any_app.operations.resume(begun.id)
    done = await any_app.operations.finish(begun.id)
    assert (done.stage, done.done, done.who, done.rate) == (Stage.DONE, 5, "ada", 1_000)
    assert await any_app.operations.all() == [done] == [await any_app.operations.get(begun.id)]
    assert (await any_app.stats()).queues["default"].lines[Priority.HIGH].depth == 5


async def test_an_operation_is_paused_and_cancelled(any_app: Fairlead) -> None:
    await stocked(any_app)
    begun = await any_app.operations.start("discard", "state:dead_letter")
    assert begun.who
    assert (await any_app.operations.pause(begun.id)).stage is Stage.PAUSED
    assert (await any_app.operations.finish(begun.id)).done == 0
    assert (await any_app.operations.cancel(begun.id)).stage is Stage.CANCELLED
    assert (await any_app.stats()).states[State.DEAD_LETTER] == 6
    with pytest.raises(OperationNotFound):
        await any_app.operations.get("nobody")


async def test_what_makes_no_sense_is_refused(any_app: Fairlead) -> None:
    with pytest.raises(InvalidTask, match="use one of replay, discard, cancel"):
        await any_app.operations.start("retry", "type:x")
    with pytest.raises(InvalidTask, match="time zone"):
        await any_app.operations.preview("replay", "type:x", as_of=datetime(2026, 1, 1))
    with pytest.raises(OperationRefused):
        await any_app.operations.start("discard", "")


async def test_the_doctor_is_asked(any_app: Fairlead) -> None:
    assert (await any_app.diagnose()).tier in TIERS


async def test_all_of_it_from_synchronous_code(any_app: Fairlead) -> None:
    first, second, third, *_ = await stocked(any_app)

    def operate() -> None:
        # First: the listings of a journal are a flush behind.
        assert ids(any_app.tasks.search_sync("params.user_id:2").tasks) == [third.id]
        assert len(any_app.dead_letters.search_sync().tasks) == 6
        assert any_app.dead_letters.groups_sync().total == 6
        assert any_app.tasks.get_sync(first.id).id == first.id
        assert any_app.tasks.replay_sync(first.id).state is State.QUEUED
        assert any_app.tasks.cancel_sync(first.id).state is State.CANCELLED
        assert any_app.tasks.discard_sync(second.id).id == second.id
        assert any_app.stats_sync().states[State.DEAD_LETTER] == 4
        operations = any_app.operations
        assert operations.preview_sync("discard", "state:dead_letter").count == 4
        begun = operations.start_sync("discard", "state:dead_letter", canary=1)
        assert operations.finish_sync(begun.id).stage is Stage.PAUSED
        assert operations.resume_sync(begun.id).stage.active
        assert operations.pause_sync(begun.id).stage is Stage.PAUSED
        assert operations.cancel_sync(begun.id).stage is Stage.CANCELLED
        assert operations.all_sync() == [operations.get_sync(begun.id)]
        assert any_app.diagnose_sync().tier in TIERS

    await asyncio.to_thread(operate)
    any_app.connection().close_inline()
