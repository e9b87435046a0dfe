"""A worker's registration: it is known to everyone as long as it has something to do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from fairlead.core.errors import StoreError, WorkerNotFound
from fairlead.engine.runtime.logger import Logger
from fairlead.worker.source import Source

log = Logger("fairlead.worker")

_JOIN_INTERVAL: Final = 1.0
"""Seconds after which a worker that could not join tries again."""

_LAST_WORDS: Final = 5.0


class Registration:
    """Joins, beats while the worker works or drains, and leaves."""

    def __init__(
        self, source: Source, capacity: int, running: Callable[[], int], failed: Callable[[int], None]
    ) -> None:
        """`failed` is told how many beats did not arrive."""
        self._failed = failed
        self._source = source
        self._capacity = capacity
        self._running = running

    async def keep(self, leaving: asyncio.Event, leave: Callable[[], None]) -> None:
        """Beat until cancelled; call `leave` when the worker is asked to drain, and say so when it is leaving."""
        interval: float | None = None
        while True:
            asked = False
            try:
                if interval is None:
                    interval = await self._source.join(self._capacity)
                asked = await self._source.beat(self._running(), draining=leaving.is_set())
            except WorkerNotFound:
                interval = None
            except StoreError:
                # A worker that cannot say so lives all the same.
                self._failed(1)
            if asked and not leaving.is_set():
                log.info("drain requested for this worker")
                leave()
            pause = _JOIN_INTERVAL if interval is None else interval
            if leaving.is_set():
                await asyncio.sleep(pause)
            else:
                # That it drains is said at once.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(leaving.wait(), pause)

    async def end(self) -> None:
        """Say that the worker is no more, if the store can be reached."""
        with contextlib.suppress(StoreError, TimeoutError):
            await asyncio.wait_for(self._source.leave(), _LAST_WORDS)
