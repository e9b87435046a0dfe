"""What the task of each number is: the producers, the handlers and the checker agree by asking here."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from fairlead.core.instant import MILLISECOND, Span
from fairlead.core.task import Priority

MOST_RETRIES: Final = 2
"""Of every task of a campaign."""
TYPES: Final = ("in_coroutine", "in_thread", "isolated", "stumble", "in_coroutine", "in_thread", "isolated", "never")
"""By number: most complete, a `stumble` fails at its first attempt, a `never` at every one."""
_DELAY: Final = 700 * MILLISECOND


class Plan(Struct, frozen=True):
    """What a number stands for."""

    type: str
    priority: Priority
    delay: Span = 0

    @property
    def place(self) -> str:
        """Where its handler runs: each place has slots of its own, and so a line of its own."""
        return {"in_thread": "thread", "isolated": "process"}.get(self.type, "loop")


def plan(number: int) -> Plan:
    """The same answer for the same number, wherever it is asked."""
    priority = Priority(number // len(TYPES) % len(Priority))
    return Plan(TYPES[number % len(TYPES)], priority, _DELAY if number % 11 == 0 else 0)
