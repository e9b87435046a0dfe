"""How many workers are wanted: for KEDA, or another autoscaler."""

from __future__ import annotations

from fairlead.admin.autoscale import api
from fairlead.admin.autoscale.api import AutoscaleQuery, autoscale
from fairlead.core.validation import span_of
from fairlead.server.endpoint import Answer, Call, serve


async def show_autoscale(call: Call[AutoscaleQuery, None]) -> Answer:
    """Show the backlog, and suggest a number of workers: for KEDA, or whatever starts and stops workers.

    It costs the same however many tasks there are.
    """
    query = call.query
    within = span_of("within_seconds", query.within_seconds)
    return Answer(autoscale(await call.view.engine.autoscale(query.queue, within=within, capacity=query.capacity)))


ENDPOINTS = (serve(api.SHOW_AUTOSCALE, show_autoscale),)
