"""Notices a coroutine that blocks the event loop, from a thread beside it: the loop itself cannot tell meanwhile."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from fairlead.engine.runtime.telemetry import Logger

log = Logger("fairlead.worker")

BLOCKED: Final = 1.0
"""From how many seconds on a blocked loop is worth a warning."""
_LOOK_INTERVAL: Final = 0.25


class LoopWatch:
    """Warns once of each time that the event loop is blocked for longer than a second."""

    def __init__(self, name_of: Callable[[asyncio.Task[Any] | None], str], clock: Callable[[], float]) -> None:
        """`name_of` names what runs in a task of the loop; asked for in the thread."""
        self._name_of = name_of
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._turn_at = 0.0
        self._told_of = 0.0
        self._busy = threading.Event()
        self._ended = False

    def start(self) -> None:
        """Watch the running loop."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        threading.Thread(target=self._run, name="fairlead-loop-watch", daemon=True).start()

    def turn(self) -> None:
        """The loop has come round; called often while anything runs."""
        self._turn_at = self._clock()
        if not self._busy.is_set():
            self._busy.set()

    def rest(self) -> None:
        """Nothing runs that could block it."""
        self._busy.clear()

    def close(self) -> None:
        """Watch no more."""
        self._ended = True
        self._busy.set()

    def once(self) -> None:
        """Look whether the loop is blocked, and warn if it is and nobody has yet."""
        turn_at = self._turn_at
        took = self._clock() - turn_at
        if took <= BLOCKED or not self._busy.is_set() or self._told_of == turn_at or self._loop is None or self._ended:
            return
        frame = sys._current_frames().get(self._thread)
        if frame is None or self._turn_at != turn_at:
            return
        self._told_of = turn_at
        log.warning(
            "%s has blocked the event loop for %.1f s, at %s: meanwhile no other coroutine of this worker goes on; "
            "await something, or make it a plain def, which runs in a thread",
            self._name_of(asyncio.current_task(self._loop)),
            took,
            _place(frame),
        )

    def _run(self) -> None:
        while not self._ended:
            self._busy.wait()
            self.once()
            time.sleep(_LOOK_INTERVAL)


def _place(frame: FrameType) -> str:
    """Where the loop's thread is."""
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}"
