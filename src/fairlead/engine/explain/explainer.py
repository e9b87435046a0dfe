"""Explaining: why a task waits, or ran when it ran. What may hold a task back is asked of `causes`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from fairlead.core.explain.attempt_story import recount, retried_after
from fairlead.core.explain.explanation import Cause, CauseCode, Explanation, Forecast, sweep_is_late
from fairlead.core.health.unserved import Ability
from fairlead.core.instant import AT_ONCE, SECOND, Instant, Span, brief
from fairlead.core.queues.fairness import TENANT
from fairlead.core.queues.order import treated_as
from fairlead.core.queues.promotion import steady_table
from fairlead.core.task import Lane, Priority, Reason, State, Task
from fairlead.engine.changes import TaskChanges
from fairlead.engine.dependencies import released_at, unended
from fairlead.engine.explain.causes import SOURCES, Circumstances
from fairlead.engine.explain.counts import counted
from fairlead.engine.explain.eligibility import ability_of, able, can_run, names_of, of_kind, visible
from fairlead.engine.explain.fair_place import fair_cause, fair_place
from fairlead.engine.explain.forecast import lane_places, line_causes, place_of, placed, since_oldest, without_place
from fairlead.engine.explain.limits_left import limits_left
from fairlead.engine.explain.sight import Arrivals, Sight
from fairlead.engine.explain.starts import NAMED, free_slots
from fairlead.engine.metrics.throughput import HourRow, Spent, ended_per_second
from fairlead.engine.worker_records import WorkerRecord, WorkerRecords, WorkerState
from fairlead.storage.values import LaneTally

_LEAST_LEFT: Final = 0.1
"""How many of their slots workers have left for others' tasks at least, as a part: rates are of late, and guesses."""
_NOT_IN_LINE: Final = "it has no place in line before it is due"


