"""What a scaler asks for."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from fairlead.core.identity import check_name
from fairlead.core.instant import LONGEST, SECOND, span
from fairlead.core.scaling import WITHIN
from fairlead.server.endpoint import Answer, Call, Endpoint
from fairlead.server.principal import Role
from fairlead.wire.scaling import Autoscale, autoscale
from fairlead.wire.tasks import Name


class AutoscaleQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose workers, and how many tasks they should be for."""

    queue: Name | None = None
    """The queue that the workers serve; all queues if not said."""
    within_seconds: Annotated[float, Meta(ge=0.001, le=LONGEST / SECOND)] = WITHIN / SECOND
    """How soon what waits should be worked off."""
    capacity: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """How many tasks a worker runs at once; as those that there are, if not said."""


async def show_autoscale(call: Call[AutoscaleQuery, None]) -> Answer:
    """Show how much work waits, and how many workers it takes: for KEDA, or whatever starts and stops workers.

    It costs the same however many tasks there are.
    """
    query = call.query
    queue = None if query.queue is None else check_name("queue", query.queue)
    within = span(query.within_seconds)
    return Answer(autoscale(await call.hub.engine.autoscale(queue, within=within, capacity=query.capacity)))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/autoscale",
        handler=show_autoscale,
        summary="Suggest a number of workers",
        role=Role.READ,
        query=AutoscaleQuery,
        answers={200: Autoscale},
    ),
)
