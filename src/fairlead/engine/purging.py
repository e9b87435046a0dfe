"""Purging: a queue is emptied of what waits in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.events import Purged
from fairlead.core.identity import TaskId, check_name
from fairlead.core.task import WAITING, State, Task
from fairlead.engine.ledger import Ledger, seen
from fairlead.storage.protocol import Lagging
from fairlead.storage.values import Filter, Verdict

_BATCH: Final = 1_000
_TRIES: Final = 20
"""How often a task that changed meanwhile is looked at again; each time someone else's change succeeded."""


class PurgeCount(Struct, frozen=True, kw_only=True):
    """What a purge has removed."""

    scheduled: int = 0
    queued: int = 0
    complete: bool = True
    """Whether all that waited when it began is gone; otherwise it reached its limit, and there may be more."""

    @property
    def total(self) -> int:
        """How many tasks there were."""
        return self.scheduled + self.queued


async def purge(ledger: Ledger, queue: str, limit: int | None = None) -> PurgeCount:
    """Remove the tasks that wait in a queue, the oldest first, if there is a limit no more than that.

    Each is removed by a compare-and-set, so one that a worker claims meanwhile runs. What is submitted while this goes
    on stays, so that it comes to an end.
    """
    matching = Filter(states=WAITING, queue=check_name("queue", queue), created_before=ledger.clock.now() + 1)
    store = ledger.store
    find = store.find_current if isinstance(store, Lagging) else store.find
    removed = {State.SCHEDULED: 0, State.QUEUED: 0}
    after: TaskId | None = None
    complete = False
    while not complete and (limit is None or sum(removed.values()) < limit):
        size = _BATCH if limit is None else min(_BATCH, limit - sum(removed.values()))
        tasks = await find(matching, limit=size, newest_first=False, after=after)
        for task in await _remove(ledger, tasks):
            removed[task.state] += 1
        complete = len(tasks) < size
        after = tasks[-1].id if tasks else after
    await ledger.finish()
    return PurgeCount(scheduled=removed[State.SCHEDULED], queued=removed[State.QUEUED], complete=complete)


async def _remove(ledger: Ledger, tasks: Sequence[Task]) -> list[Task]:
    """Those of the tasks that were still waiting, and are gone now."""
    gone: list[Task] = []
    for _ in range(_TRIES):
        if not tasks:
            break
        now = ledger.clock.now()
        changes = [ledger.decide(task, Purged(), now, seen(task)) for task in tasks]
        changed_meanwhile: list[TaskId] = []
        for task, change, verdict in zip(tasks, changes, await ledger.apply(changes), strict=True):
            if verdict is Verdict.APPLIED:
                ledger.tell_change(task, change, now)
                gone.append(task)
            elif verdict is Verdict.STALE:
                changed_meanwhile.append(task.id)
        again = await ledger.store.get(changed_meanwhile) if changed_meanwhile else []
        tasks = [task for task in again if task is not None and task.state.waiting]
    return gone
