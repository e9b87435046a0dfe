"""Queues as people change them while everything runs: paused, bounded, ordered, with defaults of their own.

What is said of a queue is one record, and that a task type is paused another. Engines learn of it in `queue_cache`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, Unpack

import msgspec
from msgspec.structs import replace

from fairlead.core.errors import BindingRefused, InvalidSettings, StoreUnavailable
from fairlead.core.events import Purged
from fairlead.core.health.quarantine import Fault
from fairlead.core.identity import TaskId, check_name
from fairlead.core.query.query import EVERYTHING, quoted
from fairlead.core.queues.queue import PurgeCount, QueueOptions, QueueSettings, changed
from fairlead.core.task import WAITING, State, Task
from fairlead.engine.changes import TaskChanges, seen
from fairlead.engine.events.types import EventType, QueueData, QueueEvent
from fairlead.engine.queue_cache import BELL, FORM, KIND, TYPE_KIND
from fairlead.engine.records import Unread
from fairlead.engine.search import Searcher, plan
from fairlead.storage.protocol import Lagging, Sharing
from fairlead.storage.values import Filter, Verdict

_PURGE_BATCH: Final = 1_000
_PURGE_TRIES: Final = 20
"""How often a task that changed meanwhile is looked at again; each time someone else's change succeeded."""


async def purge(task_changes: TaskChanges, queue: str, limit: int | None = None) -> PurgeCount:
    """Remove the tasks that wait in a queue, the oldest first, if there is a limit no more than that.

    Each is removed by a compare-and-set, so one that a worker claims meanwhile runs. What is submitted while this goes
    on stays, so that it comes to an end.
    """
    matching = Filter(states=WAITING, queue=check_name("queue", queue), created_before=task_changes.clock.now() + 1)
    store = task_changes.store
    find = store.find_current if isinstance(store, Lagging) else store.find
    removed = {State.SCHEDULED: 0, State.QUEUED: 0}
    after: TaskId | None = None
    complete = False
    while not complete and (limit is None or sum(removed.values()) < limit):
        size = _PURGE_BATCH if limit is None else min(_PURGE_BATCH, limit - sum(removed.values()))
        tasks = await find(matching, limit=size, newest_first=False, after=after)
        for task in await _remove(task_changes, tasks):
            removed[task.state] += 1
        complete = len(tasks) < size
        after = tasks[-1].id if tasks else after
    await task_changes.finish()
    return PurgeCount(scheduled=removed[State.SCHEDULED], queued=removed[State.QUEUED], complete=complete)


async def _remove(task_changes: TaskChanges, tasks: Sequence[Task]) -> list[Task]:
    """Those of the tasks that were still waiting, and are gone now."""
    gone: list[Task] = []
    for _ in range(_PURGE_TRIES):
        if not tasks:
            break
        now = task_changes.clock.now()
        changes = [task_changes.decide(task, Purged(), now, seen(task)) for task in tasks]
        changed_meanwhile: list[TaskId] = []
        for task, change, verdict in zip(tasks, changes, await task_changes.apply(changes), strict=True):
            if verdict is Verdict.APPLIED:
                task_changes.tell_change(task, change, now)
                gone.append(task)
            elif verdict is Verdict.STALE:
                changed_meanwhile.append(task.id)
        again = await task_changes.store.get(changed_meanwhile) if changed_meanwhile else []
        tasks = [task for task in again if task is not None and task.state.waiting]
    return gone


T = TypeVar("T")

_TRIES: Final = 100
_encode: Final = msgspec.msgpack.Encoder().encode

_UNREADABLE: Final = QueueSettings(paused=True)
"""What holds for a queue whose settings cannot be read, until somebody says what they are."""


