"""The settings of a queue: what each means and may be, and how they can be changed while everything runs.

A field of a struct of settings is written once, as `Annotated[type, Setting(…)]`. From that come its check, its name
and shape over HTTP, its option on the command line and its line in the documentation.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, TypedDict, assert_never, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings
from fairlead.core.identity import check_name
from fairlead.core.instant import LATEST, LONGEST, Span
from fairlead.core.queues.admission import Tiers, check_tiers
from fairlead.core.queues.fairness import FairRule, check_fair, check_weight
from fairlead.core.queues.limits import Limit, Limits, Rate, check_rate
from fairlead.core.queues.order import Policy, check_policy
from fairlead.core.retry import MOST_RETRIES, Backoff, check_backoff
from fairlead.core.task import Priority
from fairlead.core.validation import (
    Duration,
    bad_setting,
    check_count,
    check_flag,
    check_span,
    check_text,
    check_type,
    shown,
    span_of,
)


class Count(Struct, frozen=True):
    """A whole number."""

    least: int
    most: int
    zero: str = ""
    """What 0 means, for people."""
    remedy: str = ""
    """What to do about a number that is out of range, where more can be said than the range."""


class Seconds(Struct, frozen=True):
    """A span of more than nothing: microseconds as it is kept, seconds or a timedelta as it is written."""


class PriorityWord(Struct, frozen=True):
    """A priority, by its word."""


class RateText(Struct, frozen=True):
    """So many per second, minute, hour or day, such as `10/s`."""


class Text(Struct, frozen=True):
    """A text that is not empty."""


class OrderPolicy(Struct, frozen=True):
    """An order of service, with its table."""


class BackoffPolicy(Struct, frozen=True):
    """How long to wait before a retry."""


class SharedBy(Struct, frozen=True):
    """What the tasks of a queue share it by: `tenant`, `type`, `tag:NAME` or `parameter:NAME`."""


class WeightNumber(Struct, frozen=True):
    """How many turns a fair key has for each one of a key with weight 1."""


class ByType(Struct, frozen=True):
    """A value for single task types."""

    each: Count | RateText | WeightNumber
    of: Literal["type", "key"] = "type"
    """Or for single fair keys."""


Kind: TypeAlias = (
    Count | Seconds | PriorityWord | RateText | Text | OrderPolicy | BackoffPolicy | SharedBy | WeightNumber | ByType
)


class Setting(Struct, frozen=True):
    """What can be said of something while everything runs; None is what the settings of all say."""

    kind: Kind
    meaning: str
    """One sentence, for the API, the command line and the documentation."""
    label: str = ""
    """What it is called in a listing, if not by its name; settings with one label are shown together."""
    wire: str = ""
    """What it is called over HTTP, if not by its name and its unit."""

    def of(self, name: str, said: object) -> Any:
        """The value that a user means, as it is kept; None stays None."""
        return None if said is None else _of(self.kind, name, said)

    def check(self, name: str, value: object) -> None:
        """Refuse a value that cannot be kept: None is said of a setting, and of no single type in one."""
        if value is not None or isinstance(self.kind, ByType):
            _check(self.kind, name, value)


@functools.cache
def settings_in(struct: type[Struct]) -> Mapping[str, Setting]:
    """The settings among the fields of a struct, by name."""
    found: dict[str, Setting] = {}
    for name, hint in get_type_hints(struct, include_extras=True).items():
        for said in getattr(hint, "__metadata__", ()):
            if isinstance(said, Setting):
                found[name] = said
    return found


def check_settings(settings: Struct) -> None:
    """Refuse settings of which one cannot be kept."""
    for name, setting in settings_in(type(settings)).items():
        setting.check(name, getattr(settings, name))


def _of(kind: Kind, name: str, said: object) -> object:
    match kind:
        case Seconds():
            return span_of(name, said, bad_setting)
        case PriorityWord():
            return Priority.parse(said)  # type: ignore[arg-type]
        case RateText():
            return said if type(said) is Rate else Rate.parse(said)  # type: ignore[arg-type]
        case ByType(each, of):
            return {key: None if value is None else _of(each, name, value) for key, value in _pairs(name, said, of)}
        case Count() | Text() | OrderPolicy() | BackoffPolicy() | SharedBy() | WeightNumber():
            return said
        case _:
            assert_never(kind)


def _check(kind: Kind, name: str, value: object) -> None:
    match kind:
        case Count(least, most, _, remedy):
            if remedy and (type(value) is not int or not least <= value <= most):
                raise InvalidSettings(f"{name} {shown(value)} is not a number of tasks; {remedy}")
            check_count(name, value, least, most, bad_setting)
        case Seconds():
            check_span(name, value, 1, LONGEST, bad_setting)
        case PriorityWord():
            check_type(name, value, Priority, "use a Priority, such as Priority.HIGH", bad_setting)
        case RateText():
            check_rate(name, value)
        case Text():
            check_text(name, value, refuse=bad_setting)
        case OrderPolicy():
            check_policy(name, value)
        case BackoffPolicy():
            check_backoff(name, value, bad_setting)
        case SharedBy():
            check_fair(name, value)
        case WeightNumber():
            check_weight(name, value)
        case ByType(each, of):
            for key, own in check_type(name, value, dict, f"use a dict by {_KEYS[of]}", bad_setting).items():
                known = check_name("task_type", key) if of == "type" else check_text("fair_key", key)
                _check(each, f"{name} of {known}", own)
        case _:
            assert_never(kind)


_KEYS: Final = {"type": "task type", "key": "fair key"}


def _pairs(name: str, said: object, of: Literal["type", "key"]) -> Any:
    if not isinstance(said, Mapping):
        raise InvalidSettings(f"{name} {shown(said)} is not a dict; write one by {_KEYS[of]}")
    return said.items()


UNBOUNDED: Final = 0
"""The bound of a queue that takes as many tasks as the store can hold, whatever the settings say."""

_TASKS: Final = Count(1, LATEST, zero="any number", remedy="use 1 or more, or pause the queue")

_WAITING: Final = Count(1, LATEST)


class QueueSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of one queue; None is what the settings of the engine say."""

    paused: bool = False
    """Whether its tasks wait however many workers are free. It still accepts tasks, and running tasks continue."""
    bound: Annotated[
        int | None, Setting(Count(UNBOUNDED, LATEST, zero="none"), "How many tasks may wait in it; 0 for no bound.")
    ] = None
    urgent_above: Annotated[
        int | None,
        Setting(_WAITING, "How many tasks may wait in it before it takes only critical and high ones."),
    ] = None
    listed_above: Annotated[
        int | None,
        Setting(_WAITING, "How many tasks may wait in it before it takes only those of the allow list."),
    ] = None
    order: Annotated[Policy | None, Setting(OrderPolicy(), "How the next task is chosen.")] = None
    priority: Annotated[Priority | None, Setting(PriorityWord(), "The priority of a task that names none.")] = None
    timeout: Annotated[
        Span | None, Setting(Seconds(), "How long an attempt may take, for tasks without a timeout of their own.")
    ] = None
    max_retries: Annotated[
        int | None,
        Setting(
            Count(0, MOST_RETRIES),
            "How often a failure is tried again, for tasks that do not say so themselves.",
            label="retries",
        ),
    ] = None
    max_crashes: Annotated[
        int | None,
        Setting(
            Count(0, MOST_RETRIES),
            "How many workers a task may lose before it is a dead letter, for tasks that do not say so themselves.",
            label="crashes",
        ),
    ] = None
    backoff: Annotated[
        Backoff | None,
        Setting(
            BackoffPolicy(),
            "How long to wait before a retry, for tasks without a backoff of their own.",
            wire="retry_policy",
        ),
    ] = None
    running: Annotated[int | None, Setting(_TASKS, "How many of its tasks may run at once.", label="at once")] = None
    rate: Annotated[
        Rate | None,
        Setting(
            RateText(),
            "How many of its tasks may start per second, minute, hour or day, such as `10/s` or `100/m`.",
            label="at once",
        ),
    ] = None
    type_running: Annotated[
        dict[str, int],
        Setting(
            ByType(_TASKS), "How many tasks of a type in it may run at once; types not named stay.", label="at once"
        ),
    ] = {}
    type_rate: Annotated[
        dict[str, Rate],
        Setting(
            ByType(RateText()),
            "How many tasks of a type in it may start per second, minute, hour or day; types not named stay.",
            label="at once",
        ),
    ] = {}
    key_running: Annotated[
        int | None,
        Setting(
            Count(UNBOUNDED, LATEST, zero="any number", remedy=_TASKS.remedy),
            "How many tasks of each concurrency key may run at once; one by default, 0 for any number.",
            label="each key",
        ),
    ] = None
    key_rate: Annotated[
        Rate | None,
        Setting(
            RateText(),
            "How many tasks of each concurrency key may start per second, minute, hour or day.",
            label="each key",
        ),
    ] = None
    tenant: Annotated[
        str | None,
        Setting(Text(), "The tenant that it is bound to: it takes only that tenant's tasks, and must hold no others."),
    ] = None
    fair: Annotated[
        str | None,
        Setting(
            SharedBy(),
            "What its tasks share it by, turn by turn: `tenant`, `type`, `tag:NAME` for what follows `NAME:` in a tag, "
            "or `parameter:NAME` for the value of that parameter.",
        ),
    ] = None
    weight: Annotated[
        dict[str, float],
        Setting(
            ByType(WeightNumber(), "key"),
            "How many turns a fair key has for each one of a key with weight 1, from 0.01 to 100, of what is submitted "
            "from then on; keys not named stay.",
            label="weight",
        ),
    ] = {}
    default_weight: Annotated[
        float | None, Setting(WeightNumber(), "The weight of fair keys that are not named; 1 by default.")
    ] = None

    def __post_init__(self) -> None:
        check_flag("paused", self.paused, bad_setting)
        check_settings(self)
        check_tiers(self.urgent_above, self.listed_above)

    @property
    def fair_rule(self) -> FairRule | None:
        """How its tasks share it; None if they take no turns."""
        if self.fair is None:
            return None
        return FairRule(self.fair, self.weight, 1 if self.default_weight is None else self.default_weight)

    @property
    def tiers(self) -> Tiers | None:
        """From how many waiting tasks on it takes fewer; None if it has no such tiers."""
        tiers = Tiers(self.urgent_above, self.listed_above)
        return tiers or None

    @property
    def limits(self) -> Limits | None:
        """Its limits as a claim carries them; None if it has none of its own."""
        said = (self.running, self.rate, self.key_running, self.key_rate, self.type_running or None)
        if all(each is None for each in (*said, self.type_rate or None)):
            return None
        types = {*self.type_running, *self.type_rate}
        at_once = 1 if self.key_running is None else self.key_running or None
        return Limits(
            queue=_limit(self.running, self.rate),
            types={each: _limit(self.type_running.get(each), self.type_rate.get(each)) for each in types},
            key=_limit(at_once, self.key_rate),
        )


