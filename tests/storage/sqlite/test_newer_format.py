"""While a rollout lasts, the tasks of a newer version cost the sweeps of an older one next to nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.core.health.quarantine import Quarantined, capability
from fairlead.core.instant import HOUR
from fairlead.core.task import State
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import NOW, a_claim, a_task
from fairlead.testing.steps import add, ids
from fairlead.testing.vandalism import newer
from tests.conformance.test_sqlite import FileVandal


@pytest.mark.parametrize("state", [State.SCHEDULED, State.EXECUTING])
async def test_a_sweep_does_not_look_at_what_a_newer_version_has_due(tmp_path: Path, state: State) -> None:
    store, vandal = SqliteStore(tmp_path / "tasks.db"), FileVandal(tmp_path / "tasks.db")
    met: list[Quarantined] = []
    store.quarantine.observer = met.append
    added = State.QUEUED if state is State.EXECUTING else state
    ahead = [a_task(requires=[capability(2)], state=added, ready_at=NOW) for _ in range(3)]
    good = a_task(state=State.SCHEDULED, ready_at=NOW + 1)
    await add(store, *ahead, good)
    if state is State.EXECUTING:
        await store.claim(a_claim(limit=3, capabilities=[capability(2)]))
    for task in ahead:
        await vandal(task.id, "status", newer, tidy=True)
    assert ids(await store.due(NOW + HOUR, 10)) == [good.id]
    assert met == []
    await store.close()
