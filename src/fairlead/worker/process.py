"""Running a worker, or more services beside it, as a process: its event loop and its signals."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Final, Protocol

from fairlead.engine.runtime.telemetry import Logger
from fairlead.worker.isolation.fork_guard import hear_no_more, hear_signals

log = Logger("fairlead.worker")

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
    *,
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Run what `prepare` makes until SIGTERM or SIGINT; a second signal makes the leaving urgent.

    `new_loop` is what makes the event loop; uvloop does if it is installed, else asyncio.
    """
    _refuse_inside_a_loop()
    with (
        _rare_collections(),
        contextlib.ExitStack() as ending,
        asyncio.Runner(loop_factory=new_loop or _loop_factory()) as runner,
    ):
        try:
            _run(runner.get_loop(), _serve(prepare, close, ready))
        except BaseException as error:
            ending.callback(_patience(error).cancel)
            raise
        ending.callback(_patience(None).cancel)


def _refuse_inside_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "an event loop is running here, and this would run one of its own; in a coroutine say "
        "`await (await app.worker()).run()`, or run this in a process of its own"
    )


def _run(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, whatever else in the loop may say that it is over.

    A handler may stop the loop that it runs in, and a task of its own that raises SystemExit takes it down.
    """
    asyncio.set_event_loop(loop)
    serving = loop.create_task(coroutine)
    while True:
        turns: list[bool] = []
        loop.call_soon(turns.append, True)
        try:
            return loop.run_until_complete(serving)
        except (RuntimeError, SystemExit, KeyboardInterrupt) as error:
            if serving.done() or loop.is_closed() or _is_to_end(error, ran=bool(turns)):
                raise
            log.error("a handler stopped the event loop (%s: %s); continuing", type(error).__name__, error)


def _is_to_end(error: BaseException, *, ran: bool) -> bool:
    """Whether an error that a loop ended with is no handler's doing: one that never ran, or somebody's Ctrl-C."""
    if isinstance(error, KeyboardInterrupt):
        # Where an event loop can hear signals Ctrl-C is none of Python's business any more.
        return signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, RuntimeError) and not ran


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


def _patience(error: BaseException | None) -> threading.Timer:
    """Have the process end in a moment, whoever still runs in it: closing the loop waits for them all."""
    overdue = threading.Timer(_LAST_WORDS, _leave_behind, [error])
    overdue.daemon = True
    overdue.start()
    return overdue


def _leave_behind(error: BaseException | None) -> None:
    """End the process, as it would have ended without those who keep it from that."""
    try:
        if error is not None:
            log.critical("stopped by an error: %s", error, exc_info=error)
        log.warning("exiting although handlers, or their threads, ignore the request to stop")
        logging.shutdown()
    finally:
        os._exit(0 if error is None else 1)


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
    if threading.current_thread() is threading.main_thread():
        hear_signals(loop)
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
        hear_no_more()
        await close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, if it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
