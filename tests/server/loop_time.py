"""How long the callbacks of an event loop take, in processor time of its thread: what else the machine does is no part
of it."""

from __future__ import annotations

import asyncio
import gc
import time
from asyncio import events
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct


class Slowest(Struct):
    """The callback that took longest so far."""

    seconds: float = 0.0
    what: str = ""


@contextmanager
def slowest_callback() -> Iterator[Slowest]:
    """Watch the callbacks of the loops of this process, which must be those of the standard library.

    The garbage collector rests meanwhile: what it does with the many objects of a test run is not theirs.
    """
    slowest = Slowest()
    run = events.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        taken = time.thread_time() - began
        if taken > slowest.seconds:
            slowest.seconds, slowest.what = taken, repr(handle)[:300]

    gc.collect()
    gc.disable()
    events.Handle._run = timed  # type: ignore[assignment, method-assign]
    try:
        yield slowest
    finally:
        events.Handle._run = run  # type: ignore[method-assign]
        gc.enable()
