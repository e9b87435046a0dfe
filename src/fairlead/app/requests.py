"""What an app asks of its engine in words of its own: text for ids and queries, seconds for spans, options by name.

Written once, over any engine. The generated `fairlead.app.admin` has each request for asynchronous and for synchronous
code, beside what it passes to the engine as it is.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypedDict, Unpack

import msgspec

from fairlead.admin.facade import Facade, OperationFacade, gather
from fairlead.app.connection import EngineRequests, Sleep
from fairlead.app.cron import ScheduleOptions, schedule_of, submission_of
from fairlead.app.handle import TaskHandle, known_id
from fairlead.app.task_info import moment
from fairlead.app.task_type import Call
from fairlead.core.dead_letters import Groups
from fairlead.core.errors import InvalidTask
from fairlead.core.health.autoscale import Scaling
from fairlead.core.identity import parse_task_id
from fairlead.core.operation import Action, NewOperation, Operation, Preview
from fairlead.core.query.parser import parse_query
from fairlead.core.query.query import Query, dead_letters_of
from fairlead.core.queues.queue import PurgeCount
from fairlead.core.schedule import ScheduleEntry
from fairlead.core.task import Priority, PriorityWord, Task
from fairlead.core.validation import Duration, check_count, check_text, instant_of, member_of, span_of
from fairlead.engine.search import Found

_GLANCE: Final = 0.1
"""How long to wait before looking again at what others do, in seconds."""
_MOST_LISTED: Final = 1_000_000
"""How many tasks one call lists at most; there are further pages."""


class TaskRequests(EngineRequests):
    """What is asked of tasks."""

    async def get(self, task_id: str) -> Task:
        """The task with this id."""
        return await self._engine.get(known_id(task_id))

    async def search(
        self, query: str = "", *, limit: int = 100, after: str | None = None, newest_first: bool = True
    ) -> Found:
        """A page of the tasks that match a query: `search("state:failed queue:emails created:>-1h")`.

        The cursor of the answer, given as `after`, leads to the next page; it is None when there is none.
        """
        return await _page(self._engine, parse_query(query), limit, after, newest_first)

    async def cancel(self, task_id: str) -> Task:
        """Cancel a task at once if it waits; ask its worker to stop it if it runs."""
        return await self._engine.cancel(known_id(task_id))

    async def replay(self, task_id: str, *, reset_retries: bool = True, priority: PriorityWord | None = None) -> Task:
        """Queue a dead letter, or a failed or cancelled task, again."""
        wanted = None if priority is None else Priority.parse(priority)
        return await self._engine.replay(known_id(task_id), reset_retries=reset_retries, priority=wanted)

    async def discard(self, task_id: str) -> Task:
        """Remove an ended task for good; the answer is how it stood."""
        return await self._engine.discard(known_id(task_id))


class DeadLetterRequests(EngineRequests):
    """What is asked of dead letters."""

    async def search(
        self, query: str = "", *, limit: int = 100, after: str | None = None, newest_first: bool = True
    ) -> Found:
        """A page of the dead letters that match a query; its cursor, given as `after`, leads to the next."""
        return await _page(self._engine, dead_letters_of(parse_query(query)), limit, after, newest_first)

    async def groups(self, query: str = "") -> Groups:
        """Count dead letters by type and by error; errors that differ only in ids, numbers and the like are one."""
        return await self._engine.dead_letters.groups(parse_query(query))


class QueueRequests(EngineRequests):
    """What is asked of queues."""

    async def purge(self, queue: str) -> PurgeCount:
        """Delete the waiting tasks of a queue for good; running tasks continue."""
        return await self._engine.queues.purge(queue)


class WorkerRequests(EngineRequests):
    """What is asked of workers."""

    async def autoscale(
        self, queue: str | None = None, *, within: Duration = 60.0, capacity: int | None = None
    ) -> Scaling:
        """The backlog of a queue, or of all, and how many workers would finish it within this time.

        `within` is seconds, or a timedelta.
        """
        return await self._engine.autoscale(queue, within=span_of("within", within), capacity=capacity)


class ScheduleRequests(EngineRequests):
    """What is asked of schedules."""

    async def add(
        self, name: str, cron: str, call: Call[Any], *, replace: bool = False, **options: Unpack[ScheduleOptions]
    ) -> ScheduleEntry:
        """Add a schedule, which submits a call at set times: `add("nightly", "0 3 * * *", report.call("long"))`."""
        schedule, schedules = schedule_of(name, cron, submission_of(call), options), self._engine.schedules
        return (await schedules.put(schedule)).entry if replace else await schedules.add(schedule)

    async def run_now(self, name: str) -> TaskHandle[Any]:
        """Submit a schedule's task at once; its fire times stay as they are."""
        return TaskHandle(await self._engine.schedules.run_now(name), self._link, _decoded)

    async def preview(self, name: str, count: int = 10) -> list[datetime]:
        """The next fire times of a schedule, in UTC."""
        instants = await self._engine.schedules.preview(name, count)
        return [moment(at) for at in instants]


