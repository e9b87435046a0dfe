"""Queues: how they are shown and changed, over HTTP and by `--json` of the command line."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias, assert_never

from msgspec import UNSET, Meta, Struct, UnsetType

from fairlead.core.instant import SECOND, span
from fairlead.core.limits import Rate
from fairlead.core.order import HeadStart, Policy, Promote, Strict, Weighted
from fairlead.core.queue import QueueSettings
from fairlead.core.task import Priority, State
from fairlead.engine.queues import QueueChanges
from fairlead.engine.stats import QueueStats
from fairlead.wire import retrying
from fairlead.wire.retrying import RetryPolicy, backoff_of
from fairlead.wire.tasks import Name, PriorityWord

_YEAR: Final = 366 * 86_400

_Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=_YEAR)]
_Weight: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
_Tries: TypeAlias = Annotated[int, Meta(ge=0, le=10_000)]
_Bound: TypeAlias = Annotated[int, Meta(ge=0, le=10**12)]
_Running: TypeAlias = Annotated[int, Meta(ge=1, le=10**12)]
_Rate: TypeAlias = Annotated[str, Meta(pattern="^(1000000|[1-9][0-9]{0,5})/[smhd]$")]
_Timeout: TypeAlias = Annotated[float, Meta(gt=0, le=_YEAR)]


class PromoteOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="policy", tag="promote"):
    """A waiting task is treated as the next priority after a while."""

    low_seconds: _Seconds = 600.0
    """How long a low task waits before it is treated as medium."""
    medium_seconds: _Seconds = 1200.0
    """How long a task treated as medium waits before it is treated as high."""
    high_seconds: _Seconds = 1800.0
    """How long a task treated as high waits before it is treated as critical."""


class StrictOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="policy", tag="strict"):
    """A lower priority waits while a higher one has work."""


class HeadStartOrder(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="policy", tag="head_start"
):
    """One line, in which a priority stands as if its tasks had come that much earlier."""

    critical_seconds: _Seconds = 3600.0
    high_seconds: _Seconds = 1800.0
    medium_seconds: _Seconds = 600.0
    low_seconds: _Seconds = 0.0


class WeightedOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="policy", tag="weighted"):
    """Each turn draws the order of the priorities by weight."""

    critical: _Weight = 8
    high: _Weight = 4
    medium: _Weight = 2
    low: _Weight = 1


OrderShape: TypeAlias = PromoteOrder | StrictOrder | HeadStartOrder | WeightedOrder


class QueueOwnSettings(Struct, frozen=True, kw_only=True):
    """What is said of one queue alone; null is what the settings of the servers and workers say."""

    bound: int | None
    """How many tasks may wait in it; 0 for no bound."""
    order: OrderShape | None
    """How the next task is chosen."""
    priority: str | None
    """The priority of a task that names none."""
    timeout_seconds: float | None
    """How long an attempt may take of a task that does not say so itself; likewise those that follow."""
    max_retries: int | None
    max_crashes: int | None
    retry_policy: RetryPolicy | None
    running: int | None
    """How many of its tasks may run at once."""
    rate: str | None
    """How many of its tasks may start per second, minute, hour or day, such as `10/s` or `100/m`."""
    type_running: dict[str, int]
    """How many tasks of a type in it may run at once."""
    type_rate: dict[str, str]
    """How many tasks of a type in it may start in a while."""
    key_running: int | None
    """How many tasks of each concurrency key may run at once: one, unless said; 0 for as many as come."""
    key_rate: str | None
    """How many tasks of each concurrency key may start in a while."""


class QueueChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change of a queue; null goes back to what the settings say, and what is left out stays."""

    bound: _Bound | UnsetType | None = UNSET
    """How many tasks may wait in it; 0 for no bound."""
    order: OrderShape | UnsetType | None = UNSET
    """How the next task is chosen."""
    priority: PriorityWord | UnsetType | None = UNSET
    """The priority of a task that names none."""
    timeout_seconds: _Timeout | UnsetType | None = UNSET
    """How long an attempt may take of a task that does not say so itself; likewise those that follow."""
    max_retries: _Tries | UnsetType | None = UNSET
    max_crashes: _Tries | UnsetType | None = UNSET
    retry_policy: RetryPolicy | UnsetType | None = UNSET
    running: _Running | UnsetType | None = UNSET
    """How many of its tasks may run at once."""
    rate: _Rate | UnsetType | None = UNSET
    """How many of its tasks may start per second, minute, hour or day, such as `10/s` or `100/m`."""
    type_running: dict[Name, _Running | None] | UnsetType | None = UNSET
    """How many tasks of a type in it may run at once; null for as many as come, and what is left out stays."""
    type_rate: dict[Name, _Rate | None] | UnsetType | None = UNSET
    """How many tasks of a type in it may start in a while; likewise."""
    key_running: _Bound | UnsetType | None = UNSET
    """How many tasks of each concurrency key may run at once: one, unless said; 0 for as many as come."""
    key_rate: _Rate | UnsetType | None = UNSET
    """How many tasks of each concurrency key may start in a while."""


