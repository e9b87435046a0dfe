"""How long a worker works: until it is asked to leave, or until it has done what it was started for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Final

from fairlead.core.errors import InvalidSettings
from fairlead.engine.runtime.telemetry import Logger

log = Logger("fairlead.worker")

_LOOK_INTERVAL: Final = 1.0
"""How often the memory is looked at, in seconds."""
_ENDLESS: Final = sys.maxsize


class WorkerLife:
    """When a worker leaves by itself, and whether another process is to take its place."""

    def __init__(self, max_tasks: int | None, max_memory: int | None) -> None:
        self._max_tasks = max_tasks
        self._max_memory = max_memory
        self._over = asyncio.Event()
        self.left = _ENDLESS if max_tasks is None else max_tasks
        """How many tasks the worker may still begin."""
        self.recycles = False
        """Whether it leaves for another process to take its place."""

    def count(self, tasks: int) -> None:
        """Take note of tasks that the worker begins."""
        if self._max_tasks is None:
            return
        self.left -= tasks
        if self.left <= 0:
            self._recycle(f"it has begun {self._max_tasks - self.left:,} tasks")

    def end(self, why: str) -> None:
        """Have the worker leave for good."""
        if not self._over.is_set():
            log.info("leaving: %s", why)
        self._over.set()

    def check(self) -> None:
        """Raise InvalidSettings if the worker is over before its first task, as each that takes its place would be."""
        if self._max_memory is not None and (used := memory_used()) > self._max_memory:
            raise InvalidSettings(
                f"max_memory {self._max_memory:,} is less than the {used:,} bytes that this worker uses before its "
                f"first task; allow it more"
            )

    async def keep(self) -> None:
        """Return when the worker is to leave."""
        while self._max_memory is not None and not self._over.is_set():
            used = memory_used()
            if used > self._max_memory:
                self._recycle(f"it uses {used:,} bytes of memory, and {self._max_memory:,} is the most")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _LOOK_INTERVAL)
        await self._over.wait()

    def _recycle(self, why: str) -> None:
        self.recycles = True
        self.end(why)


def memory_used() -> int:
    """How much memory this process uses, in bytes; where that cannot be told, the most that it has used."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        try:
            import resource
        except ImportError:
            return 0
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
