"""Batches: tasks that begin alike are packed once for all of them, and come back as they were; so do all others."""

from __future__ import annotations

import pytest

from fairlead.core.task import Priority, State, Task
from fairlead.storage.postgres import binary_arrays
from fairlead.storage.postgres.store import PostgresStore
from fairlead.testing.builders import NOW, a_task, some_tasks
from fairlead.testing.steps import add

ALIKE = some_tasks(5)
MIXED = [
    a_task(priority=Priority.CRITICAL, parameters=b'{"a":1}'),
    a_task(queue="mail", type="send", requires=["gpu"]),
    a_task(state=State.SCHEDULED, ready_at=NOW + 5, alarm=NOW + 5),
    a_task(queue="mail", type="send", requires=["gpu"], priority=Priority.LOW),
    a_task(priority=Priority.CRITICAL, timeout=7),
]


@pytest.mark.parametrize("tasks", [ALIKE, MIXED, [*ALIKE, *MIXED]], ids=["alike", "mixed", "some alike"])
async def test_a_batch_comes_back_as_it_was(store: PostgresStore, tasks: list[Task]) -> None:
    await add(store, *tasks)
    assert await store.get([task.id for task in tasks]) == tasks


@pytest.mark.parametrize("values", [[b"same"] * 3, [b"same", b"other", b"same"], [None, None], [None, b"", None], []])
def test_values_are_packed_one_after_the_other(values: list[bytes | None]) -> None:
    items = b"".join(binary_arrays.byteas([value])[20:] for value in values)
    assert binary_arrays.byteas(values)[20:] == items
