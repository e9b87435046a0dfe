"""Keeping leases: heartbeats for what a worker runs, sent from where no handler can hold them up.

A handler may block the event loop, or hold the interpreter's lock for minutes. So the heartbeats of a worker are sent
by a process of its own, the keeper. It stops when the worker ends, and while the worker is stopped: leases are for the
living. Where a second process is not wanted a thread does the same, and only a held lock can keep it from doing so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from fairlead.core.errors import StoreError
from fairlead.core.identity import LeaseToken, TaskId, WorkerId
from fairlead.core.instant import SECOND
from fairlead.core.settings import Settings
from fairlead.core.task import Task
from fairlead.engine.inline import run_inline
from fairlead.storage.values import Beat, Pulse

log = logging.getLogger("fairlead.worker")

LOOK_INTERVAL: Final = 1.0
"""How often, in seconds, the keeper looks whether cancel was asked."""

HEADER: Final = 4

PROGRAM: Final = """\
import sys
sys.modules["typing_extensions"] = None
import msgspec
del sys.modules["typing_extensions"]
from fairlead.worker.keeping import main
main()
"""
"""What a keeper process runs. msgspec imports typing_extensions where it finds it, for the annotations of users, and a
process without any has no use for megabytes of it. A store's driver that needs it still gets it."""

_encode: Final = msgspec.msgpack.Encoder().encode

Listener = Callable[[TaskId, Pulse], None]
Failed = Callable[[int], None]
"""Told how many heartbeats did not arrive."""


class Keeper(Protocol):
    """Renews the leases that it is told of, and tells of those that are lost or should stop."""

    async def start(self, listener: Listener, failed: Failed) -> None: ...

    async def ready(self) -> None:
        """Return when leases are kept: before that, none should be taken."""
        ...

    def hold(self, tasks: list[Task]) -> None: ...

    def drop(self, tasks: list[Task]) -> None:
        """Renew these leases no more; a newer lease on the same task is another matter."""
        ...

    async def close(self) -> None: ...


class Leases(Protocol):
    """What keeps leases, of an engine or of a server; its coroutines must not suspend."""

    @property
    def settings(self) -> Settings: ...

    async def follow_clock(self) -> None: ...

    async def heartbeat(self, beats: Sequence[Beat], /) -> list[Pulse]: ...

    async def look(self, beats: Sequence[Beat], /) -> list[Pulse]:
        """What a heartbeat would learn, without renewing anything."""
        ...


class Beater:
    """The leases of one worker, and the beating itself. Not safe for threads but for `hold` and `drop`."""

    def __init__(self, engine: Leases) -> None:
        self._engine = engine
        self._held: dict[TaskId, LeaseToken] = {}
        self._asked: set[TaskId] = set()

    def hold(self, leases: dict[TaskId, LeaseToken]) -> None:
        self._held.update(leases)

    def drop(self, leases: Mapping[TaskId, LeaseToken]) -> None:
        for task_id in _drop(self._held, leases):
            self._asked.discard(task_id)

    def beat(self) -> dict[TaskId, Pulse]:
        """Renew every lease; those that are lost or should stop."""
        held = list(self._held.items())
        if not held:
            return {}
        beats = [Beat(task_id, token) for task_id, token in held]
        run_inline(self._engine.follow_clock())
        pulses = run_inline(self._engine.heartbeat(beats))
        news = {task_id: pulse for (task_id, _), pulse in zip(held, pulses, strict=True) if pulse is not Pulse.HELD}
        self.drop({task_id: token for task_id, token in held if news.get(task_id) is Pulse.LOST})
        return self._unsaid(news)

    def look(self) -> dict[TaskId, Pulse]:
        """Those that should stop, without renewing any: a cancel need not wait for the next heartbeat."""
        beats = [Beat(task_id, token) for task_id, token in list(self._held.items())]
        if not beats:
            return {}
        pulses = run_inline(self._engine.look(beats))
        return self._unsaid(
            {beat.id: pulse for beat, pulse in zip(beats, pulses, strict=True) if pulse is Pulse.CANCEL}
        )

    def _unsaid(self, news: Mapping[TaskId, Pulse]) -> dict[TaskId, Pulse]:
        fresh = {task_id: pulse for task_id, pulse in news.items() if task_id not in self._asked}
        self._asked.update(task_id for task_id, pulse in fresh.items() if pulse is Pulse.CANCEL)
        return fresh


class News(Struct, frozen=True, array_like=True):
    """What a keeper has to tell: leases that are lost or should stop, and heartbeats that did not arrive."""

    pulses: dict[TaskId, Pulse] = {}
    failed: int = 0


