"""One attempt: a task's handler is run to its end, in a thread or not, and its end becomes an outcome.

Threads for `def` handlers are daemon threads of our own rather than an executor: a handler that never returns must not
keep the process from leaving, and a thread is started only when all others are busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import enum
import math
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from os import getpid
from types import CoroutineType
from typing import Any, Final, assert_never

from msgspec import Struct

from fairlead.core.errors import InvalidTask
from fairlead.core.events import CancelConfirmed, Completed, Crashed, HandedBack, Outcome, TimedOut
from fairlead.core.instant import SECOND
from fairlead.core.task import Failure, Progress, Task
from fairlead.worker.context import Portal, TaskContext, enter
from fairlead.worker.handlers import Handler, HandlerPlace
from fairlead.worker.isolation import fork_guard
from fairlead.worker.isolation.fork_guard import Birthplace
from fairlead.worker.isolation.pool import Cells, ProcessDied
from fairlead.worker.outcome import InvalidArguments, called, completed, failed, invalid_arguments

# Named here for every attempt to come, as in `fairlead.core.task`.
_LOOP: Final = HandlerPlace.LOOP
_PROCESS: Final = HandlerPlace.PROCESS

PATIENCE: Final = 2.0
"""How long, in seconds, a handler that is stopped may take to end before it is left behind."""


class Stop(enum.Enum):
    """Why an attempt is stopped before its handler's end."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    LEASE_LOST = "lease lost"
    HAND_BACK = "hand back"


