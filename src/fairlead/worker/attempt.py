"""One attempt: a task's handler is run to its end, and its end becomes an outcome."""

from __future__ import annotations

import asyncio
import contextvars
import enum
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Final, assert_never

import msgspec

from fairlead.core.errors import InvalidTask, Retry
from fairlead.core.events import CancelConfirmed, Completed, Crashed, Failed, HandedBack, Outcome, TimedOut
from fairlead.core.instant import SECOND, span
from fairlead.core.retry import error_name, error_names
from fairlead.core.task import Failure, Progress, Task
from fairlead.worker.context import TaskContext, enter
from fairlead.worker.handlers import Handler, Place
from fairlead.worker.isolation import Cells, HandlerRaised, ProcessDied
from fairlead.worker.threads import Raised, Threads

# Named here for every attempt to come, as in `fairlead.core.task`.
_LOOP: Final = Place.LOOP
_PROCESS: Final = Place.PROCESS


class Stop(enum.Enum):
    """Why an attempt is stopped before its handler's end."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    LEASE_LOST = "lease lost"
    HAND_BACK = "hand back"


class Attempt:
    """One run of one task. `run` is called once; `stop` may be called at any time, from the event loop."""

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
        self.life: asyncio.Task[None] | None = None
        """What `run` runs in, and `stop` may cancel; set before that begins."""
        self._context = TaskContext(task, on_progress)
        self._handler = handler
        self._threads = threads
        self._cells = cells
        self._on_free = on_free
        self._in_thread = False
        self.deadline = time.monotonic() + task.status.timeout / SECOND
        """When the attempt is to be stopped, on the monotonic clock."""
        self._stop: Stop | None = None
        self._running: asyncio.Task[None] | None = None

    async def run(self) -> Outcome | None:
        """How the attempt ended; None when its lease is lost, so that there is nothing to say."""
        self._running = self.life
        enter(self._context)
        try:
            if self._stop is not None:
                return self._stopped()
            handler = self._handler
            if handler.place is _LOOP:
                returned = await handler.function(**handler.signature.decode(self.task.spec.parameters))
                result = encode_result(handler, returned)
            else:
                result = await self._call_elsewhere(handler)
            return CancelConfirmed() if self._should_cancel else Completed(result)
        except asyncio.CancelledError:
            self._uncancel()
            return self._stopped()
        except BaseException as error:
            return self._raised(error)
        finally:
            self._running = None
            self._context.cancel_asked = True
            if not self._in_thread:
                self._on_free()

    def stop(self, why: Stop) -> None:
        """End the attempt: cancel a coroutine, kill a process, tell a thread.

        A thread cannot be ended. One that should cancel is told and waited for; otherwise it is left behind, and its
        slot is free when it returns.
        """
        if self._stop is not None:
            return
        self._stop = why
        self._context.cancel_asked = True
        if self._running is not None and not (self._in_thread and why is Stop.CANCEL):
            self._running.cancel()

    async def _call_elsewhere(self, handler: Handler) -> bytes | None:
        """Call a handler in a thread or a process."""
        if handler.place is _PROCESS:
            return await self._cells.run(handler, self.task, self._context.progress)
        arguments = handler.signature.decode(self.task.spec.parameters)
        context = contextvars.copy_context()
        ending = self._threads.run(lambda: handler.function(**arguments), context, self._on_free)
        self._in_thread = True
        end = await ending
        if isinstance(end, Raised):
            raise end.error
        return encode_result(handler, end.result)

    def _raised(self, error: BaseException) -> Outcome | None:
        if self._stop is not None:
            # It was stopped, and its handler did not take it well: that is no failure of the task's own.
            return self._stopped()
        match error:
            case HandlerRaised():
                return error.outcome
            case ProcessDied():
                return Crashed(Failure(type="ProcessDied", message=str(error)))
            case InvalidTask():
                return invalid_arguments(error)
            case _:
                return failed(self._handler, error)

    def _stopped(self) -> Outcome | None:
        match self._stop:
            case Stop.CANCEL:
                return CancelConfirmed()
            case Stop.TIMEOUT:
                return TimedOut()
            case Stop.HAND_BACK:
                return HandedBack()
            case Stop.LEASE_LOST:
                return None
            case None:
                failure = Failure(type="CancelledError", message="the handler cancelled itself")
                return Failed(failure=failure)
            case _:
                assert_never(self._stop)

    @property
    def _should_cancel(self) -> bool:
        return self._stop is Stop.CANCEL

    def _uncancel(self) -> None:
        """Let this task await again: the cancellation was ours, and it has done its work."""
        if self._running is not None:
            while self._running.uncancel():
                pass


class ResultNotEncodable(Exception):
    """What the handler returned has no JSON form."""


def encode_result(handler: Handler, result: object) -> bytes | None:
    """A handler's result as JSON; None for None, which needs no bytes."""
    if result is None:
        return None
    try:
        return handler.signature.encode_result(result)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ResultNotEncodable(f"the result of {handler.type} has no JSON form: {error}") from error


def invalid_arguments(error: InvalidTask) -> Failed:
    """The outcome of a task whose parameters do not fit its handler: no other attempt can change that."""
    return Failed(failure=Failure(type="InvalidArguments", message=str(error)), retriable=False)


def failed(handler: Handler, error: BaseException) -> Failed:
    """The outcome of an attempt that raised this error."""
    shown = "".join(traceback.format_exception(type(error), error, _own_frames(error)))
    failure = Failure(type=type(error).__name__, message=str(error), traceback=shown).storable()
    if isinstance(error, ResultNotEncodable):
        return Failed(failure=failure, retriable=False)
    if isinstance(error, Retry):
        # What it derives from is left out: a rule for any Exception is not meant for one that asks to be retried.
        after = None if error.after is None else span(error.after)
        return Failed(failure=failure, after=after, names=(error_name(type(error)),))
    return Failed(failure=failure, retriable=handler.is_retriable(error), names=error_names(type(error)))


def _own_frames(error: BaseException) -> TracebackType | None:
    """The traceback from where the handler's own code begins; all of it if that is not where it was raised."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__name__", "").startswith("fairlead.worker."):
        frames = frames.tb_next
    return frames or error.__traceback__
