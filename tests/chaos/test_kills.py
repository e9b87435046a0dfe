"""A writing process killed at any moment loses nothing that was acknowledged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fairlead.core.task import State, Task
from fairlead.testing.reference import expected_standing, standing
from fairlead.testing.steps import contents, opened
from tests.chaos.children import Child
from tests.chaos.ledger import length, read_ledger
from tests.storage.sqlite.surveying import survey

_MOST_LINES = 1_500


@pytest.mark.slow
async def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(tmp_path: Path) -> None:
    await kill_again_and_again(tmp_path, times=10)


@pytest.mark.soak
async def test_nothing_acknowledged_is_lost_in_many_kills(tmp_path: Path) -> None:
    await kill_again_and_again(tmp_path, times=300)


async def kill_again_and_again(folder: Path, times: int) -> None:
    """Kill one writer after the other on one file: some while they open it, most while they write."""
    path, chance = folder / "tasks.db", random.Random(times)
    promised: dict[str, State] = {}
    for number in range(times):
        ledger = folder / f"ledger-{number}"
        lines = 0 if number % 5 == 0 else chance.randrange(1, _MOST_LINES)
        with Child("tests.chaos.writer", f"sqlite:///{path}", ledger) as writer:
            writer.wait_until(lambda ledger=ledger, lines=lines: length(ledger) >= lines)  # type: ignore[misc]
            writer.kill()
        promised |= {task_id: State.QUEUED for (task_id,) in read_ledger(ledger, "submitted")}
        promised |= {task_id: State.EXECUTING for task_id, _ in read_ledger(ledger, "claimed")}
        promised |= {task_id: State.COMPLETED for task_id, _ in read_ledger(ledger, "settled")}
        await hold_to(path, promised)
    print(f"{len(promised)} acknowledged tasks, {times} kills")


async def hold_to(path: Path, promised: dict[str, State]) -> None:
    async with opened(f"sqlite:///{path}") as store:
        tasks = await contents(store)
        assert standing(await store.tally()) == expected_standing(tasks)
    survey(path)
    by_id: dict[str, Task] = {task.id: task for task in tasks}
    lost = promised.keys() - by_id.keys()
    assert not lost
    for task_id, state in promised.items():
        # The writer may have been killed after a further step took effect and before it could write it down.
        assert _STEPS.index(by_id[task_id].state) >= _STEPS.index(state)
        if state is State.COMPLETED:
            assert by_id[task_id].status.result == task_id.encode()


_STEPS = (State.QUEUED, State.EXECUTING, State.COMPLETED)
