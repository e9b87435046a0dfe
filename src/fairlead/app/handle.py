"""A submitted task, as its submitter holds it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from fairlead.admin.facade import Facade, Patient
from fairlead.app.connection import Link
from fairlead.app.task_info import TaskInfo, info_of
from fairlead.core.errors import InvalidTask, TaskFailed, TaskNotFound
from fairlead.core.identity import TaskId, parse_task_id
from fairlead.core.instant import seconds
from fairlead.core.task import Failure, State, Task
from fairlead.core.validation import Duration, span_of
from fairlead.engine.runtime.inline import run_inline
from fairlead.worker.context import current_task
from fairlead.worker.handlers import Handlers

if TYPE_CHECKING:
    from fairlead.core.explain.explanation import Explanation


R = TypeVar("R")

_FIRST_LOOK: Final = 0.002
_LAST_LOOK: Final = 0.25


class TaskHandle(Generic[R]):
    """One task: as its submitter holds it, or made of its id by `handle`."""

    def __init__(
        self, task: Task | TaskId, connection: Link, result_of: Callable[[Task], Any], *, existing: bool = False
    ) -> None:
        # Of one that is known by its id alone there is nothing to tell yet.
        self._task = task
        self._connection = connection
        self._result_of = result_of
        self.existing = existing
        """Whether the idempotency key named a task that was there before."""

    def __repr__(self) -> str:
        if isinstance(self._task, Task):
            return f"<task {self.id} {self._task.spec.type} {self.status}>"
        return f"<task {self.id}>"

    @property
    def id(self) -> TaskId:
        """The task's id: text that leads back to it, from anywhere, by `handle`."""
        return self._task.id if isinstance(self._task, Task) else self._task

    @property
    def status(self) -> State:
        """The state when it was last looked at; `refresh` looks again."""
        return self.snapshot.state

    @property
    def failure(self) -> Failure | None:
        """What went wrong in the last attempt, when it was last looked at."""
        return self.snapshot.status.failure

    @property
    def snapshot(self) -> Task:
        """The whole task when it was last looked at; raises LookupError if it has not been yet."""
        if not isinstance(self._task, Task):
            raise LookupError(f"task {self._task} has not been looked at yet; call info() or refresh() first")
        return self._task

    async def info(self) -> TaskInfo[R]:
        """How the task stands now, decoded; raises TaskNotFound if there is none."""
        return info_of((await self.refresh()).snapshot, self._result_of)

    def info_sync(self) -> TaskInfo[R]:
        """`info`, from synchronous code."""
        return info_of(self.refresh_sync().snapshot, self._result_of)

    async def refresh(self) -> TaskHandle[R]:
        """Look again."""
        return await self._refresh(await self._connection.engine())

    def refresh_sync(self) -> TaskHandle[R]:
        """`refresh`, from synchronous code."""
        return run_inline(self._refresh(self._connection.inline()))

    async def _refresh(self, engine: Facade) -> TaskHandle[R]:
        self._task = await engine.get(self.id)
        return self

    async def result(self, timeout: Duration | None = None) -> R:
        """What the handler returned; waits until the task has ended.

        Raises TaskFailed if it ended without a result, TimeoutError if it has not ended in that time: seconds, or a
        timedelta.
        """
        patience = self._connection.patience if timeout is None else seconds(span_of("timeout", timeout))
        deadline = _deadline(patience)
        for pause in _pauses(self.id, patience):
            # Meanwhile the app may be closed, and so opened again.
            self._task = await _look(await self._connection.engine(), self.id, deadline)
            if self.status.ended:
                break
            await asyncio.sleep(pause)
        return self.result_seen()

    def result_sync(self, timeout: Duration | None = None) -> R:
        """`result`, from synchronous code."""
        patience = self._connection.patience if timeout is None else seconds(span_of("timeout", timeout))
        deadline = _deadline(patience)
        for pause in _pauses(self.id, patience):
            self._task = run_inline(_look(self._connection.inline(), self.id, deadline))
            if self.status.ended:
                break
            time.sleep(pause)
        return self.result_seen()

    async def explain(self) -> Explanation:
        """Why the task waits, who could take it and when, or why it ran when it ran."""
        return await (await self._connection.engine()).explain(self.id)

    def explain_sync(self) -> Explanation:
        """`explain`, from synchronous code."""
        return run_inline(self._connection.inline().explain(self.id))

    async def cancel(self) -> State:
        """Cancel the task if it waits; ask its worker to stop it if it runs."""
        return await self._cancel(await self._connection.engine())

    def cancel_sync(self) -> State:
        """`cancel`, from synchronous code."""
        return run_inline(self._cancel(self._connection.inline()))

    async def _cancel(self, engine: Facade) -> State:
        self._task = await engine.cancel(self.id)
        return self.status

    def result_seen(self) -> R:
        """What the handler had returned when the task was last looked at; raises TaskFailed if it had not completed."""
        status = self.snapshot.status
        if status.state is not State.COMPLETED:
            cause = f"{status.failure.type}: {status.failure.message}" if status.failure else ""
            raise TaskFailed(self.id, status.state, status.reason, cause)
        result: R = self._result_of(self.snapshot)
        return result


