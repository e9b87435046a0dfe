"""Stores that give turns wrongly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace

from fairlead.core.instant import Instant
from fairlead.core.queues.fairness import LineTurns
from fairlead.core.queues.order import Share
from fairlead.core.task import Fair, Priority, Spec, Status, Task
from fairlead.storage.memory.turns import FairTurns
from fairlead.storage.values import Claim, LineKeys, Receipt, Stretch
from tests.conformance.wrong_store import WrongStore


class _WithTurns(WrongStore):
    """Has turns of its own."""

    turns: ClassVar[type[FairTurns]]

    def __init__(self) -> None:
        super().__init__()
        self._turns = self._limiter._turns = self.turns(self._lanes.turn_of)


class _OneStep(FairTurns):
    def given(self, spec: Spec, before: Status | None, after: Status) -> Status:
        return super().given(spec if spec.fair is None else replace(spec, fair=Fair(spec.fair.key)), before, after)


class IgnoresWeights(_WithTurns):
    breaks: ClassVar[str] = "S1"
    turns = _OneStep


class GivesTurnsBackwards(WrongStore):
    breaks: ClassVar[str] = "S2"

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        return (await super().add(tasks[::-1], now=now, bounds=bounds))[::-1]


class ServesThePromotedFirst(WrongStore):
    breaks: ClassVar[str] = "S3"

    async def claim(self, claim: Claim) -> list[Task]:
        first = [order if order.share is None else replace(order, share=Share(1, True)) for order in claim.queues]
        return await super().claim(replace(claim, queues=tuple(first)))


class _Standing(FairTurns):
    def reach(self, lines: Mapping[tuple[str, Priority], LineTurns]) -> None:
        del lines


class StaysWhereItBegan(_WithTurns):
    breaks: ClassVar[str] = "S4"
    turns = _Standing


class CountsTasksForKeys(WrongStore):
    breaks: ClassVar[str] = "S5"

    async def line_keys(self, queue: str, priority: Priority, *, named: Sequence[str] = (), most: int = 0) -> LineKeys:
        line = await super().line_keys(queue, priority, named=named, most=most)
        return replace(line, keys=sum(line.waiting.values()))


class CountsByAgeOnly(WrongStore):
    breaks: ClassVar[str] = "S6"

    async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
        return await super().count([replace(each, by_turn=False) for each in stretches], most)
