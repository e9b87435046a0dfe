"""The worker protocol: how a worker in any language registers, gets its tasks, and says how they ended."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from fairlead.core.tenancy import Role
from fairlead.engine.worker_records import KindSlots
from fairlead.wire.aliases import WorkerBody
from fairlead.wire.endpoint import Empty, Endpoint, Problem

MOST_AT_ONCE: Final = 1_000
"""How many tasks one poll can give, one heartbeat can renew, and one request can settle."""

_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200, pattern="^[A-Za-z0-9_.:-]+$")]
_Names: TypeAlias = Annotated[tuple[_Name, ...], Meta(max_length=1_000)]
_Text: TypeAlias = Annotated[str, Meta(max_length=200)]
_Allowance: TypeAlias = Annotated[float, Meta(ge=0, le=3_600)]
_Duration: TypeAlias = Annotated[float, Meta(ge=0)]
_Lease: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
# Checked by the core, which says more.
_TaskId: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": "^[0-9a-f]{12}8[0-9a-f]{3}[89ab][0-9a-f]{15}$"})]

WorkerStatus: TypeAlias = Literal["active", "busy", "draining"]
OutcomeWord: TypeAlias = Literal["completed", "failed", "timed_out", "crashed", "cancelled", "handed_back"]


class RegisterRequest(WorkerBody, frozen=True, kw_only=True):
    """The registration of a worker."""

    capabilities: _Names = ()
    """What it can do; tasks that require more are left to others."""
    capacity: Annotated[int, Meta(ge=1, le=100_000)] = 1
    """How many tasks it runs at once."""
    task_types: _Names | None = None
    """The types that it can run; all if this is left out."""
    queues: Annotated[tuple[_Name, ...], Meta(min_length=1, max_length=100)] = ("default",)
    """The queues that it serves."""
    version: _Text = ""
    """The version of its code, shown to people."""
    host: _Text = ""
    """Where it runs, shown to people and part of its id."""
    worker_id: _Name | None = None
    """The id that it had, when it registers again; left out by a new worker."""
    slots: Annotated[tuple[KindSlots, ...], Meta(max_length=3)] = ()
    """How its capacity is made up, if it has limits by kind of handler; shown to people."""


class Registered(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a register: the worker's id, and how often to call."""

    worker_id: str
    """The worker's id; part of the paths of its other calls."""
    poll_interval_ms: int
    """How long to pause after a poll that gave nothing and did not wait, in milliseconds."""
    heartbeat_interval_ms: int
    """How often to send a heartbeat, in milliseconds."""
    lease_seconds: float
    """How long a task is held without a heartbeat."""
    grace_seconds: float | None = None
    """How long past its timeout an attempt may hold its lease; left out if it is the usual 10 seconds."""


class PollRequest(WorkerBody, frozen=True, kw_only=True):
    """A worker asks for tasks."""

    available_capacity: Annotated[int, Meta(ge=0, le=100_000)] = 1
    """How many it can take now; it never gets more."""
    capabilities: _Names | None = None
    """What it can do now; what it registered with, if this is left out."""
    wait_seconds: Annotated[float, Meta(ge=0, le=3_600)] = 0.0
    """How long to wait for a task if there is none; the server may answer sooner."""
    task_types: _Names | None = None
    """The types to take now, of those that it registered; all of them if this is left out."""


class LeasedTask(Struct, frozen=True, kw_only=True):
    """A task that is leased to the worker."""

    task_id: str
    task_type: str
    parameters: Raw
    """A JSON object, byte for byte as it was submitted."""
    timeout_seconds: float
    """How long the attempt may take; the worker is to stop it after that."""
    attempt: int
    """1 at the first attempt, and never the same number twice for one task."""
    lease: str
    """Send it with every call about this attempt. Opaque, and different for every attempt."""
    trace_id: str | None
    """The trace that it belongs to: the one in its traceparent, the id that its submitter gave, or else its own id."""
    traceparent: str | None
    """The W3C traceparent of its submit: the parent for the span of the attempt."""
    queue: str
    priority: str
    required_capabilities: tuple[str, ...]
    retry_count: int
    """Retries that were spent so far."""
    max_retries: int
    created_at: str
    tenant: str | None
    tags: tuple[str, ...]
    after: tuple[str, ...] = ()
    """The tasks that it waited for."""


class Polled(Struct, frozen=True, kw_only=True):
    """The answer to a poll: the best tasks first."""

    tasks: tuple[LeasedTask, ...]
    should_drain: bool = False
    """Whether the worker should stop polling, let its running tasks end, and deregister."""
    paused: bool = False
    """Whether somebody paused the worker: it gets nothing until it is resumed, and may go on polling."""