class QueueShown(Struct, frozen=True, kw_only=True):
    """A queue: whether it is paused, how many tasks it has, and what is said of it alone."""

    queue: str
    paused: bool
    states: dict[str, int]
    """How many of its tasks are in each state."""
    running: dict[str, int]
    """How many of its tasks of each type are executing."""
    settings: QueueOwnSettings


class QueueList(Struct, frozen=True, kw_only=True):
    """The queues that have tasks or settings of their own, by name."""

    queues: list[QueueShown]
    paused_types: list[str]
    """The task types that are paused, in whatever queue."""


class PurgeRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A purge cannot be undone, so it names the queue twice."""

    confirm: Name
    """The name of the queue again."""


class PurgeNoted(Struct, frozen=True, kw_only=True):
    """What a purge has removed."""

    queue: str
    scheduled: int
    """How many tasks that were not yet due."""
    queued: int
    """How many that were ready."""
    complete: bool
    """Whether all that waited when it began is gone; if not, ask again."""


class TypeNoted(Struct, frozen=True, kw_only=True):
    """A task type, and whether it is paused."""

    task_type: str
    paused: bool


def queue_shown(name: str, own: QueueSettings, stats: QueueStats | None = None) -> QueueShown:
    """A queue with these settings that stands like this."""
    counts = {} if stats is None else stats.states
    return QueueShown(
        queue=name,
        paused=own.paused,
        states={state.value: counts.get(state, 0) for state in State},
        running={} if stats is None else stats.running,
        settings=QueueOwnSettings(
            bound=own.bound,
            order=None if own.order is None else order_shape(own.order),
            priority=None if own.priority is None else own.priority.word,
            timeout_seconds=None if own.timeout is None else own.timeout / SECOND,
            max_retries=own.max_retries,
            max_crashes=own.max_crashes,
            retry_policy=retrying.policy_of(own.backoff),
            running=own.running,
            rate=_rate_text(own.rate),
            type_running=own.type_running,
            type_rate={name: str(rate) for name, rate in own.type_rate.items()},
            key_running=own.key_running,
            key_rate=_rate_text(own.key_rate),
        ),
    )


def settings_of(shown: QueueShown) -> QueueSettings:
    """The settings of a queue that is shown like this."""
    own = shown.settings
    return QueueSettings(
        paused=shown.paused,
        bound=own.bound,
        order=None if own.order is None else policy_of(own.order),
        priority=None if own.priority is None else Priority.parse(own.priority),
        timeout=None if own.timeout_seconds is None else span(own.timeout_seconds),
        max_retries=own.max_retries,
        max_crashes=own.max_crashes,
        backoff=backoff_of(own.retry_policy),
        running=own.running,
        rate=_rate(own.rate),
        type_running=own.type_running,
        type_rate={name: Rate.parse(text) for name, text in own.type_rate.items()},
        key_running=own.key_running,
        key_rate=_rate(own.key_rate),
    )


def changes_of(change: QueueChange) -> QueueChanges:
    """What a request changes."""
    changes = QueueChanges()
    if change.bound is not UNSET:
        changes["bound"] = change.bound
    if change.order is not UNSET:
        changes["order"] = None if change.order is None else policy_of(change.order)
    if change.priority is not UNSET:
        changes["priority"] = None if change.priority is None else Priority.parse(change.priority)
    if change.timeout_seconds is not UNSET:
        # Never zero: a span is whole microseconds, and what was asked for is more than nothing.
        changes["timeout"] = None if change.timeout_seconds is None else max(1, span(change.timeout_seconds))
    if change.max_retries is not UNSET:
        changes["max_retries"] = change.max_retries
    if change.max_crashes is not UNSET:
        changes["max_crashes"] = change.max_crashes
    if change.retry_policy is not UNSET:
        changes["backoff"] = backoff_of(change.retry_policy)
    return changes | _limit_changes(change)


def _limit_changes(change: QueueChange) -> QueueChanges:
    changes = QueueChanges()
    if change.running is not UNSET:
        changes["running"] = change.running
    if change.rate is not UNSET:
        changes["rate"] = _rate(change.rate)
    if change.type_running is not UNSET:
        changes["type_running"] = change.type_running
    if change.type_rate is not UNSET:
        rates = change.type_rate
        changes["type_rate"] = None if rates is None else {name: _rate(text) for name, text in rates.items()}
    if change.key_running is not UNSET:
        changes["key_running"] = change.key_running
    if change.key_rate is not UNSET:
        changes["key_rate"] = _rate(change.key_rate)
    return changes


def change_of(changes: QueueChanges) -> dict[str, object]:
    """The request that makes these changes."""
    body: dict[str, object] = {
        name: changes[name]
        for name in ("bound", "max_retries", "max_crashes", "running", "type_running", "key_running")
        if name in changes
    }
    if "rate" in changes:
        body["rate"] = _rate_text(changes["rate"])
    if "key_rate" in changes:
        body["key_rate"] = _rate_text(changes["key_rate"])
    if "type_rate" in changes:
        rates = changes["type_rate"]
        body["type_rate"] = None if rates is None else {name: _rate_text(rate) for name, rate in rates.items()}
    if "order" in changes:
        body["order"] = None if changes["order"] is None else order_shape(changes["order"])
    if "priority" in changes:
        body["priority"] = None if changes["priority"] is None else changes["priority"].word
    if "timeout" in changes:
        body["timeout_seconds"] = None if changes["timeout"] is None else changes["timeout"] / SECOND
    if "backoff" in changes:
        body["retry_policy"] = retrying.policy_of(changes["backoff"])
    return body


def order_shape(policy: Policy) -> OrderShape:
    """An order of service in seconds."""
    match policy:
        case Promote(low=low, medium=medium, high=high):
            return PromoteOrder(low_seconds=low / SECOND, medium_seconds=medium / SECOND, high_seconds=high / SECOND)
        case Strict():
            return StrictOrder()
        case HeadStart(critical=critical, high=high, medium=medium, low=low):
            return HeadStartOrder(
                critical_seconds=critical / SECOND,
                high_seconds=high / SECOND,
                medium_seconds=medium / SECOND,
                low_seconds=low / SECOND,
            )
        case Weighted(critical=critical, high=high, medium=medium, low=low):
            return WeightedOrder(critical=critical, high=high, medium=medium, low=low)
        case _:
            assert_never(policy)


def policy_of(shape: OrderShape) -> Policy:
    """The order of service that a shape describes."""
    match shape:
        case PromoteOrder():
            return Promote(
                low=span(shape.low_seconds), medium=span(shape.medium_seconds), high=span(shape.high_seconds)
            )
        case StrictOrder():
            return Strict()
        case HeadStartOrder():
            return HeadStart(
                critical=span(shape.critical_seconds),
                high=span(shape.high_seconds),
                medium=span(shape.medium_seconds),
                low=span(shape.low_seconds),
            )
        case WeightedOrder():
            return Weighted(critical=shape.critical, high=shape.high, medium=shape.medium, low=shape.low)
        case _:
            assert_never(shape)


def _rate(text: str | None) -> Rate | None:
    return None if text is None else Rate.parse(text)


def _rate_text(rate: Rate | None) -> str | None:
    return None if rate is None else str(rate)