def keep(beater: Beater, settings: Settings, tell: Callable[[News], None], wait: Callable[[float], bool]) -> None:
    """Beat and look until `wait`, which sleeps for so many seconds, says that it is over."""
    interval = settings.heartbeat / SECOND
    next_beat = time.monotonic() + interval
    while not wait(min(LOOK_INTERVAL, interval / 2)):
        beats = time.monotonic() >= next_beat
        try:
            pulses = beater.beat() if beats else beater.look()
        except StoreError:
            # A store that fails is tried again at once: a lease is worth three beats.
            if beats:
                tell(News(failed=1))
            continue
        if beats:
            next_beat = time.monotonic() + interval
        if pulses:
            tell(News(pulses))


class ThreadKeeper:
    """Keeps leases from a thread of the worker's own process."""

    def __init__(self, engine: Leases, close: Callable[[], None] = lambda: None) -> None:
        """The engine is used from the keeper's thread, and its coroutines must not suspend; `close` is called last."""
        self._engine = engine
        self._close = close
        self._beater = Beater(engine)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    async def start(self, listener: Listener, failed: Failed) -> None:
        loop = asyncio.get_running_loop()

        def tell(news: News) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_spread, news, listener, failed)

        arguments = (self._beater, self._engine.settings, tell, self._over.wait)
        self._thread = threading.Thread(target=keep, args=arguments, name="fairlead-keeper", daemon=True)
        self._thread.start()

    async def ready(self) -> None:
        return

    def hold(self, tasks: list[Task]) -> None:
        self._beater.hold(_leases(tasks))

    def drop(self, tasks: list[Task]) -> None:
        self._beater.drop(_leases(tasks))

    async def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        self._close()


class Remote(Struct, frozen=True):
    """A worker of a server."""

    worker: WorkerId
    key: str | None

    def __repr__(self) -> str:
        return f"Remote({self.worker!r})"


class Brief(Struct, frozen=True):
    """The first message to a keeper process."""

    url: str
    settings: Settings
    worker_process: int
    remote: Remote | None = None
    """What it takes beside the URL, if that is a server's."""


class Notice(Struct, frozen=True):
    """What changed in the leases to keep."""

    held: dict[TaskId, LeaseToken] = {}
    dropped: dict[TaskId, LeaseToken] = {}


class ProcessKeeper:
    """Keeps leases from a process of its own; a keeper that dies is replaced."""

    def __init__(self, url: str, settings: Settings, remote: Remote | None = None) -> None:
        self._brief = Brief(url, settings, os.getpid(), remote)
        self._held: dict[TaskId, LeaseToken] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def start(self, listener: Listener, failed: Failed) -> None:
        await self._spawn()
        self._running = asyncio.create_task(self._run(listener, failed))

    async def ready(self) -> None:
        await self._ready.wait()

    def hold(self, tasks: list[Task]) -> None:
        leases = _leases(tasks)
        self._held.update(leases)
        self._send(Notice(held=leases))

    def drop(self, tasks: list[Task]) -> None:
        leases = _leases(tasks)
        _drop(self._held, leases)
        self._send(Notice(dropped=leases))

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _run(self, listener: Listener, failed: Failed) -> None:
        decode = msgspec.msgpack.Decoder(News).decode
        while True:
            assert self._process is not None and self._process.stdout is not None  # noqa: S101 - spawned with a pipe
            try:
                size = int.from_bytes(await self._process.stdout.readexactly(HEADER), "big")
                _spread(decode(await self._process.stdout.readexactly(size)), listener, failed)
                self._ready.set()
            except asyncio.IncompleteReadError:
                code = await self._process.wait()
                log.warning("the keeper of leases ended with %d; another one is started", code)
                await self._respawn()

    async def _respawn(self) -> None:
        while True:
            await asyncio.sleep(LOOK_INTERVAL)
            try:
                return await self._spawn()
            except OSError as error:
                log.warning("no keeper of leases can be started, trying until it works: %s", error)

    async def _spawn(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._send(self._brief)
        self._send(Notice(held=self._held))

    def _send(self, message: Brief | Notice) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(frame(message))


def _leases(tasks: list[Task]) -> dict[TaskId, LeaseToken]:
    return {task.spec.id: task.status.lease.token for task in tasks if task.status.lease is not None}


def _drop(held: dict[TaskId, LeaseToken], leases: Mapping[TaskId, LeaseToken]) -> list[TaskId]:
    """Forget those leases that are held; a task may be held anew while the end of its last attempt is still told."""
    dropped = [task_id for task_id, token in leases.items() if held.get(task_id) == token]
    for task_id in dropped:
        held.pop(task_id, None)
    return dropped


def _spread(news: News, listener: Listener, failed: Failed) -> None:
    for task_id, pulse in news.pulses.items():
        listener(task_id, pulse)
    if news.failed:
        failed(news.failed)


def frame(message: object) -> bytes:
    packed = _encode(message)
    return len(packed).to_bytes(HEADER, "big") + packed
