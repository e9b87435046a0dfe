"""What stands alike is claimed alike, and nothing else is."""

from __future__ import annotations

from fairlead.core.instant import SECOND
from fairlead.core.task import Task
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.storage.steps import claimed
from fairlead.testing.builders import a_claim, a_task
from fairlead.testing.steps import add, read


async def test_each_of_the_tasks_of_one_claim_stands_as_it_would_if_claimed_alone(store: SqliteStore) -> None:
    # Long leases end with the claim, short ones with the attempt's time.
    tasks = [a_task(timeout=timeout) for timeout in (600 * SECOND, SECOND, 600 * SECOND, SECOND, 2 * SECOND)]
    await add(store, *tasks)
    claim = a_claim(limit=len(tasks))
    expected = [Task(task.spec, claimed(task.status, claim)) for task in tasks]
    assert expected == await store.claim(claim)
    assert expected == [await read(store, task) for task in tasks]
    assert len({task.status.alarm for task in expected}) == 3
