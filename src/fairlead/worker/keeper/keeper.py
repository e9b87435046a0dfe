"""Keeping leases: heartbeats for what a worker runs, sent from where no handler can hold them up.

A handler may block the event loop, or hold the interpreter's lock for minutes. So the heartbeats of a worker are sent
by a process of its own, the keeper. It stops when the worker ends, and while the worker is stopped: leases are for the
living. Where a second process is not wanted a thread does the same, and only a held lock can keep it from doing so.
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from fairlead.core.identity import LeaseToken, TaskId
from fairlead.core.instant import SECOND, Span
from fairlead.core.settings import Settings
from fairlead.core.task import Task
from fairlead.engine.runtime.telemetry import Logger
from fairlead.storage.credentials import Named
from fairlead.storage.values import Pulse
from fairlead.worker.keeper.lease_renewal import (
    LOOK_INTERVAL,
    Beater,
    Brief,
    Leases,
    Remote,
    allowance,
    keep,
    lateness_of,
    moment_of,
)
from fairlead.worker.keeper.pipe import HEADER, Orders, forget, frame, hand_over

log = Logger("fairlead.worker")

PROGRAM: Final = "from fairlead.worker.keeper.process import main; main()"
"""What a keeper process runs."""

REST: Final = 60.0
"""After so many seconds with nothing to keep a keeper gives back what it took for that."""

ROOM: Final = 10 * SECOND
"""A lease that is shorter leaves no room to open a store first: then a keeper has it open always."""

Listener = Callable[[TaskId, Pulse], None]
Failed = Callable[[int], None]
"""Told how many heartbeats did not arrive."""


class Keeper(Protocol):
    """Renews the leases that it is told of, and tells of those that are lost or should stop."""

    async def start(self, listener: Listener, failed: Failed) -> None: ...

    async def ready(self) -> None:
        """Return when leases can be kept: as long as they cannot, none should be taken."""
        ...

    def hold(self, tasks: list[Task]) -> None: ...

    def drop(self, tasks: list[Task]) -> None:
        """Renew these leases no more; a newer lease on the same task is another matter."""
        ...

    def allow(self, task: Task, seconds: float) -> None:
        """Let the attempt and its lease last so much longer than from the claim on: its time begins only then."""
        ...

    def allowance(self, task_id: TaskId) -> Span:
        """How much longer an attempt may last by that."""
        ...

    async def close(self) -> None: ...


class ThreadKeeper:
    """Keeps leases from a thread of the worker's own process."""

    def __init__(self, engine: Leases, close: Callable[[], None] = lambda: None) -> None:
        """The engine is used from the keeper's thread, and its coroutines must not suspend; `close` is called last."""
        self._engine = engine
        self._close = close
        self._held: dict[TaskId, LeaseToken] = {}
        self._due: dict[TaskId, float] = {}
        self._allowed: dict[TaskId, float] = {}
        self._lateness = lateness_of(engine.settings)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    async def start(self, listener: Listener, failed: Failed) -> None:
        loop = asyncio.get_running_loop()

        def tell(pulses: Mapping[TaskId, Pulse], lapses: int) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_spread, pulses, lapses, listener, failed)

        arguments = (
            Beater(self._engine, self._held, self._due, self._allowed),
            self._engine.settings,
            tell,
            self._over.wait,
        )
        self._thread = threading.Thread(target=keep, args=arguments, name="fairlead-keeper", daemon=True)
        self._thread.start()

    async def ready(self) -> None:
        return

    def hold(self, tasks: list[Task]) -> None:
        _renounce(self._allowed, tasks)
        held, due = _holds(tasks, self._lateness)
        self._due.update(due)
        self._held.update(held)

    def allow(self, task: Task, seconds: float) -> None:
        _delay(self._due, self._allowed, task.spec.id, seconds)

    def allowance(self, task_id: TaskId) -> Span:
        return allowance(self._allowed.get(task_id))

    def drop(self, tasks: list[Task]) -> None:
        forget(self._held, _leases(tasks), self._due, self._allowed)

    async def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        self._close()


