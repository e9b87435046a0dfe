"""Whether there is another attempt after an error, how long to wait for it, and what handlers raise to say so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import FairleadError, InvalidTask
from fairlead.core.instant import LONGEST, LONGEST_DELAY, MINUTE, SECOND, Span
from fairlead.core.validation import (
    Refuse,
    bad_setting,
    check_count,
    check_flag,
    check_number,
    check_span,
    delay_of,
    shown,
    span_of,
)

LARGEST_FACTOR: Final = 1_000
_ENOUGH_GROWTH: Final = 64
"""Exponents are cut here: any factor has reached any ceiling long before, and floats overflow long after."""


class Backoff(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Exponential backoff with a ceiling and jitter."""

    initial: Span = SECOND
    factor: float = 2.0
    ceiling: Span = 5 * MINUTE
    jitter: float = 0.1
    """How far luck may move the delay, as a share of it."""

    def __post_init__(self) -> None:
        # Every task that is claimed comes by here, so what is as it should be is seen at one glance.
        if not (
            type(self.initial) is type(self.ceiling) is int
            and type(self.factor) is type(self.jitter) is float
            and 0 <= self.initial <= LONGEST
            and 0 <= self.ceiling <= LONGEST
            and 1.0 <= self.factor <= LARGEST_FACTOR
            and 0.0 <= self.jitter <= 1.0
        ):
            self._check()

    def _check(self) -> None:
        check_span("backoff initial", self.initial, 0, LONGEST, bad_setting)
        check_span("backoff ceiling", self.ceiling, 0, LONGEST, bad_setting)
        check_number("backoff factor", self.factor, 1.0, LARGEST_FACTOR, bad_setting)
        check_number("backoff jitter", self.jitter, 0.0, 1.0, bad_setting)

    def delay(self, retries: int, luck: float, at_most: Span | None = None) -> Span:
        """The delay before the next attempt when `retries` were spent before it; luck is from -1.0 to 1.0.

        `at_most` is a further ceiling, which somebody else set; like its own, the jitter may go beyond it.
        """
        ceiling = self.ceiling if at_most is None else min(self.ceiling, at_most)
        grown = self.initial * self.factor ** min(retries, _ENOUGH_GROWTH)
        return round(min(grown, ceiling) * (1.0 + self.jitter * luck))


ANY_ERROR: Final = "*"
"""The name that every error goes by."""

TIMEOUT: Final = "Timeout"
"""The name of the error when an attempt was stopped at its timeout."""

MOST_RETRIES: Final = 10_000
_MOST_RULES: Final = 50
_NAME_LIMIT: Final = 200
_MOST_NAMES: Final = 32


