"""Stores that add wrongly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.task import State, Task
from fairlead.storage.values import (
    Change,
    Full,
    KeyHeld,
    Known,
    Receipt,
    Verdict,
)
from fairlead.testing.steps import contents
from tests.conformance.wrong_store import GAP, WrongStore


class ReencodesParameters(WrongStore):
    """Decodes parameters and encodes them again."""

    breaks = "A1"

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        return await super().add([_reencoded(task) for task in tasks], now=now, bounds=bounds)


def _reencoded(task: Task) -> Task:
    try:
        parameters = json.dumps(json.loads(task.spec.parameters)).encode()
    except ValueError:
        return task
    return Task(replace(task.spec, parameters=parameters), task.status)


class CutsAtNul(WrongStore):
    """Keeps bytes as text that ends at the first NUL."""

    breaks = "A1"

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        cut = [Task(replace(task.spec, parameters=task.spec.parameters.split(b"\0")[0]), task.status) for task in tasks]
        return await super().add(cut, now=now, bounds=bounds)


class OverwritesAStoredId(WrongStore):
    """Takes the later of two tasks with one id."""

    breaks = "A2"

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        receipts = await super().add(tasks, now=now, bounds=bounds)
        for task, receipt in zip(tasks, receipts, strict=True):
            if receipt == Known():
                await self._force(task, task.status)
        return receipts


class LosesTheKeyOfARunningTask(WrongStore):
    """Looks for keys among waiting tasks only."""

    breaks = "A3"

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        receipts = await super().add(tasks, now=now, bounds=bounds)
        for at, (task, receipt) in enumerate(zip(tasks, receipts, strict=True)):
            if isinstance(receipt, KeyHeld):
                (holder,) = await self.get([receipt.holder])
                if holder is not None and not holder.state.waiting:
                    keyless = Task(replace(task.spec, idempotency_key=None), task.status)
                    (receipts[at],) = await super().add([keyless], now=now, bounds=bounds)
        return receipts


class ForgetsTheQueueOfAKey(WrongStore):
    """Holds a key for all queues."""

    breaks = "A3"

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        receipts: list[Receipt] = []
        for task in tasks:
            key = task.spec.idempotency_key
            held = [other for other in await contents(self) if key is not None and other.spec.idempotency_key == key]
            if held and held[0].id != task.id:
                receipts.append(KeyHeld(held[0].id))
            else:
                receipts += await super().add([task], now=now, bounds=bounds)
        return receipts


class ChecksKeysBeforeItAdds(WrongStore):
    """Looks whether a key is held in one step and takes it in another."""

    breaks = "A3"

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        receipts: list[Receipt] = []
        for task in tasks:
            key = (task.spec.queue, task.spec.idempotency_key)
            holders = [
                other.id
                for other in await contents(self)
                if key[1] is not None and (other.spec.queue, other.spec.idempotency_key) == key
            ]
            await asyncio.sleep(GAP)
            if holders and holders[0] != task.id:
                receipts.append(KeyHeld(holders[0]))
                continue
            receipts += await super().add([_without_key(task)], now=now, bounds=bounds)
            self._tasks[task.id] = task
        return receipts


def _without_key(task: Task) -> Task:
    return Task(replace(task.spec, idempotency_key=None, key_until=None), task.status)


class NeverFreesAKey(WrongStore):
    """Does not look at `key_until`."""

    breaks = "A4"

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        return await super().add(tasks, now=0, bounds=bounds)


class HoldsAKeyAtItsEnd(WrongStore):
    """Frees a key one moment too late."""

    breaks = "A4"

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        return await super().add(tasks, now=(now or 0) - 1, bounds=bounds)


class KeepsTheKeyOfARemovedTask(WrongStore):
    """Frees a key by its time only."""

    breaks = "A4"

    def __init__(self) -> None:
        super().__init__()
        self._ever: dict[tuple[str, str], Task] = {}

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        receipts: list[Receipt] = []
        for task in tasks:
            key = (task.spec.queue, task.spec.idempotency_key or "")
            holder = self._ever.get(key)
            if holder and holder.id != task.id and (holder.spec.key_until or 0) > (now or 0):
                receipts.append(KeyHeld(holder.id))
                continue
            receipts += await super().add([task], now=now, bounds=bounds)
            if task.spec.idempotency_key is not None:
                self._ever[key] = task
        return receipts


class RemovesTheKeyOfTheNewHolder(WrongStore):
    """Frees a key by its name, whoever holds it now."""

    breaks = "A4"

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        before = await self.get([change.id for change in changes])
        verdicts = await super().apply(changes)
        for task, change in zip(before, changes, strict=True):
            if task is not None and change.status is None:
                self._keys.pop((task.spec.queue, task.spec.idempotency_key or ""), None)
        return verdicts


class TellsTheLastHolderOfAKey(WrongStore):
    """Names whoever had the key last, whether it is still held or not."""

    breaks = "A7"

    async def holder(self, queue: str, key: str, *, now: Instant | None = None) -> TaskId | None:
        return self._keys.get((queue, key))


class LetsOneTooManyIn(WrongStore):
    """Compares with the bound the wrong way."""

    breaks = "A5"

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        return await super().add(tasks, now=now, bounds={queue: bound + 1 for queue, bound in bounds.items()})


class CountsExecutingTasks(WrongStore):
    """Counts tasks towards the bound that no longer wait."""

    breaks = "A5"

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        executing = [task.spec.queue for task in await contents(self) if task.state is State.EXECUTING]
        narrowed = {queue: bound - executing.count(queue) for queue, bound in bounds.items()}
        return await super().add(tasks, now=now, bounds=narrowed)


class CountsBeforeTheBatch(WrongStore):
    """Counts once for the whole call."""

    breaks = "A5"

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        waiting = [task.spec.queue for task in await contents(self) if task.state.waiting]
        full = {queue: bound for queue, bound in bounds.items() if waiting.count(queue) >= bound}
        return await super().add(tasks, now=now, bounds=full)


class RefusesKnownTasks(WrongStore):
    """Looks at the bound before anything else."""

    breaks = "A5"

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        receipts: list[Receipt] = []
        for task in tasks:
            bound = bounds.get(task.spec.queue)
            depth = sum(other.state.waiting and other.spec.queue == task.spec.queue for other in await contents(self))
            if bound is not None and depth >= bound:
                receipts.append(Full(depth, bound))
            else:
                receipts += await super().add([task], now=now, bounds={})
        return receipts