class ProcessKeeper:
    """Keeps leases from a process of its own; a keeper that dies is replaced."""

    def __init__(
        self,
        url: str,
        settings: Settings,
        remote: Remote | None = None,
        *,
        journal: str | None = None,
        credentials: Named | None = None,
        journal_credentials: Named | None = None,
    ) -> None:
        brief = Brief(url, settings, remote, journal, credentials, journal_credentials)
        self._brief = msgspec.msgpack.encode(brief)
        self._lateness = lateness_of(settings)
        self._moment = moment_of(settings)
        self._dozes = settings.lease >= ROOM
        self._held: dict[TaskId, LeaseToken] = {}
        self._due: dict[TaskId, float] = {}
        self._allowed: dict[TaskId, float] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._told = False
        """Whether it was said that no tasks are taken."""

    async def start(self, listener: Listener, failed: Failed) -> None:
        await self._spawn(at_once=not self._dozes)
        self._running = asyncio.create_task(self._run(listener, failed))

    async def ready(self) -> None:
        await self._ready.wait()

    def hold(self, tasks: list[Task]) -> None:
        _renounce(self._allowed, tasks)
        held, due = _holds(tasks, self._lateness)
        self._held.update(held)
        self._due.update(due)
        self._send(held, {}, due)

    def allow(self, task: Task, seconds: float) -> None:
        task_id = task.spec.id
        if _delay(self._due, self._allowed, task_id, seconds):
            self._send({}, {}, {task_id: self._due[task_id]}, {task_id: seconds})

    def allowance(self, task_id: TaskId) -> Span:
        return allowance(self._allowed.get(task_id))

    def drop(self, tasks: list[Task]) -> None:
        leases = _leases(tasks)
        forget(self._held, leases, self._due, self._allowed)
        self._send({}, leases, {})

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _run(self, listener: Listener, failed: Failed) -> None:
        while True:
            assert self._process is not None and self._process.stdout is not None  # noqa: S101 - spawned with a pipe
            try:
                size = int.from_bytes(await self._process.stdout.readexactly(HEADER), "big")
                pulses, lapses, ready = marshal.loads(await self._process.stdout.readexactly(size))  # noqa: S302
            except asyncio.IncompleteReadError:
                code = await self._process.wait()
                self._ready.clear()
                log.warning("the lease keeper process ended with %d; starting another one", code)
                await self._respawn()
                continue
            _spread(pulses, lapses, listener, failed)
            if ready:
                self._ready.set()
                self._told = False
            elif not self._told:
                self._ready.clear()
                self._told = True
                log.warning("the lease keeper process cannot open the store; claiming no tasks until it can")

    async def _respawn(self) -> None:
        while True:
            await asyncio.sleep(LOOK_INTERVAL)
            try:
                return await self._spawn(at_once=True)
            except OSError as error:
                log.warning("cannot start a lease keeper process, retrying until it works: %s", error)

    async def _spawn(self, *, at_once: bool) -> None:
        """Start a keeper; one that takes another's place must open its store at once to be ready."""
        rest = REST if self._dozes else math.inf
        orders = hand_over(Orders(os.getpid(), self._moment, rest, at_once, self._brief))
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                PROGRAM,
                str(orders),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                pass_fds=[orders],
            )
        finally:
            os.close(orders)
        self._send(self._held, {}, self._due, self._allowed)

    def _send(
        self,
        held: dict[TaskId, LeaseToken],
        dropped: dict[TaskId, LeaseToken],
        *notes: dict[TaskId, float],
    ) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(frame((held, dropped, *notes)))


def _leases(tasks: list[Task]) -> dict[TaskId, LeaseToken]:
    return {task.spec.id: task.status.lease.token for task in tasks if task.status.lease is not None}


def _holds(tasks: list[Task], lateness: float) -> tuple[dict[TaskId, LeaseToken], dict[TaskId, float]]:
    """The leases of these, and when each is so late that its worker will not say so any more."""
    now = time.monotonic() + lateness
    leases: dict[TaskId, LeaseToken] = {}
    due: dict[TaskId, float] = {}
    for task in tasks:
        status = task.status
        if status.lease is not None:
            task_id = task.spec.id
            leases[task_id] = status.lease.token
            due[task_id] = now + status.timeout / SECOND
    return leases, due


def _delay(due: dict[TaskId, float], allowed: dict[TaskId, float], task_id: TaskId, seconds: float) -> bool:
    """Have an attempt be due so much later than from the claim on; whether it is held at all."""
    if (moment := due.get(task_id)) is None:
        return False
    due[task_id] = moment + seconds - allowed.get(task_id, 0.0)
    allowed[task_id] = seconds
    return True


def _renounce(allowed: dict[TaskId, float], tasks: list[Task]) -> None:
    """What an earlier attempt was allowed is not for the next one."""
    for task in tasks if allowed else ():
        allowed.pop(task.spec.id, None)


def _spread(pulses: Mapping[TaskId, str], failed: int, listener: Listener, beat_failed: Failed) -> None:
    for task_id, pulse in pulses.items():
        listener(task_id, Pulse(pulse))
    if failed:
        beat_failed(failed)
