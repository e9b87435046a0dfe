"""Where new ids and lease tokens come from."""

from __future__ import annotations

import base64
import random
import threading
from typing import Protocol

from fairlead.core.identity import NOISE_BITS, LeaseToken, TaskId, slot_of, task_id, tick_of
from fairlead.core.instant import Instant

_TOKEN_BYTES = 15


class Chance(Protocol):
    """A source of randomness; `random.Random` is one."""

    def random(self) -> float: ...

    def getrandbits(self, k: int, /) -> int: ...

    def randbytes(self, n: int, /) -> bytes: ...


def system_chance() -> Chance:
    """Randomness that no one can predict, and that a fork does not repeat."""
    return random.SystemRandom()


class IdMaker:
    """Makes task ids that sort in the order they were made, within a process, whatever the clock does."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._lock = threading.Lock()
        self._last = 0

    def task_id(self, queue: str, at: Instant) -> TaskId:
        with self._lock:
            self._last = tick = max(tick_of(at), self._last + 1)
        return task_id(tick, slot_of(queue), self._chance.getrandbits(NOISE_BITS))

    def token(self) -> LeaseToken:
        """A lease token: 120 bits that were never used and never will be."""
        return LeaseToken(base64.urlsafe_b64encode(self._chance.randbytes(_TOKEN_BYTES)).decode())
