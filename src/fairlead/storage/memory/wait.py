"""Waiting for work: who waits in which queues, and the rings that nobody was there to hear."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.task import QUEUED, Task

_RINGS_KEPT: Final = 64


class Sleeper(Struct, eq=False):
    """Someone who sleeps in a loop of their own until there may be work."""

    queues: frozenset[str]
    loop: asyncio.AbstractEventLoop
    rung: asyncio.Event


class Doorbell:
    """The doorbell of one memory store. The owner holds the lock."""

    def __init__(self) -> None:
        self._waiters: deque[Sleeper] = deque()
        self._rings: Counter[str] = Counter()

    def listen(self, queues: Sequence[str]) -> Sleeper | None:
        """The caller, who waits from now on; None if a ring was left for them."""
        for queue in queues:
            if self._rings[queue]:
                self._rings[queue] -= 1
                return None
        waiter = Sleeper(frozenset(queues), asyncio.get_running_loop(), asyncio.Event())
        self._waiters.append(waiter)
        return waiter

    def leave(self, waiter: Sleeper) -> None:
        """They wait no more."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def ring(self, tasks: Sequence[Task]) -> None:
        """Wake as many waiters as there are new ready tasks, or leave a ring for those about to wait."""
        for task in tasks:
            if task.status.state is not QUEUED:
                continue
            queue = task.spec.queue
            while self._waiters and (
                waiter := next((waiter for waiter in self._waiters if queue in waiter.queues), None)
            ):
                self._waiters.remove(waiter)
                if not waiter.loop.is_closed():
                    waiter.loop.call_soon_threadsafe(waiter.rung.set)
                    break
            else:
                self._rings[queue] = min(self._rings[queue] + 1, _RINGS_KEPT)

    def forget(self, queue: str) -> None:
        """A queue without tasks has no rings."""
        del self._rings[queue]
