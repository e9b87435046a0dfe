"""A setting as data: what it means and what it may be.

A field of a struct of settings is written once, as `Annotated[type, Setting(…)]`. From that come its check, its name
and shape over HTTP, its option on the command line and its line in the documentation.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeAlias, assert_never, get_type_hints

from msgspec import Struct

from fairlead.core.errors import InvalidSettings
from fairlead.core.identity import check_name
from fairlead.core.instant import LONGEST
from fairlead.core.queues.limits import Rate, check_rate
from fairlead.core.queues.order import check_policy
from fairlead.core.retry import check_backoff
from fairlead.core.task import Priority
from fairlead.core.validation import bad_setting, check_count, check_span, check_text, check_type, shown, span_of


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


class ByType(Struct, frozen=True):
    """A value for single task types."""

    each: Count | RateText


Kind: TypeAlias = Count | Seconds | PriorityWord | RateText | Text | OrderPolicy | BackoffPolicy | ByType


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
        case ByType(each):
            return {
                task_type: None if value is None else _of(each, name, value) for task_type, value in _pairs(name, said)
            }
        case Count() | Text() | OrderPolicy() | BackoffPolicy():
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
        case ByType(each):
            for task_type, own in check_type(name, value, dict, "use a dict by task type", bad_setting).items():
                _check(each, f"{name} of {check_name('task_type', task_type)}", own)
        case _:
            assert_never(kind)


def _pairs(name: str, said: object) -> Any:
    if not isinstance(said, Mapping):
        raise InvalidSettings(f"{name} {shown(said)} is not a dict; write one by task type")
    return said.items()
