"""Whether there is another attempt after an error, and how long to wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import LONGEST, MINUTE, SECOND, Span

_LARGEST_FACTOR: Final = 1_000.0
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
        if not (0 <= self.initial <= LONGEST and 0 <= self.ceiling <= LONGEST):
            raise InvalidSettings(f"backoff of {self.initial} up to {self.ceiling} µs: use 0 seconds to a year")
        if not 1.0 <= self.factor <= _LARGEST_FACTOR:
            raise InvalidSettings(f"backoff factor {self.factor} is out of range; use 1.0 to {_LARGEST_FACTOR:g}")
        if not 0.0 <= self.jitter <= 1.0:
            raise InvalidSettings(f"backoff jitter {self.jitter} is not a share; use a number from 0.0 to 1.0")

    def delay(self, retries: int, luck: float) -> Span:
        """The delay before the next attempt when `retries` were spent before it; luck is from -1.0 to 1.0."""
        grown = self.initial * self.factor ** min(retries, _ENOUGH_GROWTH)
        return round(min(grown, self.ceiling) * (1.0 + self.jitter * luck))


ANY_ERROR: Final = "*"
"""The name that every error goes by."""

TIMEOUT: Final = "Timeout"
"""The name of the error when an attempt was stopped at its timeout."""

_MOST_RULES: Final = 50
_MOST_RETRIES: Final = 10_000
_NAME_LIMIT: Final = 200
_MOST_NAMES: Final = 32


class RetryRule(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """What becomes of a task after one kind of error; None is as the task says for all errors."""

    max_retries: int | None = None
    """After how many retries this error is the last, whatever errors the retries before were spent on."""
    backoff: Backoff | None = None
    reject: bool = False
    """Whether this error is never retried."""


RetryRules: TypeAlias = dict[str, RetryRule]
"""Rules by the name of the error; the first that an error goes by is the one that counts."""


def check_rules(rules: Mapping[str, RetryRule]) -> None:
    """Raise InvalidSettings, naming the rule, if a table of rules makes no sense."""
    if len(rules) > _MOST_RULES:
        raise InvalidSettings(f"there are {len(rules)} retry rules; {_MOST_RULES} is the most")
    for name, rule in rules.items():
        if not 1 <= len(name) <= _NAME_LIMIT or name != name.strip() or not name.isprintable():
            raise InvalidSettings(
                f"a retry rule is for the error {name[:_NAME_LIMIT]!r}; use the name of its type, such as "
                f"'TimeoutError' or 'requests.HTTPError', of at most {_NAME_LIMIT} characters"
            )
        if rule.max_retries is not None and not 0 <= rule.max_retries <= _MOST_RETRIES:
            raise InvalidSettings(
                f"the retry rule for {name!r} has max_retries {rule.max_retries}; use 0 to {_MOST_RETRIES:,}"
            )
        if rule.reject and (rule.max_retries is not None or rule.backoff is not None):
            raise InvalidSettings(
                f"the retry rule for {name!r} rejects, so that there is nothing to retry; leave out reject, or the rest"
            )
    if ANY_ERROR in rules and [*rules][-1] != ANY_ERROR:
        raise InvalidSettings(f"retry rules after {ANY_ERROR!r} can never count: it is for any error; put it last")


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
    lineage = [each for each in kind.__mro__ if issubclass(each, BaseException)]
    return tuple(error_name(each) for each in lineage[:_MOST_NAMES])


def error_name(kind: type[BaseException]) -> str:
    """The name of a Python type: with its module, unless it is built in."""
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return name[-_NAME_LIMIT:]


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