class OperationOptions(TypedDict, total=False):
    """How an action on many tasks is done."""

    as_of: datetime
    """Tasks are meant as they stood at this moment, such as that of a preview; must have a time zone."""
    expected: int
    """Do nothing unless it is exactly so many tasks."""
    rate: float
    """How many tasks a second, at most."""
    canary: int
    """Do so many, then wait to be resumed."""
    priority: PriorityWord
    """Of a replay: queue them with this priority instead of their own."""
    reset_retries: bool
    """Of a replay: give them all their retries again, which is the default."""
    who: str
    """Who does it, for the record; user and host if not said."""


class OperationRequests(EngineRequests):
    """What is asked of operations."""

    async def preview(self, action: str, query: str, **options: Unpack[OperationOptions]) -> Preview:
        """What `start` would act on, and how many, without doing anything: a dry run."""
        return await self._engine.operations.preview(_new_operation(action, query, options))

    async def start(self, action: str, query: str, **options: Unpack[OperationOptions]) -> Operation:
        """Begin to `replay`, `discard` or `cancel` all that match a query: `start("replay", "error:Boom", rate=50)`."""
        return await self._engine.operations.start(_new_operation(action, query, options))

    async def finish(self, operation_id: str, told: Callable[[Operation], object] | None = None) -> Operation:
        """Work on an operation, or watch who does, until it is done, paused or cancelled; calls `told` at each step."""
        operation = await self._engine.operations.get(operation_id)
        return await finish(self._engine.operations, operation, told, self._sleep)


async def finish(
    operations: OperationFacade, operation: Operation, told: Callable[[Operation], object] | None, sleep: Sleep
) -> Operation:
    """Work on an operation, or watch who does, until it stops; `told` is called at each step."""
    while operation.stage.active:
        before, operation = operation, await operations.step(operation.id)
        if told is not None:
            told(operation)
        if _stands_still(before, operation):
            await sleep(_GLANCE)
    return operation


def _stands_still(before: Operation, after: Operation) -> bool:
    """Whether a step found nothing to do: someone else works on it, or its rate has it wait."""
    return (after.done, after.cursor) == (before.done, before.cursor) and after.stage.active


def _new_operation(action: str, query: str, options: OperationOptions) -> NewOperation:
    """What these options ask for, in the engine's terms."""
    unknown = options.keys() - OperationOptions.__annotations__.keys()
    if unknown:
        known = ", ".join(sorted(OperationOptions.__annotations__))
        raise InvalidTask(min(unknown), f"option {min(unknown)!r} of an operation is unknown; the options are {known}")
    as_of, priority = options.get("as_of"), options.get("priority")
    who = options.get("who")
    return NewOperation(
        action=member_of("action", action, Action),
        query=parse_query(query),
        as_of=None if as_of is None else instant_of("as_of", as_of),
        expected=options.get("expected"),
        rate=options.get("rate"),
        canary=options.get("canary"),
        priority=None if priority is None else Priority.parse(priority),
        reset_retries=options.get("reset_retries", True),
        who=whoami() if who is None else check_text("who", who),
    )


def whoami() -> str:
    """Who runs this process, and where."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):
        return socket.gethostname()


async def _page(engine: Facade, query: Query, limit: int, after: str | None, newest_first: bool) -> Found:
    check_count("limit", limit, 1, _MOST_LISTED)
    place = None if after is None else parse_task_id(after)
    return await gather(engine, query, limit=limit, after=place, newest_first=newest_first)


def _decoded(task: Task) -> Any:
    result = task.status.result
    return None if result is None else msgspec.json.decode(result)
