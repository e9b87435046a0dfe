"""Running an app's tasks inside a test: in memory, in this process, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fairlead.admin.engine import AdminEngine
from fairlead.admin.sweeper import Sweeper
from fairlead.app.connection import Connection
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.instant import seconds as to_seconds
from fairlead.core.schedule import Schedule
from fairlead.core.settings import Settings
from fairlead.core.task import State, Task
from fairlead.core.validation import Duration, delay_of, setting_of
from fairlead.engine.runtime.clock import ManualClock
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.values import Filter
from fairlead.worker.attempt import Attempt, Stop
from fairlead.worker.handlers import Handlers
from fairlead.worker.keeper.keeper import Failed, Listener
from fairlead.worker.resources import Overrides
from fairlead.worker.source import EngineSource
from fairlead.worker.worker import Worker, WorkerSettings

if TYPE_CHECKING:
    from fairlead.app.remote import RemoteConnection

Way: TypeAlias = "Connection | RemoteConnection"
"""The way of an app to its tasks."""

_ROUNDS: Final = 10_000
_EVERY_CAPABILITY_OF: Final = 10_000
_AT_ONCE: Final = 100
_LEAST_BLOCKED: Final = 5.0
"""So many seconds a loop may stand still at least, however short the patience is: the machine may be busy."""


class Rehearsal:
    """`with app.testing() as rehearsal`, or `async with`: submits go to memory until it ends."""

    def __init__(
        self,
        handlers: Handlers,
        settings: Settings,
        swap: Callable[[Way], Way],
        schedules: Mapping[str, Schedule] | None = None,
        patience: Duration = 10.0,
        overrides: Overrides = MappingProxyType({}),
    ) -> None:
        self._patience = to_seconds(setting_of("patience", patience, least=1))
        self._handlers = handlers
        self._schedules = schedules or {}
        self._overrides = dict(overrides)
        self._watch = _Watch(self._patience)
        self._settings = settings
        self._swap = swap
        self._former: Way | None = None
        self.clock = ManualClock()
        self._connection = Connection("memory://", settings, clock=self.clock)
        # Nothing runs by itself here: who waits for a result that does not come would wait for ever.
        self._connection.patience = self._patience

    def __enter__(self) -> Rehearsal:
        self._former = self._swap(self._connection)
        run_inline(self._connection.inline().schedules.declare(self._schedules.values()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._former is not None:
            self._swap(self._former)

    async def __aenter__(self) -> Rehearsal:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def advance(self, seconds: Duration) -> None:
        """Let time pass while nobody works; `run` then runs what has become due, as after a stop of that length."""
        self.clock.advance(delay_of("seconds", seconds))

    async def travel(self, seconds: Duration) -> int:
        """Let time pass while all that becomes due is run, schedules too; how many attempts were made."""
        until = self.clock.now() + delay_of("seconds", seconds)
        attempts = await self.run()
        while (due := await self._next_due()) is not None and due <= until:
            self.clock.advance(due - self.clock.now())
            attempts += await self.run()
        self.clock.advance(max(0, until - self.clock.now()))
        return attempts + await self.run()

    async def run(self) -> int:
        """Run every task that is ready, and those that these submit, until none is; how many attempts were made."""
        engine = await self._connection.engine()
        sweeper, attempts = Sweeper(engine), 0
        for _ in range(_ROUNDS):
            await sweeper.once()
            ready = await engine.find(Filter(states=frozenset({State.QUEUED})), limit=_EVERY_CAPABILITY_OF)
            worker = self._worker(engine, ready)
            started = await self._once(worker) if ready else 0
            attempts += started
            if not started:
                return attempts
        raise RuntimeError(f"tasks still become ready after {_ROUNDS} rounds; does a task submit itself for ever?")

    async def _once(self, worker: Worker) -> int:
        """Run as many ready tasks as there is room for; how many attempts were made."""
        try:
            with self._watch:
                async with worker.opened():
                    started = await worker.once()
                    await worker.finish(self._keep_time)
                    return started
        finally:
            await worker.close()

    async def run_all(self) -> int:
        """`run`, and let time pass to each next due task, until none waits; how many attempts were made."""
        engine = await self._connection.engine()
        attempts = await self.run()
        for _ in range(_ROUNDS):
            scheduled = await engine.find(Filter(states=frozenset({State.SCHEDULED})), limit=_EVERY_CAPABILITY_OF)
            # What waits for others is due when they have ended; if it is all that is left, they never will.
            moments = [task.status.ready_at for task in scheduled if not task.status.waits]
            if not moments:
                return attempts
            due = min(moments)
            self.clock.advance(max(0, due - self.clock.now()))
            attempts += await self.run()
        raise RuntimeError(f"tasks are still scheduled after {_ROUNDS} rounds; does a task retry for ever?")

    def travel_sync(self, seconds: Duration) -> int:
        """`travel`, from a synchronous test."""
        return asyncio.run(self.travel(seconds))

    def run_sync(self) -> int:
        """`run`, from a synchronous test."""
        return asyncio.run(self.run())

    def run_all_sync(self) -> int:
        """`run_all`, from a synchronous test."""
        return asyncio.run(self.run_all())

    def _keep_time(self, running: Sequence[Attempt]) -> None:
        """Stop attempts whose time is up in the rehearsal; when all that run hang, let it pass to the first of them."""
        self._watch.tick()
        began = time.monotonic() - self._patience
        if running and all(_began(attempt) <= began for attempt in running):
            self.clock.advance(max(0, min(map(_until, running)) - self.clock.now()))
        for attempt in running:
            if _until(attempt) <= self.clock.now():
                attempt.stop(Stop.TIMEOUT)

    async def _next_due(self) -> Instant | None:
        """When a task or a schedule is due that is not yet."""
        engine = await self._connection.engine()
        scheduled = await engine.find(Filter(states=frozenset({State.SCHEDULED})), limit=_EVERY_CAPABILITY_OF)
        moments = [task.status.ready_at for task in scheduled if not task.status.waits]
        moments += [at for entry in await engine.schedules.all() if (at := entry.attention) is not None]
        return min((at for at in moments if at > self.clock.now()), default=None)

    def _worker(self, engine: AdminEngine, ready: list[Task]) -> Worker:
        """A worker with every capability that the ready tasks ask for."""
        source = EngineSource(
            engine,
            WorkerId("rehearsal"),
            sorted({task.spec.queue for task in ready}),
            {capability for task in ready for capability in task.spec.requires},
            self._handlers.types,
        )
        # No attempt is to wait for another one, of whatever kind: they run in the order in which they were claimed.
        settings = WorkerSettings(concurrency=_AT_ONCE, thread_concurrency=_AT_ONCE, isolated_concurrency=_AT_ONCE)
        return Worker(source, self._handlers.overridden(self._overrides), _NoKeeper(), settings)


class _Blocked(BaseException):
    """Raised in a handler that blocks the event loop: no `except Exception` is to stop it."""


class _Watch:
    """Ends what blocks the event loop for long, where Python can: in the main thread, on POSIX."""

    def __init__(self, patience: float) -> None:
        self._patience = max(patience, _LEAST_BLOCKED)
        self._over = threading.Event()
        self._looks = False
        self._told = ""
        self._ticked = 0.0
        self._former: Any = None
        self._thread: threading.Thread | None = None

    def tick(self) -> None:
        """The event loop runs."""
        self._ticked = time.monotonic()

    def __enter__(self) -> None:
        self.tick()
        self._told = ""
        if hasattr(signal, "pthread_kill") and threading.current_thread() is threading.main_thread():
            self._former = signal.signal(signal.SIGUSR2, self._end)
            self._looks = True
            self._over.clear()
            self._thread = threading.Thread(target=self._look, args=[threading.get_ident()], daemon=True)
            self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A signal that is on its way finds nothing to end any more.
        self._looks = False
        if self._thread is not None:
            self._over.set()
            self._thread.join()
            self._thread = None
            signal.signal(signal.SIGUSR2, self._former)
        if self._told:
            raise RuntimeError(
                f"a handler blocked the event loop for {self._patience:g} s at {self._told}; await what takes time, "
                f"make it a def, or give it isolate=True"
            ) from None

    def _look(self, watched: int) -> None:
        """Send the signal when the loop has not turned for long, once for each such time."""
        while not self._over.wait(max(0.01, self._ticked + self._patience - time.monotonic())):
            if self._is_blocked:
                signal.pthread_kill(watched, signal.SIGUSR2)
                self._over.wait(self._patience)

    @property
    def _is_blocked(self) -> bool:
        return time.monotonic() - self._ticked > self._patience

    def _end(self, number: int, frame: FrameType | None) -> None:
        """Raise in what blocks the loop, if it still does."""
        if not self._looks or not self._is_blocked:
            return
        self.tick()
        if frame is not None:
            self._told = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        raise _Blocked(f"the event loop was blocked for {self._patience:g} s")


def _began(attempt: Attempt) -> float:
    """When an attempt began in real time, on the monotonic clock."""
    return attempt.deadline - attempt.task.status.timeout / SECOND


def _until(attempt: Attempt) -> Instant:
    """When an attempt's time is up in the rehearsal."""
    status = attempt.task.status
    return (status.started_at or 0) + status.timeout


class _NoKeeper:
    """Leases need no keeping where time stands still."""

    async def start(self, listener: Listener, failed: Failed) -> None: ...

    async def ready(self) -> None: ...

    def hold(self, tasks: list[Task]) -> None: ...

    def drop(self, tasks: list[Task]) -> None: ...

    def allow(self, task: Task, seconds: float) -> None: ...

    def allowance(self, task_id: TaskId) -> Span:
        return 0

    async def close(self) -> None: ...
