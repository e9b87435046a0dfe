"""Running a worker, or more services beside it, as a process: its event loop and its signals."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Protocol

log = logging.getLogger("fairlead.worker")

_LAST_WORDS: Final = 2.0

_OBJECTS: Final = 10_000
"""So many new objects make the garbage collector look for cycles among them: more than the tasks that run at once are
made of, which come and go in waves. By Python's own 700 it looks into each wave, several times, and finds nothing."""


class Service(Protocol):
    """Something that runs until it is asked to leave, twice if it is urgent. A worker is one; a server can be."""

    async def run(self) -> None: ...

    def leave(self) -> None: ...


def serve(
    prepare: Callable[[], Awaitable[Sequence[Service]]],
    close: Callable[[], Awaitable[None]],
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Run what `prepare` makes until SIGTERM or SIGINT; a second signal makes the leaving urgent."""
    overdue = threading.Timer(_LAST_WORDS, _leave_behind)
    overdue.daemon = True
    with _rare_collections(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(prepare, close, ready))
        # Closing the loop waits for what still runs in it, and all of that was handed back.
        overdue.start()
    overdue.cancel()


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Have the garbage collector look less often, unless the application has turned it off or has it look less yet."""
    before = gc.get_threshold()
    if 0 < before[0] < _OBJECTS:
        gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _leave_behind() -> None:
    log.warning("leaving behind handlers, or threads of theirs, that heed no cancel")
    logging.shutdown()
    os._exit(0)


async def _serve(
    prepare: Callable[[], Awaitable[Sequence[Service]]],
    close: Callable[[], Awaitable[None]],
    ready: Callable[[], None],
) -> None:
    loop = asyncio.get_running_loop()
    preparing = asyncio.ensure_future(prepare())
    services: Sequence[Service] = ()
    asked = False

    def leave() -> None:
        nonlocal asked
        asked = True
        preparing.cancel()
        for service in services:
            service.leave()

    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, leave)
    try:
        services = await preparing
    except asyncio.CancelledError:
        if not asked:
            raise
        # There is nothing to finish yet, so being asked to leave is simply the end.
        await close()
        return
    running = [asyncio.create_task(service.run()) for service in services]
    try:
        ready()
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        # One that ended by itself takes the others with it: half of what was asked for is not what was asked for. One
        # that was asked to leave and is done first does not hurry the others.
        if not asked and any(not task.done() for task in running):
            leave()
        await asyncio.gather(*running)
    finally:
        await close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, if it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
