"""Statistics of the queues and the workers."""

from __future__ import annotations

from fairlead.admin.stats import api
from fairlead.admin.stats.api import History, StatsQuery, standing
from fairlead.core.identity import check_name
from fairlead.server.endpoint import Answer, Call, serve
from fairlead.server.live.history import INTERVAL
from fairlead.wire.endpoint import Empty


async def show_stats(call: Call[StatsQuery, None]) -> Answer:
    """Show how many tasks wait and how long, by priority; the workers; and what became of tasks lately.

    The cost does not depend on the number of tasks, except for the percentiles of their ages. These are counted at most
    once a second, and less often where counting is slow, so that it takes at most a twentieth of the time; they are at
    most a minute old, and null if they are not known.
    """
    queue = None if call.query.queue is None else check_name("queue", call.query.queue)
    if queue is not None:
        await call.view.engine.check_queues([queue])
    return Answer(standing(await call.view.aged_stats(), queue))


async def show_history(call: Call[Empty, None]) -> Answer:
    """Show the statistics of the last hour, as far as this server has recorded them."""
    return Answer(History(interval_seconds=INTERVAL, samples=list(call.state.history.samples)))


ENDPOINTS = (
    serve(api.SHOW_STATS, show_stats),
    serve(api.SHOW_HISTORY, show_history),
)