class Explainer:
    """Explains the tasks of one store."""

    def __init__(self, task_changes: TaskChanges, worker_records: WorkerRecords, passed: Callable[[str], int]) -> None:
        """`passed` says of a queue how often others were served since a promoted task was."""
        self._task_changes = task_changes
        self._worker_records = worker_records
        self._passed = passed

    async def explain(self, task: Task, tenant: str | None = None) -> Explanation:
        """Why a task waits, or ran when it ran. Reads no other task; what it costs is what the store's `count` does.

        To who is bound to a tenant, others appear as numbers at most.
        """
        queue_cache = self._task_changes.queue_cache
        await queue_cache.refresh()
        now = self._task_changes.clock.now()
        spec, status = task.spec, task.status
        table = steady_table(queue_cache.settings_of(spec.queue).order)
        explanation = Explanation(
            task_id=task.id,
            type=spec.type,
            queue=spec.queue,
            state=status.state,
            at=now,
            priority=status.priority,
            effective_priority=status.priority if table is None else treated_as(table, task, now),
            causes=recount(task, table, now),
        )
        if status.state is State.SCHEDULED:
            return await self._explain_scheduled(task, explanation, tenant)
        if status.state is State.QUEUED:
            return await self._explain_queued(task, explanation, tenant)
        return explanation

    async def _explain_scheduled(self, task: Task, known: Explanation, tenant: str | None) -> Explanation:
        workers = visible(await self._worker_records.workers(), tenant, task.spec.queue)
        holding = await self._holding(task, known.at, workers)
        takers = of_kind(able(workers, task.lane), task.spec.type)
        forecast = Forecast(
            workers=len(takers),
            worker_ids=tuple(names_of(takers)[:NAMED]),
            free_slots=free_slots(takers),
            no_estimate=_NOT_IN_LINE,
            no_latest=_NOT_IN_LINE,
        )
        waits = task.status.waits
        first = (
            _dependent(task, await unended(self._task_changes.store, task), tenant)
            if waits
            else _scheduled(task, await self._due(task), known.at, self._task_changes.settings.sweep_interval)
        )
        causes = (first, *holding, *known.causes)
        return replace(known, causes=causes, due_at=task.status.ready_at, forecast=forecast)

    async def _due(self, task: Task) -> Instant:
        """From when on a sweep has to queue a task."""
        at = task.status.ready_at
        return at if task.status.alarm != AT_ONCE else max(at, await released_at(self._task_changes.store, task))

    async def _explain_queued(self, task: Task, known: Explanation, tenant: str | None) -> Explanation:
        task_changes, queue = self._task_changes, task.spec.queue
        everyone = await self._worker_records.workers()
        workers = visible(everyone, tenant, queue)
        sight = await self._sight(task, known.at, of_kind(workers, task.spec.type))
        if not self._worker_records.speak_here(worker.id for worker in able(everyone, task.lane)):
            sight = replace(sight, passed=None)
        rule = task_changes.queue_cache.fair.get(queue)
        fair = await fair_place(task_changes.store, sight, rule)
        places = lane_places(sight) if fair is None else []
        ahead, since = [stretch for each in places for stretch in each.stretches()], since_oldest(sight)
        counts = await counted(task_changes.store, [*ahead, *since], sight.lanes, known.at)
        arrivals = sight.arrivals.seen(task.lane, sight.lanes, counts.numbers[len(ahead) :], known.at)
        sight = replace(sight, arrivals=arrivals)
        if fair is None:
            place, forecast = place_of(sight, places, counts.numbers[: len(ahead)])
        else:
            place, forecast = placed(sight, fair.ahead, exact=fair.exact)
        if any(at < len(ahead) for at in counts.guessed):
            place = replace(place, exact=False)
        holding = await self._holding(task, known.at, workers)
        blocking = next((cause for cause in holding if cause.blocks), None)
        if blocking is not None:
            place, forecast = without_place(place, blocking.text), _unable(forecast, blocking)
        shared = () if fair is None else (fair_cause(fair, place, TENANT if rule is None else rule.by),)
        causes = (*holding, *shared, *line_causes(place, forecast), *known.causes)
        return replace(known, causes=causes, line=place, forecast=forecast)

    def _is_served(self, lane: Lane, queue: str, takers: Sequence[WorkerRecord]) -> bool:
        """Whether some of these workers take tasks of a lane, as their claims would say; without any, its queue's."""
        queue_cache = self._task_changes.queue_cache
        if lane.queue in queue_cache.paused or lane.type in queue_cache.excluded_types:
            return False
        if not takers:
            return lane.queue == queue
        return any(lane.queue in worker.queues and can_run(worker, lane) for worker in takers)

    async def _sight(self, task: Task, now: Instant, workers: Sequence[WorkerRecord]) -> Sight:
        task_changes, queue, takers = self._task_changes, task.spec.queue, able(workers, task.lane)
        queue_cache, tally = task_changes.queue_cache, (await task_changes.store.tally()).lanes
        reached = [each for each in tally if self._is_served(each.lane, queue, takers)]
        lanes = [each for each in reached if each.counts.get(State.QUEUED)]
        queues = {each.lane.queue for each in lanes}
        types = {each.lane.type for each in lanes if each.lane.queue == queue}
        served = {queue, *(each for worker in takers for each in worker.queues)}
        rows = (await self._worker_records.counted())[1]
        spent_by_all, rates = await self._spent(served, rows), _arrival_rates(rows, reached, now)
        mean = spent_by_all.time // spent_by_all.ended if spent_by_all.ended else None
        return Sight(
            task=task,
            now=now,
            policy=queue_cache.settings_of(queue).order,
            lanes=lanes,
            workers=workers,
            policies={name: queue_cache.settings_of(name).order for name in queues},
            limited_elsewhere=any(queue_cache.limits.get(name) is not None for name in queues - {queue}),
            passed=self._passed(queue),
            limits=await limits_left(task_changes.store, queue_cache.limits.get(queue), task, types, now),
            spent=await self._spent({queue}, rows),
            spent_by_all=spent_by_all,
            running=_running(tally, workers, takers),
            running_keyed=sum(
                each.counts.get(State.EXECUTING, 0) for each in tally if each.lane.queue == queue and each.lane.keyed
            ),
            arrivals=Arrivals(rates),
            parts=_parts(rates, mean, workers, takers),
        )

    async def _spent(self, queues: Collection[str], rows: Sequence[HourRow]) -> Spent:
        """What tasks took that ended lately in some queues."""
        spent = await self._worker_records.spent(queues)
        if spent.ended:
            return spent
        known = [row for row in rows if row.queue in queues]
        return Spent(sum(row.ended for row in known), sum(row.took for row in known))

    async def _holding(self, task: Task, now: Instant, workers: Sequence[WorkerRecord]) -> list[Cause]:
        seen = Circumstances(task_changes=self._task_changes, task=task, now=now, workers=workers)
        return [cause for source in SOURCES for cause in await source(seen)]