async def _look(engine: Facade, task_id: TaskId, deadline: float) -> Task:
    """The task as it stands; a server is asked to wait for its end, as each look is a request."""
    if isinstance(engine, Patient):
        return await engine.get_ended(task_id, deadline - time.monotonic())
    return await engine.get(task_id)


def _deadline(timeout: float | None) -> float:
    return float("inf") if timeout is None else time.monotonic() + timeout


def _pauses(task_id: TaskId, timeout: float | None) -> Iterator[float]:
    """How long to wait between looks: briefly at first, then longer; raises TimeoutError when the time is up."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = _FIRST_LOOK
    while True:
        left = pause if deadline is None else deadline - time.monotonic()
        yield max(0.0, min(pause * random.uniform(0.75, 1.25), left))  # noqa: S311 - spreads looks, guards nothing
        if left <= 0:
            raise TimeoutError(f"task {task_id} has not ended after {timeout:g} s; it is still waiting or running")
        pause = min(pause * 1.5, _LAST_LOOK)


_AT_ONCE: Final = 32
"""How many tasks are asked for at the same time: each may be a request."""


async def parents_of(link: Link, handlers: Handlers) -> list[TaskHandle[Any]]:
    """The tasks that the current one waited for, in the order they were named."""
    engine, named = await link.engine(), current_task().after
    tasks: list[Task] = []
    for first in range(0, len(named), _AT_ONCE):
        tasks += await asyncio.gather(*(engine.get(task_id) for task_id in named[first : first + _AT_ONCE]))
    return [_handle(task, link, handlers) for task in tasks]


def parents_of_sync(link: Link, handlers: Handlers) -> list[TaskHandle[Any]]:
    """`parents_of`, from synchronous code."""
    tasks = run_inline(_each(link.inline(), current_task().after))
    return [_handle(task, link, handlers) for task in tasks]


async def _each(engine: Facade, ids: Sequence[TaskId]) -> list[Task]:
    return [await engine.get(task_id) for task_id in ids]


def _handle(task: Task, link: Link, handlers: Handlers) -> TaskHandle[Any]:
    return TaskHandle(task, link, Results(handlers))


class Results:
    """The results of tasks, as the functions of an app say, or else as plain JSON."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    def __call__(self, task: Task) -> Any:
        handler, result = self._handlers.get(task.spec.type), task.status.result
        if handler is not None:
            return handler.signature.decode_result(result)
        return None if result is None else msgspec.json.decode(result)


def known_id(task_id: str) -> TaskId:
    """The id of a task that is looked up; raises TaskNotFound for a text that no task can have."""
    try:
        return parse_task_id(task_id)
    except InvalidTask:
        if not isinstance(task_id, str):
            raise
        raise TaskNotFound(task_id) from None
