"""Every kind of record that a store keeps beside tasks, for what looks at all of them."""

from __future__ import annotations

from typing import Any, Final

from fairlead.admin import operations
from fairlead.admin.keys import service as keys
from fairlead.admin.keys import sessions
from fairlead.admin.operations import runner as operation_runner
from fairlead.engine import circuit_breaker, queue_cache, scheduler, submit, worker_records, worker_tasks
from fairlead.engine.events import feed
from fairlead.engine.metrics import throughput
from fairlead.engine.records import Form

FORMS: Final[dict[str, Form[Any]]] = {
    form.kind: form
    for form in (
        queue_cache.FORM,
        queue_cache.DECLARATION_FORM,
        circuit_breaker.FORM,
        feed.FORM,
        scheduler.FORM,
        worker_tasks.LOST_FORM,
        keys.KEY,
        operation_runner.FORM,
        worker_records.COUNTS,
        worker_records.PRESENT,
        throughput.PROMOTED_FORM,
        sessions.FORM,
        submit.UPGRADE_FORM,
    )
}
"""Every kind of record that is decoded."""

BELLS: Final[dict[str, str]] = {
    queue_cache.KIND: queue_cache.BELL,
    queue_cache.DECLARATION_KIND: queue_cache.BELL,
    circuit_breaker.KIND: circuit_breaker.BELL,
    scheduler.KIND: scheduler.BELL,
    operations.KIND: operations.BELL,
}
"""What is rung when a record of a kind has changed."""
