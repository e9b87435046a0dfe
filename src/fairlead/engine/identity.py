"""Where new ids and lease tokens come from."""

from __future__ import annotations

import base64
import itertools
import os
import random
import threading
from collections.abc import Sequence
from typing import Protocol

from fairlead.core.identity import NOISE_BITS, LeaseToken, TaskId, slot_of, task_id, tick_of
from fairlead.core.instant import Instant

_TOKEN_BYTES = 15
_NOISE_BYTES = NOISE_BITS // 8
_PAGE_BYTES = 4096


class Chance(Protocol):
    """A source of randomness; `random.Random` is one."""

    def random(self) -> float: ...

    def getrandbits(self, k: int, /) -> int: ...

    def randbytes(self, n: int, /) -> bytes: ...


class _Urn(random.SystemRandom):
    """The system's randomness, drawn a page at a time: asking the system for every id would cost more than the id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._page = b""
        self._at = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def randbytes(self, n: int) -> bytes:
        with self._lock:
            start, end = self._at, self._at + n
            if end > len(self._page):
                self._page = os.urandom(max(n, _PAGE_BYTES))
                start, end = 0, n
            self._at = end
            return self._page[start:end]

    def getrandbits(self, k: int) -> int:
        size = (k + 7) // 8
        return int.from_bytes(self.randbytes(size)) >> (size * 8 - k)

    def _forget(self) -> None:
        """A child of a fork must not draw what its parent draws; nor wait for a lock that nobody holds there."""
        self._lock = threading.Lock()
        self._page = b""


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
        return task_id(tick, slot_of(queue), int.from_bytes(self._chance.randbytes(_NOISE_BYTES)))

    def task_ids(self, queues: Sequence[str], at: Instant) -> list[TaskId]:
        """One id for each of these queues, in their order."""
        if len(queues) == 1:
            return [self.task_id(queues[0], at)]
        with self._lock:
            first = max(tick_of(at), self._last + 1)
            self._last = first + len(queues) - 1
        # Drawn for the whole batch at once, and nothing is kept for the next: a fork would repeat it.
        noise = self._chance.randbytes(len(queues) * _NOISE_BYTES)
        slots = {queue: slot_of(queue) for queue in set(queues)}
        return [
            task_id(tick, slots[queue], int.from_bytes(noise[start : start + _NOISE_BYTES]))
            for tick, queue, start in zip(itertools.count(first), queues, range(0, len(noise), _NOISE_BYTES))
        ]

    def serial(self, at: Instant) -> str:
        """Sixteen hexadecimal digits for what is not a task; they sort by time."""
        return f"{at // 1_000:011x}{self._chance.getrandbits(20):05x}"

    def token(self) -> LeaseToken:
        """A lease token: 120 bits that were never used and never will be."""
        return LeaseToken(base64.urlsafe_b64encode(self._chance.randbytes(_TOKEN_BYTES)).decode())
