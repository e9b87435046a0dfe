"""The endpoints of tasks: submitting them, looking at them and cancelling them."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from fairlead.core.errors import InvalidTask
from fairlead.core.identity import TaskId, parse_task_id
from fairlead.core.query.parser import MOST_CHARACTERS
from fairlead.core.task import PriorityWord, State
from fairlead.core.tenancy import Role
from fairlead.wire.endpoint import Empty, Endpoint, Media
from fairlead.wire.explanations import ExplanationShown
from fairlead.wire.task_shown import TaskListed, TaskWhole
from fairlead.wire.tasks import BatchAnswer, BatchRequest, Moment, Name, SubmitRequest, TaskCreated

Order: TypeAlias = Literal["newest", "oldest"]

_MARKS: Final[dict[Order, bytes]] = {"newest": b"n", "oldest": b"o"}


def cursor_after(last: TaskId, order: Order) -> str:
    """The cursor of the page after the one that ends with this task."""
    return base64.urlsafe_b64encode(_MARKS[order] + bytes.fromhex(last)).decode().rstrip("=")


def place_of(cursor: str, order: Order) -> TaskId | None:
    """The last task of the page before; None for what is no cursor in this order."""
    try:
        decoded = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return parse_task_id(decoded[1:].hex()) if decoded[:1] == _MARKS[order] else None
    except (ValueError, binascii.Error, InvalidTask):
        return None


LINES: Final = "application/x-ndjson"
"""The type of a body that is a stream of lines, each a task."""

CANCEL_WAIT: Final = 2.0
"""How long the answer to a cancel waits for the worker, in seconds, unless it is asked to wait otherwise."""

QueryText: TypeAlias = Annotated[
    str, Meta(extra_json_schema={"maxLength": MOST_CHARACTERS, "examples": ["state:dead_letter error:Timeout"]})
]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=1_000)]
States: TypeAlias = Annotated[
    str, Meta(extra_json_schema={"pattern": f"^({'|'.join(State)})(,({'|'.join(State)})){{0,20}}$"})
]
WorkerName: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": "^[!-~]{1,200}$"})]


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of a list."""

    limit: Limit = 50
    """How many at most."""
    order: Order = "newest"
    """Which come first."""
    cursor: str | None = None
    """The `next_cursor` of the page before, which must have been asked for in the same order."""
    include_parameters: bool = False
    """Whether to show all that a task was submitted with: its parameters, `after`, `retry_policy` and `retry_rules`. A
    page that has 8 MB of parameters ends early."""


class ListQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks, and which page of them."""

    status: States | None = None
    """Only those with this status; several are separated by commas."""
    queue: Name | None = None
    """Only those of this queue."""
    task_type: Name | None = None
    """Only those of this type."""
    priority: PriorityWord | None = None
    """Only those of this priority."""
    worker: WorkerName | None = None
    """Only those that this worker executes."""
    tag: Name | None = None
    """Only those with this tag."""
    created_from: Moment | None = None
    """Only those submitted at this moment or later."""
    created_before: Moment | None = None
    """Only those submitted before this moment."""
    q: QueryText | None = None
    """Only those that match this query, such as `state:dead_letter error:Timeout`."""


class TaskPage(Struct, frozen=True, kw_only=True):
    """One page of a list."""

    tasks: list[TaskListed]
    next_cursor: str | None
    """What leads to the next page; null on the last."""


class ShowQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a task is shown, and when."""

    include_history: bool = False
    """Whether to include every transition."""
    wait: Annotated[float, Meta(ge=0)] = 0.0
    """How many seconds to wait for the task to end; the server may wait for less."""


class SubmitQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the answer to a submit tells."""

    estimate: bool = False
    """Whether to estimate its place in the queue and its start; this looks at the queue and the workers once the task
    is stored."""


class CancelQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a cancel waits."""

    wait: Annotated[float, Meta(ge=0)] = CANCEL_WAIT
    """How many seconds to wait for the worker of an executing task to stop it; the server may wait for less."""


class TaskCancelled(Struct, frozen=True, kw_only=True):
    """How a task stands after it was cancelled."""

    task_id: str
    status: str
    """`cancelled`, or `cancel_requested` while its worker has yet to stop it. An executing task may also have ended
    before the worker heard of it; then this is its last status."""
    was_executing: bool
    """Whether a worker had it when cancel was asked."""
    worker_notified: bool = False
    """Whether the worker learned of it while this request waited: it has stopped the task, or has renewed its lease,
    and the answer to that says so. A worker that has not learns of it at its next heartbeat."""
    cancellation_time: str | None = None
    """When cancel was first requested; a waiting task ended at that moment."""


SUBMIT_TASK: Final = Endpoint[SubmitQuery, SubmitRequest](
    method="POST",
    path="/api/v1/tasks",
    summary="Submit a task",
    role=Role.SUBMIT,
    query=SubmitQuery,
    body=SubmitRequest,
    answers={201: TaskCreated, 200: TaskCreated},
)
LIST_TASKS: Final = Endpoint[ListQuery, None](
    method="GET",
    path="/api/v1/tasks",
    summary="List tasks",
    role=Role.READ,
    query=ListQuery,
    answers={200: TaskPage},
)
SHOW_TASK: Final = Endpoint[ShowQuery, None](
    method="GET",
    path="/api/v1/tasks/{task_id}",
    patient=True,
    summary="Show a task",
    role=Role.READ,
    query=ShowQuery,
    answers={200: TaskWhole},
    problems=(404,),
)
EXPLAIN_TASK: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/tasks/{task_id}/explain",
    summary="Explain a task",
    role=Role.READ,
    answers={200: ExplanationShown},
    problems=(404,),
)
CANCEL_TASK: Final = Endpoint[CancelQuery, None](
    method="DELETE",
    path="/api/v1/tasks/{task_id}",
    patient=True,
    summary="Cancel a task",
    role=Role.SUBMIT,
    query=CancelQuery,
    answers={200: TaskCancelled, 202: TaskCancelled},
    problems=(404, 409),
)
SUBMIT_BATCH: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/tasks/batch",
    patient=True,
    summary="Submit many tasks",
    role=Role.SUBMIT,
    bodies={"application/json": BatchRequest | list[SubmitRequest], LINES: SubmitRequest},
    answers={200: (BatchAnswer, Media(LINES)), 207: BatchAnswer},
)
