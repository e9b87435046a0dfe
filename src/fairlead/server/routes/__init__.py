"""The handlers, by what they are about, and the groups of endpoints that they answer."""

from __future__ import annotations

from typing import Any, Final

from fairlead.server.endpoint import Served
from fairlead.server.routes import batch, dashboard, events, health, queues, tasks, worker_protocol, workers

ENDPOINTS: Final[tuple[Served[Any, Any], ...]] = (
    *tasks.ENDPOINTS,
    *batch.ENDPOINTS,
    *queues.ENDPOINTS,
    *workers.ENDPOINTS,
    *health.ENDPOINTS,
    *worker_protocol.ENDPOINTS,
    *dashboard.ENDPOINTS,
    *events.ENDPOINTS,
)
"""The whole API but for the documents about it."""
