"""Where a task stands that shares its line by turns: who is served before it, if nothing ends.

A line is the waiting tasks of one queue and priority; `fairlead.core.queues.fairness` has the words and the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fairlead.core.queues.fairness import STEP, LineTurns
from fairlead.core.queues.order import Share


def turn_of_other(line: LineTurns, before: int) -> int:
    """The turn of a task without a fair key that has so many of these before it, while fair tasks wait."""
    return line.turn_of_others + before * STEP


def others_before(line: LineTurns, turn: int, waiting: int) -> int:
    """How many of so many waiting tasks without a fair key are served before a fair task with this turn.

    One that has the same turn is not counted: then their ids decide.
    """
    first = line.turn_of_others
    return 0 if turn <= first else min(waiting, -(-(turn - first) // STEP))


def is_tied(line: LineTurns, turn: int, waiting: int) -> bool:
    """Whether a task without a fair key has the same turn, so that their ids decide."""
    behind = turn - line.turn_of_others
    return behind >= 0 and behind % STEP == 0 and behind // STEP < waiting


def own_before(line: LineTurns, turn: int, step: int, waiting: int) -> int:
    """How many of a key's waiting tasks are before its task with this turn.

    A key that has tasks waiting has its turns one step apart, and the first at most a step beyond what is reached.
    """
    return max(0, min(waiting - 1, -(-(turn - line.reached) // step) - 1))


def promoted_between(share: Share, ahead: int, promoted: int, passed: int) -> int:
    """How many of so many promoted tasks behind it are served before one that has so many ahead, at most."""
    return min(promoted, share.promoted_before(ahead, min(passed, share.due)))


NOISY_FROM: Final = 100
"""From how many waiting tasks on a key may be said to be noisy."""
_NOISY_PART: Final = 0.8


def is_noisy(waiting: int, of_all: int) -> bool:
    """Whether a key that has so many of all waiting tasks of a queue is a noisy neighbour: nearly all are its own."""
    return NOISY_FROM <= waiting < of_all and waiting > of_all * _NOISY_PART


def starts_in(weight: float, weights: Mapping[str, float], *, others: int, default: float, unkeyed: bool) -> float:
    """One of how many starts a key has, if its line is shared with keys of these weights.

    `weights` are those of the keys that are known, `others` is how many more there are, of the default weight, and
    `unkeyed` whether tasks without a fair key wait, which are together one key of weight 1.
    """
    return (sum(weights.values()) + others * default + unkeyed) / weight
