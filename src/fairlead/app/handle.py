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
from fairlead.core.errors import TaskFailed
from fairlead.core.identity import TaskId
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
    """One submitted task."""

    def __init__(
        self, task: Task, connection: Link, decode: Callable[[bytes | None], Any], *, existing: bool = False
    ) -> None:
        self._task = task
        self._connection = connection
        self._decode = decode
        self.existing = existing
        """Whether the idempotency key named a task that was there before."""

    def __repr__(self) -> str:
        return f"<task {self.id} {self._task.spec.type} {self.status}>"

    @property
    def id(self) -> TaskId:
        return self._task.id

    @property
    def status(self) -> State:
        """The state when it was last looked at; `refresh` looks again."""
        return self._task.state

    @property
    def failure(self) -> Failure | None:
        """What went wrong in the last attempt, when it was last looked at."""
        return self._task.status.failure

    @property
    def snapshot(self) -> Task:
        """The whole task when it was last looked at."""
        return self._task

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
        patience = None if timeout is None else seconds(span_of("timeout", timeout))
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
        patience = None if timeout is None else seconds(span_of("timeout", timeout))
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
        status = self._task.status
        if status.state is not State.COMPLETED:
            cause = f"{status.failure.type}: {status.failure.message}" if status.failure else ""
            raise TaskFailed(self.id, status.state, status.reason, cause)
        result: R = self._decode(status.result)
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
    """A handle whose result is of the type that its function says, if the app has that function."""
    handler = handlers.get(task.spec.type)
    return TaskHandle(task, link, _decode if handler is None else handler.signature.decode_result)


def _decode(result: bytes | None) -> Any:
    return None if result is None else msgspec.json.decode(result)
