"""What an app's owner does with its queues, from asynchronous and from synchronous code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypedDict, Unpack

from fairlead.core.instant import span
from fairlead.core.limits import Rate
from fairlead.core.order import Policy
from fairlead.core.queue import QueueSettings
from fairlead.core.retry import Backoff
from fairlead.core.task import Priority
from fairlead.engine.inline import run_inline
from fairlead.engine.purging import PurgeCount
from fairlead.engine.queues import QueueChanges
from fairlead.sdk.connection import Link


class QueueOptions(TypedDict, total=False):
    """What can be said of a queue; None goes back to the settings of all."""

    bound: int | None
    """How many tasks may wait in it; 0 for no bound."""
    order: Policy | None
    """The order of service, such as `Strict()`."""
    priority: str | None
    """The priority of a task that names none."""
    timeout: float | None
    """Seconds that an attempt may take, of a task that does not say so itself."""
    max_retries: int | None
    max_crashes: int | None
    backoff: Backoff | None
    running: int | None
    """How many of its tasks may run at once."""
    rate: str | None
    """How many of its tasks may start per second, minute, hour or day, such as `10/s` or `100/m`."""
    type_running: Mapping[str, int | None] | None
    """How many tasks of a type in it may run at once; types that are not named stay as they are."""
    type_rate: Mapping[str, str | None] | None
    """How many tasks of a type in it may start in a while."""
    key_running: int | None
    """How many tasks of each concurrency key may run at once: one, unless said; 0 for as many as come."""
    key_rate: str | None
    """How many tasks of each concurrency key may start in a while."""


class AppQueues:
    """The queues of an app. A change counts everywhere within about a second."""

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect

    async def all(self) -> dict[str, QueueSettings]:
        """The settings of the queues that have any of their own, by name."""
        return await (await self._connect().engine()).queues.all()

    async def get(self, queue: str) -> QueueSettings:
        """The settings of one queue."""
        return await (await self._connect().engine()).queues.get(queue)

    async def pause(self, queue: str) -> QueueSettings:
        """Have a queue's tasks wait until it is resumed; it still takes tasks, and what runs goes on."""
        return await (await self._connect().engine()).queues.pause(queue)

    async def resume(self, queue: str) -> QueueSettings:
        """Let a paused queue's tasks run again."""
        return await (await self._connect().engine()).queues.resume(queue)

    async def change(self, queue: str, **options: Unpack[QueueOptions]) -> QueueSettings:
        """Change some settings of a queue and leave the others."""
        return await (await self._connect().engine()).queues.change(queue, **_changes(options))

    async def reset(self, queue: str) -> QueueSettings:
        """Go back to the settings of all, but for whether the queue is paused."""
        return await (await self._connect().engine()).queues.reset(queue)

    async def purge(self, queue: str) -> PurgeCount:
        """Remove the tasks that wait in a queue, for good; what runs goes on."""
        return await (await self._connect().engine()).queues.purge(queue)

    async def pause_type(self, task_type: str) -> None:
        """Have the tasks of a type wait, in whatever queue, until it is resumed."""
        await (await self._connect().engine()).queues.pause_type(task_type)

    async def resume_type(self, task_type: str) -> None:
        """Let the tasks of a paused type run again."""
        await (await self._connect().engine()).queues.resume_type(task_type)

    async def paused_types(self) -> list[str]:
        """The task types that are paused, by name."""
        return await (await self._connect().engine()).queues.paused_types()

    def all_sync(self) -> dict[str, QueueSettings]:
        """`all`, from synchronous code."""
        return run_inline(self._connect().inline().queues.all())

    def get_sync(self, queue: str) -> QueueSettings:
        """`get`, from synchronous code."""
        return run_inline(self._connect().inline().queues.get(queue))

    def pause_sync(self, queue: str) -> QueueSettings:
        """`pause`, from synchronous code."""
        return run_inline(self._connect().inline().queues.pause(queue))

    def resume_sync(self, queue: str) -> QueueSettings:
        """`resume`, from synchronous code."""
        return run_inline(self._connect().inline().queues.resume(queue))

    def change_sync(self, queue: str, **options: Unpack[QueueOptions]) -> QueueSettings:
        """`change`, from synchronous code."""
        return run_inline(self._connect().inline().queues.change(queue, **_changes(options)))

    def reset_sync(self, queue: str) -> QueueSettings:
        """`reset`, from synchronous code."""
        return run_inline(self._connect().inline().queues.reset(queue))

    def purge_sync(self, queue: str) -> PurgeCount:
        """`purge`, from synchronous code."""
        return run_inline(self._connect().inline().queues.purge(queue))

    def pause_type_sync(self, task_type: str) -> None:
        """`pause_type`, from synchronous code."""
        run_inline(self._connect().inline().queues.pause_type(task_type))

    def resume_type_sync(self, task_type: str) -> None:
        """`resume_type`, from synchronous code."""
        run_inline(self._connect().inline().queues.resume_type(task_type))

    def paused_types_sync(self) -> list[str]:
        """`paused_types`, from synchronous code."""
        return run_inline(self._connect().inline().queues.paused_types())


def _changes(options: QueueOptions) -> QueueChanges:
    """Options in the engine's terms: enums for words, microseconds for seconds."""
    changes = QueueChanges()
    for name in ("bound", "order", "max_retries", "max_crashes", "backoff", "running", "type_running", "key_running"):
        if name in options:
            changes[name] = options[name]
    if "rate" in options:
        changes["rate"] = _rate(options["rate"])
    if "key_rate" in options:
        changes["key_rate"] = _rate(options["key_rate"])
    if "type_rate" in options:
        rates = options["type_rate"]
        changes["type_rate"] = None if rates is None else {name: _rate(text) for name, text in rates.items()}
    if "priority" in options:
        changes["priority"] = None if options["priority"] is None else Priority.parse(options["priority"])
    if "timeout" in options:
        changes["timeout"] = None if options["timeout"] is None else span(options["timeout"])
    return changes


def _rate(text: str | None) -> Rate | None:
    return None if text is None else Rate.parse(text)