class RetryRule(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """What to do after one kind of error; None means what the task says for all errors."""

    max_retries: int | None = None
    """After how many retries this error is the last, whatever errors the retries before were spent on."""
    backoff: Backoff | None = None
    reject: bool = False
    """Whether this error is never retried."""

    def __post_init__(self) -> None:
        if self.max_retries is not None:
            check_count("max_retries", self.max_retries, 0, MOST_RETRIES, bad_setting)
        if self.backoff is not None:
            check_backoff("backoff", self.backoff, bad_setting)
        check_flag("reject", self.reject, bad_setting)


RetryRules: TypeAlias = dict[str, RetryRule]
"""Rules by the name of the error; the first that an error goes by is the one that counts."""


def check_backoff(name: str, value: object, refuse: Refuse = InvalidTask) -> Backoff:
    """A backoff, which has checked itself when it was made."""
    if type(value) is not Backoff:
        raise refuse(name, f"{name} {shown(value)} is not a Backoff; write Backoff(initial=5), in seconds")
    return value


def check_rules(rules: Mapping[str, RetryRule]) -> None:
    """Raise InvalidTask, naming the rule, if a table of rules makes no sense."""
    if type(rules) is not dict:
        raise _bad_rules(f"retry_rules {shown(rules)} is not a dict; write one of errors and rules")
    if len(rules) > _MOST_RULES:
        raise _bad_rules(f"retry_rules has {len(rules)} rules; {_MOST_RULES} is the most")
    for name, rule in rules.items():
        if type(name) is not str or not 1 <= len(name) <= _NAME_LIMIT or name != name.strip() or not name.isprintable():
            raise _bad_rules(
                f"retry_rules has a rule for the error {shown(name)}; use the name of its type, such as "
                f"'TimeoutError' or 'requests.HTTPError', of at most {_NAME_LIMIT} characters"
            )
        if type(rule) is not RetryRule:
            raise _bad_rules(
                f"retry_rules says {shown(rule)} of {name!r}, which is not a RetryRule; write "
                f"RetryRule(max_retries=5), or 'reject'"
            )
        if rule.reject and (rule.max_retries is not None or rule.backoff is not None):
            raise _bad_rules(
                f"retry_rules: the rule for {name!r} rejects, so that there is nothing to retry; leave out reject, or "
                f"the rest"
            )
    if ANY_ERROR in rules and [*rules][-1] != ANY_ERROR:
        raise _bad_rules(f"retry_rules after {ANY_ERROR!r} can never count: it is for any error; put it last")


def _bad_rules(message: str) -> InvalidTask:
    return InvalidTask("retry_rules", message)


def with_rules(backoff: Backoff, rules: Mapping[str, RetryRule]) -> Backoff | RetryRules:
    """How a task is retried: by one backoff, or by rules of which the last is for any error and has it."""
    if not rules:
        return backoff
    last = rules.get(ANY_ERROR, RetryRule())
    return {**rules, ANY_ERROR: replace(last, backoff=last.backoff or backoff)}


def rule_for(retry: Backoff | RetryRules, names: Iterable[str]) -> RetryRule:
    """The rule for an error that goes by these names."""
    if isinstance(retry, Backoff):
        return RetryRule(backoff=retry)
    names = tuple(names)
    found = next((rule for error, rule in retry.items() if any(_goes_by(name, error) for name in names)), None)
    return found or RetryRule()


def backoff_of(retry: Backoff | RetryRules, rule: RetryRule | None = None) -> Backoff:
    """The backoff that a rule says; without a rule, or if it says none, the task's own."""
    if rule is not None and rule.backoff is not None:
        return rule.backoff
    if isinstance(retry, Backoff):
        return retry
    last = retry.get(ANY_ERROR)
    return last.backoff if last is not None and last.backoff is not None else Backoff()


def error_names(kind: type[BaseException]) -> tuple[str, ...]:
    """What errors of a Python type go by: its name with its module, then those of the types that it derives from."""
    lineage = [each for each in lineage_of(kind) if derives(each, BaseException)]
    return tuple(error_name(each) for each in lineage[:_MOST_NAMES])


def error_name(kind: type) -> str:
    """The name of a Python type: with its module, unless it is built in."""
    module, name = _module_of(kind), _plain(_qualname_of(kind))
    # A module is whatever the class says of itself.
    if isinstance(module, str) and _plain(module) != "builtins":
        name = f"{_plain(module)}.{name}"
    return name[-_NAME_LIMIT:]


def name_of(kind: type) -> str:
    """The bare name of a Python type."""
    return _plain(_name_of(kind))


def lineage_of(kind: type) -> tuple[type, ...]:
    """A Python type and those that it derives from, the nearest first."""
    return _lineage_of(kind)


def derives(kind: type, *bases: type) -> bool:
    """Whether a Python type is one of these, or derives from one, as an `except` sees it."""
    # Not `in`: that compares, and a metaclass may have its own idea of what is equal.
    return any(each is base for each in lineage_of(kind) for base in bases)


def _plain(text: str) -> str:
    """The text of what may be of a class derived from `str`, which has methods of its own."""
    return str.__str__(text)


_name_of: Final[Callable[[type], str]] = vars(type)["__name__"].__get__
_qualname_of: Final[Callable[[type], str]] = vars(type)["__qualname__"].__get__
_module_of: Final[Callable[[type], object]] = vars(type)["__module__"].__get__
_lineage_of: Final[Callable[[type], tuple[type, ...]]] = vars(type)["__mro__"].__get__
"""Read past the metaclass, which may say otherwise, or raise."""


def _goes_by(name: str, error: str) -> bool:
    """Whether a rule for this error is for one of this name.

    A name alone means a type of that name in any module. With a module it means one that is defined there or further
    down: people write `requests.HTTPError` for what is defined in `requests.exceptions`.
    """
    if error in (name, ANY_ERROR):
        return True
    module, _, bare = error.rpartition(".")
    if bare != name.rpartition(".")[2]:
        return False
    return not module or name.startswith(f"{module}.")


class Retry(FairleadError):
    """Raised by a handler: this attempt failed, try again after this time, or when the backoff says.

    The time is seconds, or a timedelta.
    """

    # Retry rules go by this name, and are kept with their tasks.
    __module__ = "fairlead.core.errors"

    def __init__(
        self, message: str = "the handler asked for a retry", *, after: float | timedelta | None = None
    ) -> None:
        if after is not None:
            delay_of("Retry after", after, bad_setting)
        super().__init__(message)
        self.after = after.total_seconds() if isinstance(after, timedelta) else after


class SoftTimeout(FairleadError):
    """Raised within a handler when its soft timeout has passed: time to save what is done, before it is stopped."""

    def __init__(self, message: str = "the soft timeout of the handler has passed") -> None:
        super().__init__(message)


class Snooze(FairleadError):
    """Raised by a handler: nothing failed, run the task again after this time. It spends no retry.

    The time is seconds, or a timedelta, and more than nothing.
    """

    def __init__(self, after: float | timedelta, message: str = "the handler put the task off") -> None:
        check_span("Snooze after", span_of("Snooze after", after, bad_setting), 1, LONGEST_DELAY, bad_setting)
        super().__init__(message)
        self.after = after.total_seconds() if isinstance(after, timedelta) else after


class Reject(FairleadError):
    """Raised by a handler: trying again cannot help, so the task fails at once."""

    # As of `Retry`.
    __module__ = "fairlead.core.errors"

    def __init__(self, message: str = "the handler rejected the task") -> None:
        super().__init__(message)
