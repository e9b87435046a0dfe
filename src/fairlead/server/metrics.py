"""Metrics, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.responses import Response
from starlette.types import ASGIApp

from fairlead.core.instant import SECOND
from fairlead.engine.stats import Stats
from fairlead.server.endpoint import Call, Empty, Endpoint, Media
from fairlead.server.principal import Role


async def show_metrics(call: Call[Empty, None]) -> ASGIApp:
    """Show how the queues stand, in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Gauges(await call.hub.depths.stats()))
    return Response(generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})


class Gauges(Collector):
    """What there is to read off at one moment."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges with their values."""
        depth = GaugeMetricFamily("fairlead_queue_depth", "Ready tasks that wait.", labels=("queue", "priority"))
        oldest = GaugeMetricFamily(
            "fairlead_queue_oldest_age_seconds",
            "How long the ready task that has waited longest has waited.",
            labels=("queue", "priority"),
        )
        tasks = GaugeMetricFamily("fairlead_tasks", "Tasks by state.", labels=("queue", "state"))
        for name, queue in self._stats.queues.items():
            for priority, line in queue.lines.items():
                depth.add_metric((name, priority.word), line.depth)
                oldest.add_metric((name, priority.word), line.oldest_age / SECOND)
            for state, count in queue.states.items():
                tasks.add_metric((name, state.value), count)
        paused = GaugeMetricFamily("fairlead_queue_paused", "Whether a queue is paused.", labels=("queue",))
        for name, queue in self._stats.queues.items():
            paused.add_metric((name,), queue.paused)
        yield depth
        yield oldest
        yield tasks
        yield paused
        workers = GaugeMetricFamily("fairlead_workers", "Workers by state.", labels=("state",))
        for word in ("active", "draining", "dead"):
            workers.add_metric((word,), getattr(self._stats.workers, word))
        yield workers


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/metrics",
        handler=show_metrics,
        summary="Show metrics",
        role=Role.READ,
        answers={200: Media(CONTENT_TYPE_LATEST)},
    ),
)