def _limit(running: int | None, rate: Rate | None) -> Limit:
    return Limit(running, None if rate is None else rate.pace)


class QueueOptions(TypedDict, total=False):
    """What can be said of a queue, as people write it; None goes back to the settings of all.

    A row for each setting of `QueueSettings`, whose fields say what they mean.
    """

    bound: int | None
    urgent_above: int | None
    listed_above: int | None
    order: Policy | None
    priority: str | Priority | None
    timeout: Duration | None
    max_retries: int | None
    max_crashes: int | None
    backoff: Backoff | None
    running: int | None
    rate: str | Rate | None
    type_running: Mapping[str, int | None] | None
    """None for a type has none of its own; likewise below, and None for all."""
    type_rate: Mapping[str, str | Rate | None] | None
    key_running: int | None
    key_rate: str | Rate | None
    tenant: str | None
    """Refused while the queue holds tasks of others; None makes it anybody's again."""
    fair: str | None
    weight: Mapping[str, float | None] | None
    """None for a key has that of all, and None for all."""
    default_weight: float | None


def changed(own: QueueSettings, options: QueueOptions) -> QueueSettings:
    """The settings of a queue after what somebody said of it; raises InvalidSettings if that makes no sense."""
    settings = settings_in(QueueSettings)
    changes: dict[str, Any] = {}
    for name, said in options.items():
        if name not in settings:
            known = ", ".join(sorted(settings))
            raise InvalidSettings(f"option {name!r} of a queue is unknown; the options are {known}")
        value = settings[name].of(name, said)
        changes[name] = _merged(getattr(own, name), value) if isinstance(settings[name].kind, ByType) else value
    return replace(own, **changes)


def _merged(own: Mapping[str, object], changes: Mapping[str, object] | None) -> dict[str, object]:
    """What is said of single task types: of those that are named, and of none if nothing is."""
    merged = {} if changes is None else {**own, **changes}
    return {name: value for name, value in merged.items() if value is not None}


class PurgeCount(Struct, frozen=True, kw_only=True):
    """What a purge has removed."""

    scheduled: int = 0
    queued: int = 0
    complete: bool = True
    """Whether all that waited when it began is gone; otherwise it reached its limit, and there may be more."""

    @property
    def total(self) -> int:
        """How many tasks there were."""
        return self.scheduled + self.queued
