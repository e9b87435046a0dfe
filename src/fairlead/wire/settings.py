"""Settings over HTTP: their shapes and both conversions, from the one definition of each (`core.queues.queue`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias, assert_never

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from fairlead.core.instant import LONGEST, SECOND
from fairlead.core.queues.fairness import LEAST_WEIGHT, MOST_WEIGHT
from fairlead.core.queues.order import HeadStart, Policy, Promote, SharedAt, Strict, Weighted
from fairlead.core.queues.queue import (
    BackoffPolicy,
    ByType,
    Count,
    Kind,
    OrderPolicy,
    PriorityWord,
    RateText,
    Seconds,
    Setting,
    SharedBy,
    Text,
    WeightNumber,
    settings_in,
)
from fairlead.core.validation import TEXT_LIMIT, span_of
from fairlead.wire import tasks as retrying
from fairlead.wire.tasks import Name, PriorityGiven, RetryPolicy, backoff_of
from fairlead.wire.words import PriorityName

_YEAR: Final = 366 * 86_400

_Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=_YEAR)]
_Weight: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]


class PromoteOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="policy", tag="promote"):
    """A waiting task is treated as the next priority after a while."""

    low_seconds: _Seconds = 600.0
    """How long a low task waits before it is treated as medium."""
    medium_seconds: _Seconds = 1200.0
    """How long a task treated as medium waits before it is treated as high."""
    high_seconds: _Seconds = 1800.0
    """How long a task treated as high waits before it is treated as critical."""
    share: SharedAt = "critical"
    """Where promoted tasks and others take turns, one of four: among critical tasks, or at all priorities."""


class StrictOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="policy", tag="strict"):
    """A lower priority waits while a higher one has work."""


class HeadStartOrder(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="policy", tag="head_start"
):
    """One line for all priorities, in which a task counts as submitted that much earlier."""

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


def order_shape(policy: Policy) -> OrderShape:
    """An order of service in seconds."""
    match policy:
        case Promote(low=low, medium=medium, high=high, share=share):
            return PromoteOrder(
                low_seconds=low / SECOND, medium_seconds=medium / SECOND, high_seconds=high / SECOND, share=share
            )
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
                low=span_of("low_seconds", shape.low_seconds),
                medium=span_of("medium_seconds", shape.medium_seconds),
                high=span_of("high_seconds", shape.high_seconds),
                share=shape.share,
            )
        case StrictOrder():
            return Strict()
        case HeadStartOrder():
            return HeadStart(
                critical=span_of("critical_seconds", shape.critical_seconds),
                high=span_of("high_seconds", shape.high_seconds),
                medium=span_of("medium_seconds", shape.medium_seconds),
                low=span_of("low_seconds", shape.low_seconds),
            )
        case WeightedOrder():
            return Weighted(critical=shape.critical, high=shape.high, medium=shape.medium, low=shape.low)
        case _:
            assert_never(shape)


_MOST: Final = 10**12
"""What a count may be: what JavaScript and others can count."""
_SHARED_BY: Final = "^(tenant|type|(tag|parameter):.{1,490})$"
_EACH: Final = {Count: int, RateText: str, WeightNumber: float}
_Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=TEXT_LIMIT)]
_RATE: Final = "^(1000000|[1-9][0-9]{0,5})/[smhd]$"


class SettingShapes:
    """The shapes of the settings of one thing that people operate."""

    def __init__(self, struct: type[Struct], own: tuple[str, str], change: tuple[str, str], module: str) -> None:
        """`own` and `change` are the names and the descriptions of the two shapes."""
        self._settings = {_name(name, each): (name, each) for name, each in settings_in(struct).items()}
        """Each setting and its name in Python, by its name over HTTP."""
        kinds = {wire: each for wire, (_, each) in self._settings.items()}
        self.own: type[Struct] = msgspec.defstruct(
            own[0],
            [(wire, _described(_shown_type(each.kind), each)) for wire, each in kinds.items()],
            frozen=True,
            kw_only=True,
            module=module,
            namespace={"__doc__": own[1]},
        )
        """The shape in which the settings are shown."""
        self.change: type[Struct] = msgspec.defstruct(
            change[0],
            [(wire, _described(_said_type(each.kind) | UnsetType | None, each), UNSET) for wire, each in kinds.items()],
            frozen=True,
            kw_only=True,
            forbid_unknown_fields=True,
            module=module,
            namespace={"__doc__": change[1]},
        )
        """The shape of a request that changes some of them."""

    def shown(self, own: Struct) -> Struct:
        """Settings as they are shown."""
        return self.own(
            **{wire: _to_wire(each.kind, getattr(own, name)) for wire, (name, each) in self._settings.items()}
        )

    def options(self, said: Struct) -> dict[str, Any]:
        """What is said over HTTP, in the words of Python; what is left out is left out."""
        values = {name: (each.kind, getattr(said, wire)) for wire, (name, each) in self._settings.items()}
        return {name: _from_wire(kind, value) for name, (kind, value) in values.items() if value is not UNSET}

    def request(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """What is said in Python, in the words of HTTP."""
        return {
            wire: _to_wire(each.kind, each.of(name, options[name]))
            for wire, (name, each) in self._settings.items()
            if name in options
        }


def _name(name: str, setting: Setting) -> str:
    return setting.wire or (f"{name}_seconds" if isinstance(setting.kind, Seconds) else name)


def _described(kind: Any, setting: Setting) -> Any:
    return Annotated[kind, Meta(description=setting.meaning)]


def _shown_type(kind: Kind) -> Any:
    match kind:
        case Count():
            return int | None
        case Seconds():
            return float | None
        case PriorityWord():
            return PriorityName | None
        case RateText() | Text() | SharedBy():
            return str | None
        case WeightNumber():
            return float | None
        case OrderPolicy():
            return OrderShape | None
        case BackoffPolicy():
            return RetryPolicy | None
        case ByType(each):
            return dict[str, _EACH[type(each)]]  # type: ignore[misc]
        case _:
            assert_never(kind)


def _said_type(kind: Kind) -> Any:
    match kind:
        case Count(least, most):
            return Annotated[int, Meta(ge=least, le=min(most, _MOST))]
        case Seconds():
            return Annotated[float, Meta(gt=0, le=LONGEST // SECOND)]
        case PriorityWord():
            return PriorityGiven
        case RateText():
            return Annotated[str, Meta(pattern=_RATE)]
        case Text():
            return _Text
        case SharedBy():
            return Annotated[str, Meta(pattern=_SHARED_BY)]
        case WeightNumber():
            return Annotated[float, Meta(ge=LEAST_WEIGHT, le=MOST_WEIGHT)]
        case OrderPolicy():
            return OrderShape
        case BackoffPolicy():
            return RetryPolicy
        case ByType(each, of):
            return dict[Name if of == "type" else _Text, _said_type(each) | None]  # type: ignore[misc]
        case _:
            assert_never(kind)


def _to_wire(kind: Kind, value: Any) -> Any:
    """A kept value over HTTP."""
    if value is None:
        return None
    match kind:
        case Seconds():
            return value / SECOND
        case PriorityWord():
            return value.word
        case RateText():
            return str(value)
        case OrderPolicy():
            return order_shape(value)
        case BackoffPolicy():
            return retrying.policy_of(value)
        case ByType(each):
            return {task_type: _to_wire(each, own) for task_type, own in value.items()}
        case Count() | Text() | SharedBy() | WeightNumber():
            return value
        case _:
            assert_never(kind)


def _from_wire(kind: Kind, value: Any) -> Any:
    """What was said over HTTP, as `Setting.of` takes it."""
    if value is None:
        return None
    match kind:
        case OrderPolicy():
            return policy_of(value)
        case BackoffPolicy():
            return backoff_of(value)
        case Count() | Seconds() | PriorityWord() | RateText() | Text() | SharedBy() | WeightNumber() | ByType():
            return value
        case _:
            assert_never(kind)
