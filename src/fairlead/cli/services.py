"""Running services together in one event loop until the process is asked to leave."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol


class Service(Protocol):
    """Something that runs until it is asked to leave, twice if it is urgent. A worker is one; a server can be."""

    async def run(self) -> None: ...

    def leave(self) -> None: ...


def serve_together(
    prepare: Callable[[], Awaitable[Sequence[Service]]],
    ready: Callable[[], None],
    close: Callable[[], Awaitable[None]],
) -> None:
    """Run what `prepare` makes until SIGTERM or SIGINT; a second signal makes the leaving urgent."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(prepare, ready, close))


async def _serve(
    prepare: Callable[[], Awaitable[Sequence[Service]]],
    ready: Callable[[], None],
    close: Callable[[], Awaitable[None]],
) -> None:
    services = await prepare()

    def leave() -> None:
        for service in services:
            service.leave()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, leave)
    running = [asyncio.create_task(service.run()) for service in services]
    try:
        ready()
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        # One that ended by itself takes the others with it: half of what was asked for is not what was asked for.
        if any(not task.done() for task in running):
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
