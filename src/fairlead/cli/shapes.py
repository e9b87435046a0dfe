"""The JSON that commands write with --json. Documented in docs/reference/cli.md: fields are added, never changed."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from fairlead.cli.moments import iso, maybe_iso
from fairlead.core.instant import SECOND
from fairlead.core.task import Entry, Failure, Progress, Task
from fairlead.engine.stats import QueueStats, Stats


class ErrorShape(Struct, kw_only=True):
    """What went wrong in an attempt."""

    type: str
    message: str
    traceback: str | None


class ProgressShape(Struct, kw_only=True):
    """How far an attempt says it is."""

    percent: float
    message: str
    at: str


class EntryShape(Struct, kw_only=True):
    """One line of a task's history."""

    at: str
    state: str
    reason: str
    attempt: int
    worker: str | None
    started_at: str | None
    error: ErrorShape | None


class BriefShape(Struct, kw_only=True):
    """A task as `list`, `submit`, `cancel`, `replay` and `discard` write it."""

    id: str
    type: str
    queue: str
    priority: str
    state: str
    reason: str
    requires: list[str]
    tags: list[str]
    created_at: str
    ready_at: str
    started_at: str | None
    ended_at: str | None
    attempts: int
    retries: int
    max_retries: int
    crashes: int
    max_crashes: int
    timeout_seconds: float
    worker: str | None
    lease_until: str | None
    cancel_asked: bool
    idempotency_key: str | None
    tenant: str | None
    trace: str | None
    progress: ProgressShape | None
    error: ErrorShape | None


class TaskShape(BriefShape, kw_only=True):
    """A task as `show` and `submit --wait` write it."""

    parameters: Raw
    result: Raw
    history: list[EntryShape]


def brief(task: Task) -> BriefShape:
    """A task without what can be large."""
    return BriefShape(**_fields(task))


def whole(task: Task) -> TaskShape:
    """A task with everything."""
    return TaskShape(
        **_fields(task),
        parameters=Raw(task.spec.parameters),
        result=Raw(b"null" if task.status.result is None else task.status.result),
        history=[_entry(entry) for entry in task.status.history],
    )


def stats_shape(stats: Stats) -> dict[str, Any]:
    """How all queues stand."""
    return {
        "queues": {name: _queue(queue) for name, queue in stats.queues.items()},
        "states": {str(state): count for state, count in stats.states.items()},
        "next_alarm": maybe_iso(stats.next_alarm),
        "journal_behind": stats.journal_behind,
    }


def with_field(shape: BriefShape, **more: Any) -> dict[str, Any]:
    """A shape with a field more."""
    return {**msgspec.structs.asdict(shape), **more}


def _fields(task: Task) -> dict[str, Any]:
    spec, status = task.spec, task.status
    return {
        "id": spec.id,
        "type": spec.type,
        "queue": spec.queue,
        "priority": status.priority.word,
        "state": str(status.state),
        "reason": str(status.reason),
        "requires": list(spec.requires),
        "tags": list(spec.tags),
        "created_at": iso(spec.created_at),
        "ready_at": iso(status.ready_at),
        "started_at": maybe_iso(status.started_at),
        "ended_at": maybe_iso(status.ended_at),
        "attempts": status.attempts,
        "retries": status.retries,
        "max_retries": spec.max_retries,
        "crashes": status.crashes,
        "max_crashes": spec.max_crashes,
        "timeout_seconds": status.timeout / SECOND,
        "worker": status.lease.worker if status.lease else None,
        "lease_until": iso(status.lease.until) if status.lease else None,
        "cancel_asked": status.cancel_asked,
        "idempotency_key": spec.idempotency_key,
        "tenant": spec.tenant,
        "trace": spec.trace,
        "progress": _progress(status.progress),
        "error": _error(status.failure),
    }


def _error(failure: Failure | None) -> ErrorShape | None:
    if failure is None:
        return None
    return ErrorShape(type=failure.type, message=failure.message, traceback=failure.traceback)


def _progress(progress: Progress | None) -> ProgressShape | None:
    if progress is None:
        return None
    return ProgressShape(percent=progress.percent, message=progress.message, at=iso(progress.at))


def _entry(entry: Entry) -> EntryShape:
    return EntryShape(
        at=iso(entry.at),
        state=str(entry.state),
        reason=str(entry.reason),
        attempt=entry.attempt,
        worker=entry.worker,
        started_at=maybe_iso(entry.started_at),
        error=_error(entry.failure),
    )


def _queue(queue: QueueStats) -> dict[str, Any]:
    return {
        "priorities": {
            priority.word: {"depth": line.depth, "oldest_age_seconds": line.oldest_age / SECOND}
            for priority, line in queue.lines.items()
        },
        "states": {str(state): count for state, count in queue.states.items()},
        "types": queue.types,
    }
