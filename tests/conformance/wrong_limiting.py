"""Stores that keep to limits wrongly."""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from fairlead.core.queues.limits import Limit, Limits
from fairlead.core.task import Task
from fairlead.storage.values import Claim, QueueOrder, Usage, Used
from tests.conformance.wrong_store import WrongStore


class _OtherLimits(WrongStore):
    """Claims under limits of its own."""

    async def claim(self, claim: Claim) -> list[Task]:
        queues = tuple(replace(order, limits=self._limits(order)) for order in claim.queues)
        return await super().claim(replace(claim, queues=queues))

    def _limits(self, order: QueueOrder) -> Limits | None:
        return order.limits


class CountsNothing(_OtherLimits):
    """Lets any number run, but for keys."""

    breaks: ClassVar[str] = "L1"

    def _limits(self, order: QueueOrder) -> Limits | None:
        if order.limits is None:
            return None
        types = {name: Limit(None, limit.pace) for name, limit in order.limits.types.items()}
        return Limits(queue=Limit(None, order.limits.queue.pace), types=types, key=order.limits.key)


class IgnoresRates(_OtherLimits):
    breaks: ClassVar[str] = "L2"

    def _limits(self, order: QueueOrder) -> Limits | None:
        if order.limits is None:
            return None
        types = {name: Limit(limit.running) for name, limit in order.limits.types.items()}
        return Limits(queue=Limit(order.limits.queue.running), types=types, key=Limit(order.limits.key.running))


class LetsAFullTypeHoldTheOthers(WrongStore):
    breaks: ClassVar[str] = "L3"

    async def claim(self, claim: Claim) -> list[Task]:
        for order in claim.queues:
            for name, limit in order.limits.types.items() if order.limits else ():
                used = await self.usage(order.queue, name, None)
                if limit.running is not None and used.type.running >= limit.running:
                    return []
        return await super().claim(claim)


class KnowsNoKeysWithoutLimits(_OtherLimits):
    breaks: ClassVar[str] = "L4"

    def _limits(self, order: QueueOrder) -> Limits | None:
        return Limits(key=Limit()) if order.limits is None else order.limits


class KeepsToTheFirstLimits(_OtherLimits):
    breaks: ClassVar[str] = "L5"

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[str, Limits | None] = {}

    def _limits(self, order: QueueOrder) -> Limits | None:
        return self._first.setdefault(order.queue, order.limits)


class TellsOfNoKeys(WrongStore):
    breaks: ClassVar[str] = "L7"

    async def usage(self, queue: str, task_type: str, key: str | None) -> Usage:
        return replace(await super().usage(queue, task_type, key), key=Used())