class Queues:
    """What people do with the queues of one store."""

    def __init__(self, task_changes: TaskChanges, searcher: Searcher) -> None:
        self._task_changes = task_changes
        self._searcher = searcher
        self._records = task_changes.records
        self._store = task_changes.store
        self._clock = task_changes.clock

    async def all(self) -> dict[str, QueueSettings]:
        """The settings of the queues that have any of their own, by name; one whose own cannot be read is paused."""
        read = await self._records.read(FORM)
        return {each.name: each.value for each in read.kept} | {each.name: _UNREADABLE for each in read.unread}

    async def get(self, queue: str) -> QueueSettings:
        """The settings of one queue; one that nobody has changed has none of its own."""
        return (await self._find(check_name("queue", queue)))[0]

    async def paused_types(self) -> list[str]:
        """The task types that are paused, by name."""
        return [record.name for record in await self._store.scan(TYPE_KIND)]

    async def pause(self, queue: str) -> QueueSettings:
        """Pause a queue: its tasks wait until it is resumed; it still takes tasks, and running ones continue."""
        return await self._change(queue, lambda own: replace(own, paused=True))

    async def resume(self, queue: str) -> QueueSettings:
        """Resume a paused queue: its tasks are claimed again."""
        return await self._change(queue, lambda own: replace(own, paused=False))

    async def change(self, queue: str, **options: Unpack[QueueOptions]) -> QueueSettings:
        """Change some settings of a queue and leave the others; raises InvalidSettings if one makes no sense."""
        said = changed(QueueSettings(), options)
        tenant = said.tenant
        if said.fair is not None and not isinstance(self._store, Sharing):
            raise InvalidSettings(
                f"queue {queue!r} cannot be shared by {said.fair}: its store gives no turns; leave --fair out, or use "
                f"another store"
            )
        if tenant is not None:
            await self._check_unmixed(check_name("queue", queue), tenant)
        return await self._change(queue, lambda own: changed(own, options))

    async def reset(self, queue: str) -> QueueSettings:
        """Remove a queue's own settings, except whether it is paused and which tenant it is bound to."""
        return await self._change(queue, lambda own: QueueSettings(paused=own.paused, tenant=own.tenant))

    async def pause_type(self, task_type: str) -> None:
        """Pause a task type: its tasks wait, in every queue, until it is resumed; running ones continue."""
        check_name("task_type", task_type)
        now = self._clock.now()
        if await self._store.put(TYPE_KIND, task_type, _encode(now), expected=0) is not None:
            await self._changed(EventType.TYPE_PAUSED, QueueData(task_type=task_type))

    async def resume_type(self, task_type: str) -> None:
        """Resume a paused task type: its tasks are claimed again."""
        if await self._store.drop(TYPE_KIND, check_name("task_type", task_type)):
            await self._changed(EventType.TYPE_RESUMED, QueueData(task_type=task_type))

    async def purge(self, queue: str, limit: int | None = None) -> PurgeCount:
        """Remove the tasks that wait in a queue, if there is a limit no more than that; what runs goes on."""
        return await purge(self._task_changes, queue, limit)

    async def _check_unmixed(self, queue: str, tenant: str) -> None:
        """Refuse to bind a queue that holds tasks of others, ended ones too: whoever counts it would count those."""
        others = plan(EVERYTHING, self._clock.now(), Filter(queue=queue)).also(lambda task: task.spec.tenant != tenant)
        async for found in self._searcher.all(others):
            if found.tasks:
                owner = found.tasks[0].spec.tenant
                raise BindingRefused(
                    f"queue {queue!r} cannot be bound to tenant {tenant!r} while it holds tasks of "
                    f"{'no tenant' if owner is None else f'tenant {owner!r}'}; let them end, then "
                    f"`fairlead discard -q 'queue:{queue} -tenant:{quoted(tenant)}'`, or bind another queue"
                )

    async def _change(self, queue: str, change: Callable[[QueueSettings], QueueSettings]) -> QueueSettings:
        check_name("queue", queue)
        for _ in range(_TRIES):
            before, version, readable = await self._find(queue, to_change=True)
            after = change(before)
            if after == before and readable:
                return after
            if after == QueueSettings():
                stored = await self._store.drop(KIND, queue, expected=version)
            else:
                stored = await self._store.put(KIND, queue, FORM.write(after), expected=version) is not None
            if stored:
                await self._changed(_event(before, after), QueueData(queue=queue, tenant=after.tenant))
                return after
        raise StoreUnavailable(f"queue {queue!r} changed {_TRIES} times meanwhile; try again later")

    async def _find(self, queue: str, *, to_change: bool = False) -> tuple[QueueSettings, int, bool]:
        """The settings of a queue, the version of their record, and whether they could be read."""
        found = await self._records.find(FORM, queue)
        if isinstance(found, Unread):
            if to_change and found.fault is Fault.NEWER:
                raise found.error
            return _UNREADABLE, found.version, False
        return (QueueSettings(), 0, True) if found is None else (found.value, found.version, True)

    async def _changed(self, event_type: EventType, data: QueueData) -> None:
        await self._store.put(BELL, BELL, b"")
        self._task_changes.queue_cache.expire()
        self._task_changes.publisher.tell(QueueEvent(event_type, self._clock.now(), data))
        await self._task_changes.finish()


def _event(before: QueueSettings, after: QueueSettings) -> EventType:
    if before.paused == after.paused:
        return EventType.QUEUE_CHANGED
    return EventType.QUEUE_PAUSED if after.paused else EventType.QUEUE_RESUMED
