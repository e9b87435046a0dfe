"""A submitted task, as its submitter holds it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from fairlead.admin.facade import Facade, Patient
from fairlead.app.connection import Link
from fairlead.core.errors import TaskFailed
from fairlead.core.identity import TaskId
from fairlead.core.instant import seconds
from fairlead.core.task import Failure, State, Task
from fairlead.core.validation import Duration, span_of
from fairlead.engine.runtime.inline import run_inline

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
