"""Where new ids and lease tokens come from."""

from __future__ import annotations

import base64
import io
import itertools
import os
import random
import threading
from collections.abc import Sequence
from typing import Protocol

from fairlead.core.identity import NOISE_BYTES, LeaseToken, TaskId, slot_of, task_id, tick_of
from fairlead.core.instant import Instant

_TOKEN_BYTES = 15
_PAGE_BYTES = 4096


class Chance(Protocol):
    """A source of randomness; `random.Random` is one."""

    def random(self) -> float: ...

    def getrandbits(self, k: int, /) -> int: ...

    def randbytes(self, n: int, /) -> bytes: ...


class _Urn(random.SystemRandom):
    """The system's randomness, drawn a page at a time: asking the system for every id would cost more than the id.

    A page is read by single calls of C, so that no two threads read the same of it.
    """

    def __init__(self) -> None:
        self._page = io.BytesIO()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def randbytes(self, n: int) -> bytes:
        drawn = self._page.read(n)
        if len(drawn) < n:
            page = io.BytesIO(os.urandom(max(n, _PAGE_BYTES)))
            drawn = page.read(n)
            self._page = page
        return drawn

    def getrandbits(self, k: int) -> int:
        size = (k + 7) // 8
        return int.from_bytes(self.randbytes(size)) >> (size * 8 - k)

    def _forget(self) -> None:
        """A child of a fork must not draw what its parent draws."""
        self._page = io.BytesIO()


_URN = _Urn()


def system_chance() -> Chance:
    """Randomness that no one can predict, and that a fork does not repeat."""
    return _URN


class IdMaker:
    """Makes task ids that sort in the order they were made, within a process, whatever the clock does."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._lock = threading.Lock()
        self._last = 0

    def task_id(self, queue: str, at: Instant) -> TaskId:
        tick = tick_of(at)
        with self._lock:
            if tick <= self._last:
                tick = self._last + 1
            self._last = tick
        return task_id(tick, slot_of(queue), self._chance.randbytes(NOISE_BYTES))

    def task_ids(self, queues: Sequence[str], at: Instant) -> list[TaskId]:
        """One id for each of these queues, in their order."""
        if len(queues) == 1:
            return [self.task_id(queues[0], at)]
        with self._lock:
            first = max(tick_of(at), self._last + 1)
            self._last = first + len(queues) - 1
        # Drawn for the whole batch at once, and nothing is kept for the next: a fork would repeat it.
        noise = self._chance.randbytes(len(queues) * NOISE_BYTES)
        slots = {queue: slot_of(queue) for queue in set(queues)}
        return [
            task_id(tick, slots[queue], noise[start : start + NOISE_BYTES])
            for tick, queue, start in zip(itertools.count(first), queues, range(0, len(noise), NOISE_BYTES))
        ]

    def serial(self, at: Instant) -> str:
        """Sixteen hexadecimal digits for what is not a task; they sort by time."""
        return f"{at // 1_000:011x}{self._chance.getrandbits(20):05x}"

    def token(self) -> LeaseToken:
        """A lease token: 120 bits that were never used and never will be."""
        return LeaseToken(base64.urlsafe_b64encode(self._chance.randbytes(_TOKEN_BYTES)).decode())
