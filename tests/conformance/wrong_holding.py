"""Stores that renew leases or make changes wrongly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.task import State, Task
from fairlead.storage.values import (
    Beat,
    Change,
    Filter,
    Held,
    Pulse,
    Seen,
    Verdict,
)
from fairlead.testing.builders import NOW, seen
from fairlead.testing.steps import contents
from tests.conformance.wrong_store import GAP, WrongStore


class GoesByTheCallersClock(WrongStore):
    """Renews leases from when its caller thinks it is."""

    breaks = "T1"

    async def extend(
        self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None = None
    ) -> list[Pulse]:
        return await super().extend(beats, lease=lease, grace=grace, now=NOW if now is None else now)


class CutsTheAlarmAlone(WrongStore):
    """Leaves the end of a lease that is cut where it was."""

    breaks = "T2"

    async def curtail(self, *, lease: Span, limit: int, now: Instant | None = None) -> int:
        before = await contents(self)
        cut = await super().curtail(lease=lease, limit=limit, now=now)
        for task in before:
            (after,) = await self.get([task.id])
            if after is not None and after.status.lease != task.status.lease:
                await self._force(after, replace(after.status, lease=task.status.lease))
        return cut


class ExtendsPastTheTimeout(WrongStore):
    """Gives a worker that hangs all the time it wants."""

    breaks = "H1"

    async def extend(
        self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None = None
    ) -> list[Pulse]:
        return await super().extend(beats, lease=lease, grace=2**50, now=now)


class NeverMovesTheLeaseBack(WrongStore):
    """Leaves a lease that ends late as it is, as after a clock went back."""

    breaks = "H1"

    async def extend(
        self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None = None
    ) -> list[Pulse]:
        ends = {task.id: task.status.alarm or 0 for task in await contents(self)}
        pulses = await super().extend(beats, lease=lease, grace=grace, now=now)
        for beat, pulse in zip(beats, pulses, strict=True):
            (task,) = await self.get([beat.id])
            if pulse is not Pulse.LOST and task is not None and task.status.lease is not None:
                end = max(task.status.lease.until, ends[beat.id])
                await self._force(task, replace(task.status, alarm=end, lease=replace(task.status.lease, until=end)))
        return pulses


class LeavesTheAlarm(WrongStore):
    """Moves the lease, but not the alarm that guards it."""

    breaks = "H1"

    async def extend(
        self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None = None
    ) -> list[Pulse]:
        before = {task.id: task.status.alarm for task in await contents(self)}
        pulses = await super().extend(beats, lease=lease, grace=grace, now=now)
        for beat, pulse in zip(beats, pulses, strict=True):
            (task,) = await self.get([beat.id])
            if pulse is not Pulse.LOST and task is not None:
                await self._force(task, replace(task.status, alarm=before[task.id]))
        return pulses


class DropsOldProgress(WrongStore):
    """Takes a heartbeat without a report for an empty report."""

    breaks = "H1"

    async def extend(
        self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None = None
    ) -> list[Pulse]:
        pulses = await super().extend(beats, lease=lease, grace=grace, now=now)
        for beat, pulse in zip(beats, pulses, strict=True):
            (task,) = await self.get([beat.id])
            if pulse is not Pulse.LOST and task is not None:
                await self._force(task, replace(task.status, progress=beat.progress))
        return pulses


class DoesNotTellOfCancel(WrongStore):
    """Answers that all is well."""

    breaks = "H2"

    async def extend(
        self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None = None
    ) -> list[Pulse]:
        pulses = await super().extend(beats, lease=lease, grace=grace, now=now)
        return [Pulse.HELD if pulse is Pulse.CANCEL else pulse for pulse in pulses]


class ResurrectsALostLease(WrongStore):
    """Lets a late heartbeat take back a task that was swept."""

    breaks = "H3"

    async def extend(
        self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None = None
    ) -> list[Pulse]:
        pulses = await super().extend(beats, lease=lease, grace=grace, now=now)
        for at, (beat, pulse) in enumerate(zip(beats, pulses, strict=True)):
            (task,) = await self.get([beat.id])
            if pulse is Pulse.LOST and task is not None and task.state.waiting and task.status.attempts:
                await self._force(task, replace(task.status, state=State.EXECUTING, alarm=(now or 0) + lease))
                pulses[at] = Pulse.HELD
        return pulses


class KeepsProgressOfALostLease(WrongStore):
    """Fences the lease, but not the report that comes with the heartbeat."""

    breaks = "H3"

    async def extend(
        self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None = None
    ) -> list[Pulse]:
        pulses = await super().extend(beats, lease=lease, grace=grace, now=now)
        for beat, pulse in zip(beats, pulses, strict=True):
            (task,) = await self.get([beat.id])
            if pulse is Pulse.LOST and task is not None and beat.progress is not None:
                await self._force(task, replace(task.status, progress=beat.progress))
        return pulses


class MergesTheStatus(WrongStore):
    """Leaves what a change does not mention."""

    breaks = "G1"

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        before = {task.id: task for task in await contents(self)}
        verdicts = await super().apply(changes)
        for change, verdict in zip(changes, verdicts, strict=True):
            task = before.get(change.id)
            if verdict is Verdict.APPLIED and change.status is not None and task is not None:
                kept = change.status.failure or task.status.failure
                await self._force(task, replace(change.status, failure=kept))
        return verdicts


class ForgetsTheFence(WrongStore):
    """Lets anyone settle who knows the version."""

    breaks = "G2"

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for change in changes:
            (task,) = await self.get([change.id])
            if isinstance(change.guard, Held) and task is not None and task.status.lease is not None:
                change = replace(change, guard=Held(change.guard.version, task.status.lease.token))
            verdicts += await super().apply([change])
        return verdicts


class IgnoresTheHoldersVersion(WrongStore):
    """Lets a holder settle over a decision that it has not seen."""

    breaks = "G2"

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for change in changes:
            (task,) = await self.get([change.id])
            if isinstance(change.guard, Held) and task is not None:
                change = replace(change, guard=Held(task.status.version, change.guard.token))
            verdicts += await super().apply([change])
        return verdicts


class IgnoresBeats(WrongStore):
    """Lets a sweep take a task from a worker that is alive."""

    breaks = "G2"

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for change in changes:
            (task,) = await self.get([change.id])
            if isinstance(change.guard, Seen) and task is not None:
                change = replace(change, guard=Seen(change.guard.version, task.status.beats))
            verdicts += await super().apply([change])
        return verdicts


class ChecksBeforeItChanges(WrongStore):
    """Compares in one step and sets in another."""

    breaks = "G2"

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for change in changes:
            (task,) = await self.get([change.id])
            await asyncio.sleep(GAP)
            if isinstance(change.guard, Seen) and task is not None and change.guard == seen(task):
                (now,) = await self.get([change.id])
                change = change if now is None else replace(change, guard=seen(now))
            verdicts += await super().apply([change])
        return verdicts


class TakesAnySettleForARepetition(WrongStore):
    """Acknowledges whatever a former holder says."""

    breaks = "G3"

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        verdicts = await super().apply(changes)
        tasks = await self.get([change.id for change in changes])
        return [
            Verdict.REPEATED
            if verdict is Verdict.STALE and isinstance(change.guard, Held) and task is not None and task.status.settled
            else verdict
            for change, verdict, task in zip(changes, verdicts, tasks, strict=True)
        ]


class RefusesARepetition(WrongStore):
    """Tells a worker whose first answer was lost that its lease is."""

    breaks = "G3"

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        verdicts = await super().apply(changes)
        return [Verdict.STALE if verdict is Verdict.REPEATED else verdict for verdict in verdicts]


class CallsAMissingTaskStale(WrongStore):
    """Cannot tell what is gone from what has changed."""

    breaks = "G3"

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        verdicts = await super().apply(changes)
        return [Verdict.STALE if verdict is Verdict.MISSING else verdict for verdict in verdicts]


class SortsChanges(WrongStore):
    """Applies changes in the order of their ids and versions."""

    breaks = "G4"

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        order = sorted(range(len(changes)), key=lambda at: (changes[at].id, changes[at].guard.version))
        verdicts = await super().apply([changes[at] for at in order])
        answers = dict(zip(order, verdicts, strict=True))
        return [answers[at] for at in range(len(changes))]


class FindsARemovedTask(WrongStore):
    """Leaves removed tasks in its listing."""

    breaks = "G5"

    def __init__(self) -> None:
        super().__init__()
        self._ghosts: list[Task] = []

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        before = await self.get([change.id for change in changes])
        verdicts = await super().apply(changes)
        for task, change, verdict in zip(before, changes, verdicts, strict=True):
            if task is not None and change.status is None and verdict is Verdict.APPLIED:
                self._ghosts.append(task)
        return verdicts

    async def find(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        found = await super().find(matching, limit=limit, newest_first=newest_first, after=after)
        return [*found, *(ghost for ghost in self._ghosts if matching.admits(ghost))][:limit]
