"""How a task is retried: one policy for all errors, and rules for single ones."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from fairlead.core import retry
from fairlead.core.errors import InvalidTask
from fairlead.core.instant import LONGEST, SECOND
from fairlead.core.retry import ANY_ERROR, LARGEST_FACTOR, MOST_RETRIES, Backoff, RetryRules, with_rules
from fairlead.core.validation import span_of

_YEAR: Final = LONGEST // SECOND


class RetryPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long to wait before a retry: `initial_seconds * factor^n`, at most `max_seconds`, give or take `jitter`."""

    initial_seconds: Annotated[float, Meta(ge=0, le=_YEAR)] = 1.0
    factor: Annotated[float, Meta(ge=1, le=LARGEST_FACTOR)] = 2.0
    max_seconds: Annotated[float, Meta(ge=0, le=_YEAR)] = 300.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """How far chance may move the wait, as a share of it."""


class RetryRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to do after one kind of error; what is left out is as for all errors."""

    error: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 200})]
    """The error's type: `TimeoutError` in any module, `requests.HTTPError` in that module or below it, or `*` for any
    error. `Timeout` is an attempt that was stopped at its timeout."""
    max_retries: Annotated[int, Meta(ge=0, le=MOST_RETRIES)] | None = None
    """The task is tried again after this error only if it has spent fewer retries than this, on whatever errors."""
    retry_policy: RetryPolicy | None = None
    """How long to wait after this error."""
    reject: bool = False
    """Whether this error is never retried; if so, leave out the other fields."""


Rules: TypeAlias = Annotated[tuple[RetryRule, ...], Meta(extra_json_schema={"maxItems": 50})]


def backoff_of(policy: RetryPolicy | None) -> Backoff | None:
    """The backoff that a policy describes."""
    return None if policy is None else _backoff(policy)


def _backoff(policy: RetryPolicy) -> Backoff:
    return Backoff(
        initial=span_of("initial_seconds", policy.initial_seconds),
        factor=policy.factor,
        ceiling=span_of("max_seconds", policy.max_seconds),
        jitter=policy.jitter,
    )


def policy_of(backoff: Backoff | None) -> RetryPolicy | None:
    """A backoff in seconds."""
    return None if backoff is None else _policy(backoff)


@functools.lru_cache(maxsize=256)
def _policy(backoff: Backoff) -> RetryPolicy:
    """Most tasks have one of a few; each task that is shown tells its own."""
    return RetryPolicy(
        initial_seconds=backoff.initial / SECOND,
        factor=backoff.factor,
        max_seconds=backoff.ceiling / SECOND,
        jitter=backoff.jitter,
    )


def rules_of(shapes: Sequence[RetryRule]) -> RetryRules | None:
    """The rules that a request names, in its order; None if it names none."""
    rules: RetryRules = {}
    for shape in shapes:
        if shape.error in rules:
            raise InvalidTask("retry_rules", f"there are two retry rules for {shape.error!r}; keep one of them")
        rules[shape.error] = retry.RetryRule(
            max_retries=shape.max_retries, backoff=backoff_of(shape.retry_policy), reject=shape.reject
        )
    return rules or None


def rules_shown(rules: RetryRules | None) -> tuple[RetryRule, ...]:
    """Rules as a request would name them."""
    return tuple(
        RetryRule(error=error, max_retries=rule.max_retries, retry_policy=policy_of(rule.backoff), reject=rule.reject)
        for error, rule in (rules or {}).items()
    )


def retry_shown(kept: Backoff | RetryRules) -> tuple[RetryPolicy, tuple[RetryRule, ...]]:
    """How a task is retried, as a request would say it: its policy for all errors, and its rules for single ones."""
    if isinstance(kept, Backoff):
        return _policy(kept), ()
    backoff, rules = retry.backoff_of(kept), dict(kept)
    # The rule for any error carries the task's own policy; what else it says was said in a rule.
    last = replace(rules.pop(ANY_ERROR, retry.RetryRule()), backoff=None)
    if last != retry.RetryRule():
        rules[ANY_ERROR] = last
    return _policy(backoff), rules_shown(rules)


def retry_of(policy: RetryPolicy, rules: Sequence[RetryRule]) -> Backoff | RetryRules:
    """How a task is retried that is shown with these."""
    return with_rules(_backoff(policy), rules_of(rules) or {})
