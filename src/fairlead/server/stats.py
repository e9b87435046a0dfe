"""How the queues stand."""

from __future__ import annotations

from msgspec import Struct

from fairlead.core.identity import check_name
from fairlead.server.endpoint import Answer, Call, Empty, Endpoint
from fairlead.server.history import INTERVAL
from fairlead.server.principal import Role
from fairlead.wire.stats import History, Standing, standing
from fairlead.wire.tasks import Name


class StatsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queue."""

    queue: Name | None = None
    """Only this queue; one that has no tasks stands at zero."""


async def show_stats(call: Call[StatsQuery, None]) -> Answer:
    """Show how many tasks wait and how long, by priority; the workers; and how many tasks ended lately.

    It costs the same however many tasks there are.
    """
    queue = call.query.queue
    return Answer(standing(await call.hub.depths.stats(), None if queue is None else check_name("queue", queue)))


async def show_history(call: Call[Empty, None]) -> Answer:
    """Show how the queues stood during the last hour, as far as this server has seen it."""
    return Answer(History(interval_seconds=INTERVAL, samples=list(call.hub.history.samples)))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/queue/stats",
        handler=show_stats,
        summary="Show how the queues stand",
        role=Role.READ,
        query=StatsQuery,
        answers={200: Standing},
    ),
    Endpoint(
        method="GET",
        path="/api/v1/queue/history",
        handler=show_history,
        summary="Show how the queues stood lately",
        role=Role.READ,
        answers={200: History},
    ),
)
