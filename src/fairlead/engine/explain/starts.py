"""When a waiting task starts: what slots, limits and rates let start before it, and what still comes meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.explain.explanation import Forecast
from fairlead.core.instant import MINUTE, SECOND, Instant, Span, brief
from fairlead.core.queues.order import Table, Weighted, rank_after, top_rank
from fairlead.core.queues.promotion import on_top_from, overtaken_until, starts_at_the_top, steady_table
from fairlead.core.task import Lane, Priority
from fairlead.engine.explain.eligibility import able, names_of
from fairlead.engine.explain.limits_left import LimitLeft, LimitsLeft
from fairlead.engine.explain.sight import Ahead, Sight
from fairlead.engine.worker_records import WorkerRecord

NAMED: Final = 20
"""How many of the workers that could take it are named."""

_LONG: Final = 10
"""A promise holds as long as no task takes this many times the mean,"""
_SLOWER: Final = 1.5
"""and all of them together at most so much longer than by the mean."""
_ROUNDS: Final = 60
_SILENT: Final = 1.2
"""From how many heartbeats on a worker is told to be silent."""

_NO_PACE: Final = (
    "no task ended within the last hour in the queues of the workers that could take it, so how long tasks take is not "
    "known"
)
_FLOODED: Final = "tasks that go before it have come as fast lately as the workers and limits let tasks start"


class _Comers(Struct, frozen=True):
    """Tasks that are yet to come and go before the one that waits."""

    priority: Priority
    rate: float
    """How many per second."""
    until: Span | None = None
    """From then on they go behind; None if they never do."""
    most: int | None = None
    """How many at most."""

    def within(self, span: Span) -> float:
        """How many come in so long."""
        count = self.rate * (span if self.until is None else min(span, self.until)) / SECOND
        return count if self.most is None else min(count, self.most)


def forecast_of(sight: Sight, line: Ahead) -> Forecast:
    """When a queued task will start, if nothing blocks it."""
    workers = able(sight.workers, sight.task.lane)
    free, rate = _free(sight, workers), sum(map(_rate, workers))
    pace = _pace(sight, workers, rate)
    latest, no_latest = _latest(sight, line.older, workers, pace)
    estimated, no_estimate = _estimated(sight, line, free, pace, sum(worker.capacity for worker in workers))
    if estimated is not None and latest is not None:
        estimated = min(estimated, latest)
    return Forecast(
        workers=len(workers),
        worker_ids=tuple(names_of(workers)[:NAMED]),
        free_slots=free,
        rate=rate or None,
        estimated_start=estimated,
        latest_start=latest,
        assumptions=tuple(_assumptions(sight, workers, pace, estimated, latest)),
        no_estimate=no_estimate,
        no_latest=no_latest,
    )


def free_slots(workers: Sequence[WorkerRecord]) -> int:
    """How many more tasks workers could run, as they last said."""
    return sum(max(0, worker.capacity - worker.running) for worker in workers)


def _free(sight: Sight, workers: Sequence[WorkerRecord]) -> int:
    """The same by what executes now, where that is known."""
    if sight.running is None:
        return free_slots(workers)
    return max(0, sum(worker.capacity for worker in workers) - sight.running)


def _pace(sight: Sight, workers: Sequence[WorkerRecord], rate: float) -> float:
    """How many tasks per second these workers end when all of their slots are busy; 0 if that is not known."""
    slots, mean = sum(worker.capacity for worker in workers), sight.mean_of_all
    return slots * SECOND / mean if mean else rate


def _estimated(sight: Sight, line: Ahead, free: int, pace: float, slots: int) -> tuple[Instant | None, str | None]:
    """When it starts if tasks keep coming as they do; or why that is not known."""
    spec, limits, mean = sight.task.spec, sight.limits, sight.mean
    waits = [
        _limit_wait(limits.queue, line.own, mean, _comers(sight, line, lambda lane: lane.queue == spec.queue)),
        _limit_wait(
            limits.of_type(spec.type),
            line.own_type,
            mean,
            _comers(sight, line, lambda lane: (lane.queue, lane.type) == (spec.queue, spec.type)),
        ),
        _limit_wait(limits.key, 0, mean, []),
    ]
    served, paced, keyed = line.all, pace, spec.concurrency_key is not None
    apart = slots > sight.running_keyed > 0
    if apart:
        # Tasks with keys go on at the pace of those of them that run, and the others on the slots that are left.
        served = line.keyed + line.elsewhere if keyed else line.all - line.keyed
        paced = pace * (sight.running_keyed if keyed else slots - sight.running_keyed) / slots
        free = 0 if keyed and served else free
    if served >= free:
        if not pace:
            return None, _NO_PACE
        comers = _comers(sight, line, lambda lane: not apart or lane.keyed is keyed)
        waits.append(_wait(max(1.0, served * line.part - free + 1), paced, comers))
    known = [wait for wait in waits if wait is not None]
    if len(known) < len(waits):
        return None, _FLOODED
    return sight.now + max(known), None


def _limit_wait(allowance: LimitLeft, ahead: int, mean: Span | None, comers: Sequence[_Comers]) -> Span | None:
    """How long a limit keeps a task with so many ahead from starting; None if for ever, as others keep coming."""
    if allowance.left is None or ahead < allowance.left:
        return 0
    paces = []
    if allowance.most is not None and mean is not None:
        paces.append(allowance.most * SECOND / mean)
    if allowance.interval:
        paces.append(SECOND / allowance.interval)
    return _wait(ahead - allowance.left + 1, min(paces), comers) if paces else 0


def _wait(starts: float, pace: float, comers: Sequence[_Comers]) -> Span | None:
    """How long so many starts take at this pace, with those that come meanwhile; None if they never end."""
    wait = starts / pace * SECOND
    for _ in range(_ROUNDS):
        coming = sum(each.within(round(wait)) for each in comers)
        longer = (starts + coming) / pace * SECOND
        if longer <= wait * 1.01:
            return round(_middle(longer, starts, coming))
        wait = longer
    endless = sum(each.rate for each in comers if each.until is None and each.most is None)
    return None if endless >= pace else round(wait)


def _middle(wait: float, starts: float, coming: float) -> float:
    """The wait that is as often too long as too short, of one that is this long on average.

    How many come meanwhile is luck, and a few long waits make the average longer than most are: waits of this kind are
    spread about as a log-normal distribution.
    """
    return wait / math.sqrt(1 + 2 * coming / (starts * starts))


def _comers(sight: Sight, line: Ahead, wanted: Callable[[Lane], bool]) -> list[_Comers]:
    """Those of some lanes that are yet to come and go before it."""
    rates: dict[Priority, float] = {}
    for lane, rate in sight.arrivals.rates.items():
        if wanted(lane):
            rates[lane.priority] = rates.get(lane.priority, 0.0) + rate * sight.parts.get(lane, 1.0)
    if isinstance(sight.policy, Weighted):
        return _drawn_comers(sight, sight.policy, line, rates)
    table = steady_table(sight.policy)
    if table is None:
        return []
    comers: list[_Comers] = []
    for priority, rate in rates.items():
        until = _passes_until(table, sight, priority)
        if _takes_turns_with(sight, table, priority):
            comers.append(_Comers(priority, rate, None, _most_by_turns(sight, line)))
        elif until is None or until > 0:
            comers.append(_Comers(priority, rate, until))
    return comers


def _takes_turns_with(sight: Sight, table: Table, priority: Priority) -> bool:
    """Whether a promoted task takes turns with new tasks of a priority."""
    status, turns = sight.task.status, sight.turns
    if turns is None or turns.share is None:
        return False
    own, other = table[status.priority].rank, table[priority].rank
    rank = rank_after(table[status.priority], sight.now - status.ready_at)
    return rank <= other < own and (turns.share.everywhere or rank == other == top_rank(table))


def _most_by_turns(sight: Sight, line: Ahead) -> int:
    """How many more of those that it takes turns with can go before a promoted task, beside those that wait."""
    turns = sight.turns
    if turns is None or turns.share is None:
        return 0
    return max(0, turns.share.others_before(line.own - line.by_turns, turns.passed) - line.by_turns)


def _passes_until(table: Table, sight: Sight, priority: Priority) -> Span | None:
    """For how long new tasks of a priority go before it; None if they always do."""
    status, other = sight.task.status, table[priority]
    own, waited = table[status.priority], sight.now - status.ready_at
    even: Span = 0
    if rank_after(own, waited) > other.rank:
        after = next((step.after for step in own.steps if step.rank <= other.rank), None)
        if after is None:
            return None
        even = after - waited
    if rank_after(own, waited + even) < other.rank:
        return even
    return max(even, status.ready_at - own.head_start + other.head_start - sight.now)


def _drawn_comers(sight: Sight, policy: Weighted, line: Ahead, rates: dict[Priority, float]) -> list[_Comers]:
    """Where turns are drawn: as many as even luck serves, beyond those that wait by now."""
    weights, own = (policy.critical, policy.high, policy.medium, policy.low), sight.task.status.priority
    turns = line.by_priority[own] + 1
    return [
        _Comers(other, rate, None, max(0, round(turns * weights[other] / weights[own]) - line.by_priority[other]))
        for other, rate in rates.items()
        if other is not own
    ]


def _latest(
    sight: Sight, older: int, workers: Sequence[WorkerRecord], pace: float
) -> tuple[Instant | None, str | None]:
    """The start that no submit can put off any more, or why there is none."""
    task, turns = sight.task, sight.turns
    if turns is None:
        return None, "each turn picks a priority at random, so the wait has no upper limit"
    on_top = on_top_from(turns.tables[0], task)
    if on_top is None:
        return None, "in strict order, more urgent tasks always go first, so the wait has no upper limit"
    until = overtaken_until(turns.tables[0], task)
    if until > sight.now:
        return None, f"for another {brief(until - sight.now)} tasks with a longer head start can still get ahead of it"
    if sight.limits != LimitsLeft():
        return None, "a limit of its queue, type or concurrency key decides how soon it starts"
    others = sorted({queue for worker in workers for queue in worker.queues} - {task.spec.queue})
    if others:
        return None, f"its workers may be busy with their other queues: {', '.join(others[:5])}"
    if not pace:
        return None, _NO_PACE
    mean = sight.mean_of_all or round(sum(worker.capacity for worker in workers) * SECOND / pace)
    starts = starts_at_the_top(turns, task, older, len(workers))
    return max(sight.now, on_top) + _LONG * mean + round(_SLOWER * starts / pace * SECOND), None


def _assumptions(
    sight: Sight,
    workers: Sequence[WorkerRecord],
    pace: float,
    estimated: Instant | None,
    latest: Instant | None,
) -> Iterator[str]:
    if estimated is None and latest is None:
        return
    mean = sight.mean_of_all
    if mean is not None:
        slots = sum(worker.capacity for worker in workers)
        yield f"a task takes {brief(mean)}, the mean of those that ended lately, on {slots:,} slots"
    elif pace:
        yield f"its workers keep the rate of the last minute: {pace:.3g}/s"
    if estimated is not None:
        coming = any(sight.arrivals.rates.values())
        expected = "tasks keep coming as they did lately" if coming else "nothing more urgent is submitted"
        yield f"for the estimate: {expected}"
    if latest is not None:
        mean = mean or round(sum(worker.capacity for worker in workers) * SECOND / pace)
        yield f"for the latest start: none takes longer than {brief(_LONG * mean)}, and all together half as long again"
    heard = max((sight.now - worker.seen_at for worker in workers), default=0)
    yield f"the workers are as they last reported, up to {brief(max(heard, SECOND))} ago"
    silent = [worker for worker in workers if worker.heartbeat and heard_late(worker, sight.now)]
    if silent:
        longest = min(silent, key=lambda worker: worker.seen_at)
        name = f"worker {longest.id}" if longest.id else "a worker"
        more = f" and {len(silent) - 1:,} others" if len(silent) > 1 else ""
        yield (
            f"{name}{more} still runs: last heard of {brief(sight.now - longest.seen_at)} ago, and due every "
            f"{brief(longest.heartbeat)}"
        )


def heard_late(worker: WorkerRecord, now: Instant) -> bool:
    """Whether a worker has left out a heartbeat."""
    return now - worker.seen_at > _SILENT * worker.heartbeat


def _rate(worker: WorkerRecord) -> float:
    """How many tasks per second a worker has ended within the minute before it was last heard of, or since it came."""
    span = min(MINUTE, max(SECOND, worker.seen_at - worker.since))
    return (worker.completed + worker.failed) / (span / SECOND)