class ProgressRequest(WorkerBody, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of an attempt."""

    task_id: _TaskId
    lease: _Lease | None = None
    """As in a result."""
    percent: Annotated[float, Meta(ge=0, le=100)]
    message: Annotated[str, Meta(max_length=2_000)] = ""
    allowance_seconds: _Allowance = 0.0
    """As in a heartbeat."""


class ProgressNoted(Struct, frozen=True, kw_only=True):
    """The answer to a progress report, which renews the lease as a heartbeat does."""

    acknowledged: bool
    cancel: bool
    """Whether the attempt is to be stopped, and its result to be `cancelled`."""


class ReportedError(WorkerBody, frozen=True, kw_only=True):
    """What went wrong in an attempt."""

    message: str
    type: str = "Error"
    """The name of the error."""
    retriable: bool = True
    """Whether another attempt may help; only of a `failed` result."""
    traceback: str | None = None
    details: Raw | UnsetType = UNSET
    """Anything else about it, any JSON value: stored as its traceback, if it has none."""
    names: Annotated[tuple[_Text, ...], Meta(max_length=32)] = ()
    """Further names by which retry rules find the error: its name with its module, and the names of its base classes,
    nearest first."""


class Result(WorkerBody, frozen=True, kw_only=True):
    """How an attempt ended."""

    task_id: _TaskId
    lease: _Lease | None = None
    """The lease that came with the task. Without it the worker's id is enough if the task was given to this
    registration of the worker, and never to this worker before."""
    status: OutcomeWord
    """`timed_out`: stopped at its timeout. `crashed`: it took its process down. `cancelled`: stopped because cancel was
    asked. `handed_back`: not tried to its end, and no retry is spent."""
    result: Raw = Raw(b"null")
    """For `completed`: any JSON value."""
    error: ReportedError | None = None
    """For `failed` and `crashed`."""
    retry_after_seconds: Annotated[float, Meta(ge=0, le=31_622_400)] | None = None
    """For `failed` and `handed_back`: how long to wait before the next attempt, instead of its backoff."""
    execution_duration_seconds: _Duration | UnsetType = UNSET
    """How long it took by the worker's clock. Accepted and not stored: the server knows when it began and ended."""


class ResultRequest(WorkerBody, frozen=True, kw_only=True):
    """How one attempt ended, or under `results` how several did."""

    task_id: str | None = None
    lease: _Lease | None = None
    status: OutcomeWord | None = None
    result: Raw = Raw(b"null")
    error: ReportedError | None = None
    retry_after_seconds: Annotated[float, Meta(ge=0, le=31_622_400)] | None = None
    execution_duration_seconds: _Duration | UnsetType = UNSET
    results: Annotated[tuple[Result, ...], Meta(max_length=MOST_AT_ONCE)] | None = None
    """Several results, instead of all other fields; each is answered by itself."""


class ResultsRequest(WorkerBody, frozen=True, kw_only=True):
    """How several attempts ended."""

    results: Annotated[tuple[Result, ...], Meta(max_length=MOST_AT_ONCE)]
    """Each is answered by itself."""


class ResultNoted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to one of several results."""

    task_id: str
    acknowledged: bool
    status: str | None = None
    """How the task stands now."""
    problem: Problem | None = None
    """Why it was not acknowledged."""


class ResultAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a result, or under `results` to several."""

    acknowledged: bool
    """Whether it was accepted now or before; for several results, whether all were."""
    task_id: str | None = None
    status: str | None = None
    """How the task stands now, such as `completed`, `scheduled` for a retry, or `dead_letter`."""
    results: tuple[ResultNoted, ...] | None = None
    """The answers to several results, in their order."""


class Running(WorkerBody, frozen=True, kw_only=True, omit_defaults=True):
    """A task that a worker runs."""

    task_id: str
    lease: _Lease
    allowance_seconds: _Allowance = 0.0
    """How much later than the claim the time of its attempt began, because its process took that long to get ready."""


_AllRunning: TypeAlias = Annotated[tuple[Running, ...], Meta(max_length=MOST_AT_ONCE)]


class HeartbeatRequest(WorkerBody, frozen=True, kw_only=True):
    """A heartbeat of a worker, and the tasks that it runs."""

    current_load: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    """How many tasks it runs; as many as `running` names, if this is left out."""
    load_by_kind: dict[str, Annotated[int, Meta(ge=0, le=100_000)]] | None = None
    """The same by the kinds of slots that it registered; other kinds are passed over."""
    status: WorkerStatus | None = None
    """Whether it drains; unchanged if left out. A worker that was asked to drain is draining, whatever this says.
    `busy` means `active`."""
    running: _AllRunning | None = None
    """The leases to renew, and no others. If this is left out, all that the worker holds are renewed."""
    health: Raw | UnsetType = UNSET
    """Its health, any JSON value. Accepted and not stored."""
    renew: bool = True
    """False to learn what should be stopped without renewing anything."""


class HeartbeatNoted(Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat."""

    acknowledged: bool
    should_drain: bool
    """Whether the worker should stop polling, let its running tasks end, and deregister."""
    cancel: tuple[str, ...]
    """The tasks whose attempts are to be stopped, and settled as `cancelled`."""
    lost: tuple[str, ...]
    """The tasks whose leases are lost: their attempts are to be stopped, and not reported."""
    paused: bool = False
    """Whether somebody paused the worker: it gets no more tasks until it is resumed, and continues with its running
    tasks."""


class StartRequest(WorkerBody, frozen=True, kw_only=True):
    """A worker begins with a task."""

    task_id: _TaskId
    lease: _Lease | None = None
    """The lease that came with the task, if the worker keeps it."""


class StartNoted(Struct, frozen=True, kw_only=True):
    """The answer to a start."""

    acknowledged: bool
    cancel: bool
    """Whether the attempt is to be stopped, and its result to be `cancelled`."""


class DrainNoted(Struct, frozen=True, kw_only=True):
    """The answer to a drain."""

    acknowledged: bool


class DeregisterRequest(WorkerBody, frozen=True, kw_only=True):
    """A worker leaves."""

    running: _AllRunning = ()
    """The tasks that it still holds, if it knows; all tasks that are leased to it are handed back in any case."""


class Deregistered(Struct, frozen=True, kw_only=True):
    """The answer to a deregister."""

    acknowledged: bool
    handed_back: tuple[str, ...]
    """The tasks that wait again; no retry was spent."""


_BATCH_LIMIT: Final = 10 * 1024 * 1024

REGISTER: Final = Endpoint[Empty, RegisterRequest](
    method="POST",
    path="/internal/workers/register",
    summary="Register a worker",
    role=Role.WORK,
    body=RegisterRequest,
    answers={201: Registered},
)
POLL: Final = Endpoint[Empty, PollRequest](
    method="POST",
    path="/internal/workers/{worker_id}/poll",
    patient=True,
    summary="Claim tasks",
    role=Role.WORK,
    body=PollRequest,
    answers={200: Polled},
    problems=(404,),
)
START: Final = Endpoint[Empty, StartRequest](
    method="POST",
    path="/internal/workers/{worker_id}/start",
    summary="Acknowledge that an attempt begins",
    role=Role.WORK,
    body=StartRequest,
    answers={200: StartNoted},
    problems=(404, 409),
)
PROGRESS: Final = Endpoint[Empty, ProgressRequest](
    method="POST",
    path="/internal/workers/{worker_id}/progress",
    summary="Report the progress of an attempt",
    role=Role.WORK,
    body=ProgressRequest,
    answers={200: ProgressNoted},
    problems=(409,),
)
RESULT: Final = Endpoint[Empty, ResultRequest](
    method="POST",
    path="/internal/workers/{worker_id}/result",
    summary="Report how attempts ended",
    role=Role.WORK,
    body=ResultRequest,
    bodies={"application/json": (Result, ResultsRequest)},
    body_limit=_BATCH_LIMIT,
    answers={200: ResultAnswer},
    problems=(409,),
)
HEARTBEAT: Final = Endpoint[Empty, HeartbeatRequest](
    method="POST",
    path="/internal/workers/{worker_id}/heartbeat",
    summary="Renew leases",
    role=Role.WORK,
    body=HeartbeatRequest,
    answers={200: HeartbeatNoted},
    problems=(404,),
)
DRAIN: Final = Endpoint[Empty, None](
    method="POST",
    path="/internal/workers/{worker_id}/drain",
    summary="Have a worker drain",
    role=Role.WORK,
    answers={200: DrainNoted},
    problems=(404,),
)
DEREGISTER: Final = Endpoint[Empty, DeregisterRequest](
    method="POST",
    path="/internal/workers/{worker_id}/deregister",
    summary="Deregister a worker",
    role=Role.WORK,
    body=DeregisterRequest,
    answers={200: Deregistered},
    problems=(404,),
)
