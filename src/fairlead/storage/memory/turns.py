"""The turns of fair tasks in a memory store: how far each line has come, and what each key was given last."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from fairlead.core.identity import TaskId
from fairlead.core.queues.fairness import LineTurns, comes_to_be_queued, queue_turn
from fairlead.core.task import QUEUED, Priority, Spec, Status
from fairlead.storage.memory.alarm_heap import wants_compacting
from fairlead.storage.values import LineKeys

_START: Final = LineTurns()


class _Key:
    """The waiting tasks of a key in one line."""

    def __init__(self) -> None:
        self.given: list[tuple[int, TaskId]] = []
        """Turns and tasks in their order; those that wait no more are stale, but for the last one."""
        self.waiting = 0


class _FairLine:
    """The fair tasks of one queue and priority."""

    def __init__(self) -> None:
        self.turns = _START
        self.keys: dict[str, _Key] = {}


class FairTurns:
    """The turns of one memory store. The owner holds the lock."""

    def __init__(self, turn_of: Callable[[TaskId, Priority], int | None]) -> None:
        """`turn_of` says which turn a task that waits at a priority has now; None for one that does not."""
        self._turn_of = turn_of
        self._lines: dict[tuple[str, Priority], _FairLine] = {}

    def of(self, queue: str, priority: Priority) -> LineTurns:
        """How far the turns of a line have come."""
        line = self._lines.get((queue, priority))
        return _START if line is None else line.turns

    def fair(self, queue: str) -> list[Priority]:
        """The priorities at which fair tasks wait in a queue."""
        return [priority for priority in Priority if (queue, priority) in self._lines]

    def keys(self, queue: str, priority: Priority, named: Sequence[str], most: int) -> LineKeys:
        """Who waits in a line."""
        line = self._lines.get((queue, priority))
        if line is None:
            return LineKeys()
        counts = {key: line.keys[key].waiting for key in named if key in line.keys}
        others = sorted((key for key in line.keys if key not in counts), key=lambda key: (-line.keys[key].waiting, key))
        counts |= {key: line.keys[key].waiting for key in others[:most]}
        return LineKeys(line.turns, len(line.keys), counts)

    def reach(self, lines: Mapping[tuple[str, Priority], LineTurns]) -> None:
        """Take note of how far a claim has come."""
        for name, turns in lines.items():
            if name in self._lines:
                self._lines[name].turns = turns

    def given(self, spec: Spec, before: Status | None, after: Status) -> Status:
        """How a fair task stands with its turn, if it comes to be queued by standing like this."""
        if spec.fair is None or not spec.takes_turns:
            return after
        if not comes_to_be_queued(before, after):
            stays = before is not None and after.state is QUEUED
            return replace(after, turn=before.turn) if before is not None and stays else after
        line = self._lines.setdefault((spec.queue, after.priority), _FairLine())
        key = line.keys.setdefault(spec.fair.key, _Key())
        last = key.given[-1][0] if key.waiting else 0
        turn = queue_turn(after.turn, line.turns.reached, last, spec.fair.step)
        insort(key.given, (turn, spec.id))
        key.waiting += 1
        return replace(after, turn=turn)

    def left(self, spec: Spec, before: Status, after: Status | None) -> None:
        """Take note that a fair task waits no more in its line, once the store knows how it stands."""
        if spec.fair is None or not spec.takes_turns or not comes_to_be_queued(after, before):
            return
        name = spec.queue, before.priority
        line = self._lines[name]
        key = line.keys[spec.fair.key]
        key.waiting -= 1
        if key.waiting:
            self._forget_stale(key, before.priority)
            return
        del line.keys[spec.fair.key]
        if not line.keys:
            del self._lines[name]

    def _forget_stale(self, key: _Key, priority: Priority) -> None:
        """Have the last turn be that of a task that waits."""
        given = key.given
        while self._turn_of(given[-1][1], priority) != given[-1][0]:
            given.pop()
        if wants_compacting(len(given), key.waiting):
            key.given = [(turn, task) for turn, task in given if self._turn_of(task, priority) == turn]
