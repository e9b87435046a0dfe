"""A line in which tasks take turns, as a claim goes through it: its oldest task, and the one whose turn it is.

Fair tasks are in lanes of their own, each in two orders, by age and by turn. What is taken by one order is passed over
in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from fairlead.core.identity import TaskId
from fairlead.core.queues.fairness import LineTurns, after_fair, after_others
from fairlead.storage.lane_merge import Head


class _HasHead(Protocol):
    """The front of one lane."""

    @property
    def head(self) -> Head | None: ...

    def take(self) -> None: ...


Front = TypeVar("Front", bound=_HasHead)
_Given = TypeVar("_Given", bound=_HasHead, covariant=True)


class FairEntries(Struct):
    """The lanes of fair tasks of one queue and priority, each in both orders, and how far their turns have come."""

    by_age: Iterator[tuple[int, TaskId, Any]]
    by_turn: Iterator[tuple[int, TaskId, Any]]
    turns: LineTurns


class Fronts(Protocol[_Given]):
    """Lanes in one order, the one with the best head in front."""

    def best(self) -> _Given | None:
        """The lane that has the best head."""
        ...

    def moved(self) -> None:
        """That lane has another head now."""
        ...

    def drop(self) -> None:
        """Nothing more is taken of that lane."""
        ...


class FairLine(Generic[Front]):
    """The waiting tasks of a queue and priority, of which some have fair keys.

    What is said of its head is said of the one that was last asked for.
    """

    def __init__(
        self,
        others: Fronts[Front],
        entries: tuple[Fronts[Front], Fronts[Front]],
        turns: LineTurns,
        may_take: Callable[[Front], bool | None],
    ) -> None:
        """`entries` are the fair lanes by age and by turn.

        `may_take` says whether the head of a front may be taken now; if not, the front has been told so and has
        another one. It says None if nothing of that lane may be taken.
        """
        self._others = others
        self._by_age, self._by_turn = entries
        self._may_take = may_take
        self._gone: set[TaskId] = set()
        self._of = others
        self.turns = turns

    def best(self) -> Front | None:
        """The lane of the oldest task."""
        fair, other = self._front_of(self._by_age), self._front_of(self._others)
        if fair is None or (other is not None and _place(other) < _place(fair)):
            self._of = self._others
            return other
        self._of = self._by_age
        return fair

    def next(self) -> Front | None:
        """The lane of the task whose turn it is."""
        fair, other = self._front_of(self._by_turn), self._front_of(self._others)
        if fair is None or (other is not None and (self.turns.turn_of_others, _place(other)[1]) < _place(fair)):
            self._of = self._others
            return other
        self._of = self._by_turn
        return fair

    def served(self, *, by_age: bool) -> None:
        """Take note that the head is being served, by its age or by its turn."""
        front = self._of.best()
        if front is None:
            return
        turn, task_id = _place(front)
        if self._of is not self._others:
            self._gone.add(task_id)
        if by_age:
            return
        if self._of is self._others:
            self.turns = after_others(self.turns, fair_wait=self._front_of(self._by_turn) is not None)
        else:
            self.turns = after_fair(self.turns, turn, others_wait=self._front_of(self._others) is not None)

    def moved(self) -> None:
        """The lane of the head has another one now."""
        self._of.moved()

    def drop(self) -> None:
        """Nothing more is taken of the lane of the head."""
        self._of.drop()

    def _front_of(self, fronts: Fronts[Front]) -> Front | None:
        """The best of these whose head is still there and may be taken now."""
        while (front := fronts.best()) is not None:
            if _place(front)[1] in self._gone:
                front.take()
                fronts.moved()
                continue
            may_take = self._may_take(front)
            if may_take:
                return front
            if may_take is None:
                fronts.drop()
            else:
                fronts.moved()
        return None


def _place(front: _HasHead) -> tuple[int, TaskId]:
    assert front.head is not None  # noqa: S101 - a front without a head is in no line
    return front.head[0], front.head[1]