class Attempt:
    """One run of one task. `run` is called once; `stop` may be called at any time, from the event loop."""

    # How every attempt stands at first: said of the class, it need not be said of each. What is set of every attempt in
    # the end is named when it is made all the same: what Python first sees later takes each of them a dictionary.
    life: asyncio.Task[None] | None
    """What `run` runs in, and `stop` may cancel; set before that begins."""
    deadline = math.inf
    """When the attempt is to be stopped, on the monotonic clock; not yet while its process gets ready."""
    error: BaseException | None
    """What the handler raised, if that is known here and how it ended."""
    is_left_behind = False
    """Whether its outcome was said already, and nothing is to be said when its handler ends after all."""
    _in_thread = False
    _stop: Stop | None = None
    _stopped_at = math.inf
    _running: asyncio.Task[None] | None

    def __init__(
        self,
        task: Task,
        handler: Handler,
        threads: Threads,
        cells: Cells,
        on_progress: Callable[[Task, Progress], None],
        on_free: Callable[[], None],
    ) -> None:
        """`on_free` is called once, when what the attempt runs on is free again."""
        self.task = task
        self._context = TaskContext(task, on_progress, handler, failed)
        self._handler = handler
        self._threads = threads
        self._cells = cells
        self._on_free = on_free
        self.life = self.error = self._running = None
        if handler.place is not _PROCESS:
            self.deadline = time.monotonic() + task.status.timeout / SECOND

    def equip(self, state: object, portal: Portal) -> None:
        """Give it what the app's lifespan has yielded, and its thread a way to the event loop."""
        self._context.equip(state, portal)

    async def run(self) -> Outcome | None:
        """How the attempt ended; None when its lease is lost, so that there is nothing to say. Raises nothing."""
        self._running = self.life
        forks = fork_guard.forks
        outcome: Outcome | None
        try:
            enter(self._context)
            if self._stop is None:
                steps = self._steps()
                # Most attempts have one step, and a look behind that is all that it takes to be sure of the process.
                try:
                    waits_for = steps.send(None)
                except StopIteration as end:
                    ended = end.value
                else:
                    ended = await fork_guard.rest(steps, waits_for, forks)
                outcome = completed(self._handler, ended) if self._handler.place is _LOOP else ended
            else:
                outcome = self._outcome
        except BaseException as error:
            try:
                outcome = self._told(error)
            except BaseException:
                # A handler may have this thread traced by what raises. It does so once: then Python ends the trace.
                outcome = failed(self._handler, error)
        finally:
            if forks != fork_guard.forks or getpid() != fork_guard.process:
                fork_guard.leave()
            self._running = None
            self._context.cancel_asked = True
            if not self._in_thread:
                self._on_free()
        if self._stop is None or (isinstance(outcome, Completed) and self._stop is not Stop.CANCEL):
            return outcome
        # It was stopped, and did not take it well, or too late: that is no failure of the task's own.
        return self._outcome

    def stop(self, why: Stop) -> None:
        """End the attempt: cancel a coroutine, kill a process, tell a thread.

        A thread cannot be ended. One that should cancel is told and waited for, until there is a better reason to stop;
        otherwise it is left behind, and its slot is free when it returns.
        """
        if self._stop is not None and (self._stop is not Stop.CANCEL or why is Stop.CANCEL):
            return
        self._stop = why
        self._context.stopped(self._outcome)
        if why is not Stop.CANCEL:
            self._stopped_at = time.monotonic()
        if self._running is not None and not (self._in_thread and why is Stop.CANCEL):
            self._running.cancel()

    def heeds_nothing(self, now: float) -> bool:
        """Whether its handler was stopped for good and has not ended within the patience for that."""
        return now - self._stopped_at > PATIENCE

    def leave_behind(self) -> Outcome | None:
        """What to say of an attempt whose handler heeds no stop; its slot is free when that ends."""
        self.is_left_behind = True
        return self._outcome

    def _steps(self) -> Coroutine[Any, Any, Any]:
        """What the attempt does: the handler itself if it runs on the event loop, else what has it run elsewhere."""
        if self._handler.place is not _LOOP:
            return self._run_elsewhere()
        steps = self._handler.run(**self._arguments())
        return steps if type(steps) is CoroutineType else _awaited(steps)

    async def _run_elsewhere(self) -> Outcome:
        """Run a handler in a thread or a process."""
        handler = self._handler
        if handler.place is _PROCESS:
            ended = await self._cells.run(handler, self.task, self._context.progress, self._begin)
            self._context.reported = ended.reported
            return ended.outcome
        arguments, context = self._arguments(), contextvars.copy_context()
        ending = self._threads.run(lambda: called(handler, arguments, self._keep), context, self._on_free)
        self._in_thread = True
        end = await ending
        if isinstance(end, Raised):
            self.error = end.error
            return failed(handler, end.error)
        outcome: Outcome = end.result
        return outcome

    def _told(self, error: BaseException) -> Outcome:
        if isinstance(error, asyncio.CancelledError):
            self._uncancel()
        elif isinstance(error, InvalidArguments):
            return invalid_arguments(error.reason)
        elif isinstance(error, ProcessDied):
            return Crashed(Failure(type=type(error).__name__, message=str(error)))
        self.error = error
        return failed(self._handler, error)

    def _keep(self, error: BaseException) -> None:
        self.error = error

    @property
    def reported(self) -> bool:
        """Whether a middleware has reported the error of the attempt."""
        return self._context.reported is True

    def _arguments(self) -> dict[str, Any]:
        """What to call the handler with; raises InvalidArguments, which no handler does."""
        try:
            return self._handler.signature.decode(self.task.spec.parameters)
        except InvalidTask as error:
            raise InvalidArguments(error) from None

    def _begin(self) -> None:
        """The process of the handler is ready: from now on its time counts."""
        self.deadline = time.monotonic() + self.task.status.timeout / SECOND

    @property
    def _outcome(self) -> Outcome | None:
        """What is to be said of an attempt that was stopped."""
        match self._stop:
            case Stop.CANCEL:
                return CancelConfirmed()
            case Stop.TIMEOUT:
                return TimedOut()
            case Stop.HAND_BACK:
                return HandedBack()
            case Stop.LEASE_LOST | None:
                return None
            case _:
                assert_never(self._stop)

    def _uncancel(self) -> None:
        """Let this task await again: the cancellation was ours, and it has done its work."""
        if self._running is not None:
            while self._running.uncancel():
                pass


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    """A coroutine of what is none, though its function says so."""
    return await awaitable


class ThreadResult(Struct, frozen=True):
    """A function returned."""

    result: Any


class Raised(Struct, frozen=True):
    """A function raised. Said as a value: a future refuses StopIteration, and SystemExit would take the loop down."""

    error: BaseException


class Threads:
    """Runs functions in threads, as many at once as are asked for."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads = 0

    def run(
        self, function: Callable[[], Any], context: contextvars.Context, on_return: Callable[[], None]
    ) -> asyncio.Future[ThreadResult | Raised]:
        """The future of how a function ends.

        `on_return` is called in the loop when the thread is free again: after the future's end if that was cancelled.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ThreadResult | Raised] = loop.create_future()
        birthplace = Birthplace()

        def work() -> None:
            end: ThreadResult | Raised
            try:
                end = ThreadResult(context.run(function))
            except BaseException as error:
                end = Raised(error)
            birthplace.stay()
            # A loop that was closed meanwhile has no one left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish, end)

        def finish(end: ThreadResult | Raised) -> None:
            on_return()
            if not future.done():
                future.set_result(end)

        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                # Before the work is put in line: if no thread can be started, nobody shall find the work there later.
                name = f"fairlead-handler-{self._threads + 1}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
                self._threads += 1
        self._work.put(work)
        return future

    def close(self) -> None:
        """Let idle threads go, and busy ones when they return."""
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        while work := self._work.get():
            work()
            with self._lock:
                self._idle += 1
