"""What a scaler wants to know: how much a queue has to do, and how many workers that takes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fairlead.core.health.autoscale import Load
from fairlead.core.instant import Instant
from fairlead.core.task import State
from fairlead.engine.metrics.throughput import Spent
from fairlead.engine.queue_cache import QueueCache
from fairlead.engine.worker_records import WorkerRecord
from fairlead.storage.values import Tally


def load_of(
    queues: Collection[str] | None,
    tally: Tally,
    now: Instant,
    queue_cache: QueueCache,
    workers: Sequence[WorkerRecord],
    spent: Spent,
) -> Load:
    """The load of some queues or of all. What is paused counts only as far as it runs."""
    lanes = [each for each in tally.lanes if queues is None or each.lane.queue in queues]
    claimable = [each for each in lanes if not queue_cache.withheld(each.lane)]
    oldest = min((each.oldest_ready for each in claimable if each.oldest_ready is not None), default=now)
    active = [
        worker
        for worker in workers
        if worker.takes_tasks and (queues is None or not set(queues).isdisjoint(worker.queues))
    ]
    return Load(
        ready=sum(each.counts.get(State.QUEUED, 0) for each in claimable),
        executing=sum(each.counts.get(State.EXECUTING, 0) for each in lanes),
        oldest_age=max(0, now - oldest),
        ended=spent.ended,
        spent=spent.time,
        workers=len(active),
        slots=sum(worker.capacity for worker in active),
    )
