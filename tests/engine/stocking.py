"""A store with tasks that have ended badly, put there without running them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from fairlead.core.task import Failure, State, Task
from fairlead.engine.runtime.clock import ManualClock
from fairlead.storage.protocol import Store
from fairlead.testing.builders import a_task

START = ManualClock().now()
"""The moment at which a manual clock stands."""


def a_dead_letter(number: int = 0, **how: Any) -> Task:
    """A dead letter whose error names a number."""
    failure = how.pop("failure", Failure(type="KeyError", message=f"user {number} is unknown"))
    tenant = how.pop("tenant", None)
    ended_at = how.pop("ended_at", START - 1)
    task = a_task(**{"state": State.DEAD_LETTER, "type": "send_mail", **how})
    spec = replace(task.spec, created_at=START - 10, parameters=b'{"user_id":%d}' % number, tenant=tenant)
    return Task(spec, replace(task.status, failure=failure, ended_at=ended_at, retries=3, attempts=4))


async def stock(store: Store, tasks: Iterable[Task]) -> Sequence[Task]:
    """Store tasks as they are."""
    added = list(tasks)
    for first in range(0, len(added), 1_000):
        await store.add(added[first : first + 1_000], now=START, bounds={})
    return added
