"""Running a worker as a process: its event loop and its signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import Final

from fairlead.worker.worker import Worker

log = logging.getLogger("fairlead.worker")

_LAST_WORDS: Final = 2.0


def serve(prepare: Callable[[], Awaitable[Worker]], close: Callable[[], Awaitable[None]]) -> None:
    """Run a worker until SIGTERM or SIGINT; a second signal has it hand back what still runs."""
    overdue = threading.Timer(_LAST_WORDS, _leave_behind)
    overdue.daemon = True
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(prepare, close))
        # Closing the loop waits for what still runs in it, and all of that was handed back.
        overdue.start()
    overdue.cancel()


def _leave_behind() -> None:
    log.warning("leaving behind handlers, or threads of theirs, that heed no cancel")
    logging.shutdown()
    os._exit(0)


async def _serve(prepare: Callable[[], Awaitable[Worker]], close: Callable[[], Awaitable[None]]) -> None:
    worker = await prepare()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, worker.leave)
    try:
        await worker.run()
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
