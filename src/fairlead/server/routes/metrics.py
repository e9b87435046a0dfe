"""Metrics, as Prometheus reads them: how the store stands, and what this process did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp

from fairlead.core.instant import SECOND, Span
from fairlead.core.task import Priority, State
from fairlead.engine import catalogue
from fairlead.engine.exposition import MEDIA_TYPE, Family, Samples, render
from fairlead.engine.metrics import MOST_NAMES, OTHER
from fairlead.engine.stats import QueueStats, Stats
from fairlead.server.endpoint import Call, Empty, Endpoint, Media
from fairlead.server.principal import Role

_WORKER_STATES: Final = ("active", "draining", "dead")


async def show_metrics(call: Call[Empty, None]) -> ASGIApp:
    """Show how the queues stand and what this server did, in the text format of Prometheus.

    How the queues stand is counted once a second at most, at a cost that does not grow with the number of tasks.
    """
    hub = call.hub
    stats, late = await hub.depths.recent()
    families = [*gauges(stats, late)]
    if hub.metrics is not None:
        families += hub.metrics.collect()
    return Response(render(families), headers={"content-type": MEDIA_TYPE})


def gauges(stats: Stats, late: Span) -> Iterator[tuple[Family, Samples]]:
    """What there is to read off a store at one moment."""
    queues = _bounded(stats.queues)
    lines = [
        (name, priority, [each.lines[priority] for each in standing])
        for name, standing in queues.items()
        for priority in Priority
    ]
    yield (
        catalogue.QUEUE_DEPTH,
        [((name, priority.word), sum(line.depth for line in each)) for name, priority, each in lines],
    )
    yield (
        catalogue.QUEUE_OLDEST_AGE,
        [((name, priority.word), max(line.oldest_age for line in each) / SECOND) for name, priority, each in lines],
    )
    yield (
        catalogue.QUEUE_PAUSED,
        [((name,), int(all(each.paused for each in standing))) for name, standing in queues.items()],
    )
    yield catalogue.DEAD_LETTER_SIZE, [((), stats.states[State.DEAD_LETTER])]
    yield catalogue.TASK_STATE, [((state.value,), count) for state, count in stats.states.items()]
    yield catalogue.WORKERS, [((word,), getattr(stats.workers, word)) for word in _WORKER_STATES]
    capacity = stats.workers.total_capacity
    yield catalogue.CAPACITY_USED, [((), stats.workers.used_capacity / capacity if capacity else 0)]
    yield catalogue.SCHEDULE_LATE, [((), late / SECOND)]
    if stats.journal_behind is not None:
        yield catalogue.JOURNAL_BEHIND, [((), stats.journal_behind)]


def _bounded(queues: dict[str, QueueStats]) -> dict[str, list[QueueStats]]:
    """The queues by name; of very many, those with most tasks, and the rest under one name."""
    if len(queues) <= MOST_NAMES:
        return {name: [queue] for name, queue in queues.items()}
    ranked = sorted(queues, key=lambda name: (-sum(queues[name].states.values()), name))
    shown = {name: [queues[name]] for name in sorted(ranked[:MOST_NAMES])}
    shown.setdefault(OTHER, []).extend(queues[name] for name in ranked[MOST_NAMES:])
    return shown


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/metrics",
        handler=show_metrics,
        summary="Show metrics",
        role=Role.READ,
        answers={200: Media(MEDIA_TYPE)},
    ),
)