def _running(tally: Sequence[LaneTally], workers: Sequence[WorkerRecord], takers: Sequence[WorkerRecord]) -> int | None:
    """How many of the tasks of these workers execute; None if others could run some of them."""
    names = set(map(id, takers))
    running = 0
    for each in tally:
        executing = each.counts.get(State.EXECUTING, 0)
        if not executing:
            continue
        who = {
            id(worker)
            for worker in workers
            if worker.state is not WorkerState.DEAD and each.lane.queue in worker.queues and can_run(worker, each.lane)
        }
        if who & names:
            if who - names:
                return None
            running += executing
    return running


def _arrival_rates(rows: Sequence[HourRow], lanes: Sequence[LaneTally], now: Instant) -> dict[Lane, float]:
    """How many tasks of each lane ended per second of late: those of its queue and priority, by how many it has."""
    ended = ended_per_second(rows, now)
    of_line: Counter[tuple[str, Priority]] = Counter()
    for each in lanes:
        of_line[each.lane.queue, each.lane.priority] += sum(each.counts.values())
    return {
        each.lane: ended.get(line, 0.0) * sum(each.counts.values()) / of_line[line]
        for each in lanes
        if of_line[line := (each.lane.queue, each.lane.priority)]
    }


def _parts(
    rates: Mapping[Lane, float], mean: Span | None, workers: Sequence[WorkerRecord], takers: Sequence[WorkerRecord]
) -> dict[Lane, float]:
    """How much of each lane these workers take, of those lanes that others take too: by the slots that are left.

    What only some can run keeps their slots busy, and then the others take more of what all can run.
    """
    groups: dict[Ability, list[WorkerRecord]] = {}
    for worker in workers:
        if worker.takes_tasks:
            groups.setdefault(ability_of(worker), []).append(worker)
    able_groups = {lane: [each for each, some in groups.items() if able(some[:1], lane)] for lane in rates}
    left = {each: float(sum(worker.capacity for worker in some)) for each, some in groups.items()}
    least = {each: slots * _LEAST_LEFT for each, slots in left.items()}
    for lane, rate in rates.items():
        if len(able_groups[lane]) == 1 and mean is not None:
            left[able_groups[lane][0]] -= rate * mean / SECOND
    left = {each: max(least[each], slots) for each, slots in left.items()}
    own = {ability_of(worker) for worker in takers}
    parts: dict[Lane, float] = {}
    for lane, those in able_groups.items():
        if not own.issuperset(those):
            parts[lane] = sum(left[each] for each in those if each in own) / sum(left[each] for each in those)
    return parts


def _unable(forecast: Forecast, cause: Cause) -> Forecast:
    """What can be said of the start of a task that something keeps from starting."""
    why = f"it cannot start before that has changed: {cause.text}"
    return replace(forecast, estimated_start=None, latest_start=None, assumptions=(), no_estimate=why, no_latest=why)


def _dependent(task: Task, parents: Sequence[Task], tenant: str | None) -> Cause:
    """For whom a task waits; to a tenant only its own are named."""
    named = [parent for parent in parents if tenant in (None, parent.spec.tenant)]
    shown = ", ".join(f"{parent.id} ({parent.state.value})" for parent in named[:NAMED])
    count = task.status.pending
    return Cause(
        CauseCode.DEPENDENT,
        f"it waits for {count:,} other task{'s' if count > 1 else ''} to end{', such as ' if shown else ''}{shown}",
        {"pending": count, "unmet": task.status.unmet},
        blocks=True,
    )


def _scheduled(task: Task, due_at: Instant, now: Instant, interval: Span) -> Cause:
    """Why a task has yet to be queued."""
    status = task.status
    left = due_at - now
    if sweep_is_late(due_at, now, interval):
        return Cause(
            CauseCode.SWEEP_LATE,
            f"it has been due for {brief(-left)}, and no worker or server has swept since; one that runs does so every "
            f"{brief(interval)}",
            {"late_seconds": -left / SECOND},
        )
    left = max(left, 0)
    due = f"due in {brief(left)}" if left else f"due now: a sweep queues it within {brief(interval)}"
    if status.reason is Reason.SUBMITTED:
        return Cause(CauseCode.NOT_DUE, f"it was submitted to run later, and is {due}", {"seconds": left / SECOND})
    if status.reason is Reason.DEPENDENT:
        return Cause(
            CauseCode.NOT_DUE, f"all that it waited for has ended, and it is {due}", {"seconds": left / SECOND}
        )
    failure = None if status.reason is Reason.HANDED_BACK else status.failure
    return Cause(
        CauseCode.BACKOFF,
        f"{retried_after(status.attempts, status.reason, failure)}, and the next is {due}",
        {
            "seconds": left / SECOND,
            "attempt": status.attempts,
            "reason": status.reason.value,
            "error": None if failure is None else failure.type,
        },
    )
