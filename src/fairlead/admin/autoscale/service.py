"""What a scaler wants to know: how much a queue has to do, and how many workers that takes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from fairlead.core.instant import Instant
from fairlead.core.scaling import Advice, Load
from fairlead.core.task import State
from fairlead.engine.book import QueueBook
from fairlead.engine.metering import Spent
from fairlead.engine.presence import WorkerPresence, WorkerState
from fairlead.storage.values import Tally


class Scaling(Struct, frozen=True):
    """A load, and the advice that follows from it."""

    queue: str | None
    """None for all queues together."""
    load: Load
    advice: Advice


def load_of(
    queue: str | None, tally: Tally, now: Instant, book: QueueBook, workers: Sequence[WorkerPresence], spent: Spent
) -> Load:
    """The load of one queue or of all. What is paused counts only as far as it runs."""
    lanes = [each for each in tally.lanes if queue is None or each.lane.queue == queue]
    claimable = [each for each in lanes if not book.withheld(each.lane)]
    oldest = min((each.oldest_ready for each in claimable if each.oldest_ready is not None), default=now)
    active = [
        worker for worker in workers if worker.state is WorkerState.ACTIVE and (queue is None or queue in worker.queues)
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
