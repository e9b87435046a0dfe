"""Rules by error: which one counts, and what becomes of a task by it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.errors import InvalidSettings, InvalidTask
from fairlead.core.events import Crashed, Event, Failed, TimedOut
from fairlead.core.identity import TaskId
from fairlead.core.instant import SECOND
from fairlead.core.lifecycle import decide
from fairlead.core.retry import (
    Backoff,
    Reject,
    Retry,
    RetryRule,
    RetryRules,
    check_rules,
    error_name,
    error_names,
    rule_for,
    with_rules,
)
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission, accept
from fairlead.core.task import Failure, Reason, Spec, State, Status
from tests.unit.building import BOOM, NOW, RULES, a_spec, executing

OWN = Backoff(initial=10 * SECOND, jitter=0.0)
QUICK = Backoff(initial=SECOND, factor=1.0, jitter=0.0)
REJECT = RetryRule(reject=True)


def failed(type: str, *names: str) -> Failed:
    return Failed(failure=Failure(type=type), names=names)


def after(rules: RetryRules, event: Event, *, retries: int = 0, max_retries: int = 3) -> Status:
    spec = a_spec(max_retries=max_retries, backoff=with_rules(OWN, rules))
    status = decide(executing(spec=spec, retries=retries), event, NOW, rules=RULES)
    assert status is not None
    return status


def test_what_handlers_raise_keeps_the_names_that_stored_rules_have() -> None:
    assert [error_name(kind) for kind in (Retry, Reject)] == [
        "fairlead.core.errors.Retry",
        "fairlead.core.errors.Reject",
    ]


class TestWhichRule:
    @pytest.mark.parametrize(
        ("error", "names", "fits"),
        [
            ("HTTPError", ("HTTPError",), True),
            ("HTTPError", ("urllib.error.HTTPError",), True),
            ("requests.HTTPError", ("requests.exceptions.HTTPError",), True),
            ("requests.exceptions.HTTPError", ("requests.exceptions.HTTPError",), True),
            ("requests.HTTPError", ("urllib.error.HTTPError",), False),
            ("requests.HTTPError", ("requests_mock.HTTPError",), False),
            ("requests.HTTPError", ("HTTPError",), False),
            ("OSError", ("requests.exceptions.HTTPError", "OSError", "Exception"), True),
            ("Error", ("HTTPError",), False),
            ("*", ("anything at all",), True),
        ],
    )
    def test_a_rule_is_for_a_name_in_any_module_or_below_its_own(
        self, error: str, names: tuple[str, ...], fits: bool
    ) -> None:
        assert rule_for({error: REJECT}, names).reject is fits

    def test_the_first_rule_that_fits_counts_however_near_another_is(self) -> None:
        rules = {"OSError": RetryRule(max_retries=7), "FileNotFoundError": REJECT}

        assert rule_for(rules, error_names(FileNotFoundError)) == RetryRule(max_retries=7)
        assert rule_for(dict(reversed(rules.items())), error_names(FileNotFoundError)) == REJECT

    def test_an_error_goes_by_its_type_and_by_all_that_it_derives_from(self) -> None:
        assert error_names(FileNotFoundError) == ("FileNotFoundError", "OSError", "Exception", "BaseException")
        assert error_names(msgspec.DecodeError)[:2] == ("msgspec.DecodeError", "msgspec.MsgspecError")
        assert error_name(Retry) == "fairlead.core.errors.Retry"
        assert error_name(asyncio.TimeoutError) == "TimeoutError"


class TestWhatBecomesOfTheTask:
    def test_reject_fails_the_task_at_once_and_says_that_a_rule_did(self) -> None:
        status = after({"ValueError": REJECT}, failed("ValueError"))

        assert (status.state, status.reason) == (State.FAILED, Reason.REJECTED_BY_RULE)

    def test_a_rule_may_allow_more_retries_than_the_task(self) -> None:
        rules = {"TimeoutError": RetryRule(max_retries=10)}

        assert after(rules, failed("TimeoutError"), retries=9).state is State.SCHEDULED
        assert after(rules, failed("ValueError"), retries=9).reason is Reason.RETRIES_USED_UP

    @given(st.integers(0, 6), st.integers(0, 6))
    def test_a_rules_limit_is_compared_with_all_retries_spent_so_far(self, limit: int, spent: int) -> None:
        status = after({"A": RetryRule(max_retries=limit)}, failed("A"), retries=spent)

        if spent < limit:
            assert (status.state, status.retries) == (State.SCHEDULED, spent + 1)
        else:
            assert (status.state, status.reason) == (State.DEAD_LETTER, Reason.RULE_USED_UP)

    def test_a_rule_has_a_backoff_of_its_own_and_others_keep_the_tasks(self) -> None:
        rules = {"A": RetryRule(backoff=QUICK), "B": RetryRule(max_retries=9)}

        assert after(rules, failed("A"), retries=2).ready_at == NOW + SECOND
        assert after(rules, failed("B")).ready_at == NOW + 10 * SECOND
        assert after(rules, failed("C")).ready_at == NOW + 10 * SECOND

    def test_a_rule_for_any_error_leaves_the_backoff_of_crashes_as_it_was(self) -> None:
        assert after({"*": REJECT}, Crashed(BOOM)).ready_at == NOW + 10 * SECOND
        assert after({"*": REJECT}, failed("anything")).state is State.FAILED

    def test_a_timeout_is_an_error_too(self) -> None:
        rejected = after({"Timeout": REJECT}, TimedOut())

        assert (rejected.state, rejected.reason) == (State.FAILED, Reason.REJECTED_BY_RULE)
        assert after({"Timeout": RetryRule(max_retries=0)}, TimedOut()).reason is Reason.RULE_USED_UP

    def test_what_a_handler_rejects_no_rule_retries(self) -> None:
        event = Failed(failure=BOOM, retriable=False)

        assert after({"*": RetryRule(max_retries=10)}, event).reason is Reason.REJECTED

    def test_the_moment_that_a_handler_names_goes_before_the_backoff_of_a_rule(self) -> None:
        event = Failed(failure=BOOM, after=5 * SECOND)

        assert after({"*": RetryRule(backoff=QUICK)}, event).ready_at == NOW + 5 * SECOND


class TestRulesThatMakeNoSense:
    @pytest.mark.parametrize(
        ("rules", "said"),
        [
            ({"": REJECT}, "''"),
            ({"a\nb": REJECT}, "name of its type"),
            ({"x" * 201: REJECT}, "200"),
            ({"A": Backoff()}, "of 'A', which is not a RetryRule"),
            ({"A": RetryRule(max_retries=1, reject=True)}, "'A' rejects"),
            ({"*": REJECT, "A": REJECT}, "put it last"),
            ({f"E{n}": REJECT for n in range(51)}, "50 is the most"),
        ],
    )
    def test_are_refused_by_name(self, rules: RetryRules, said: str) -> None:
        with pytest.raises(InvalidTask, match=said.replace("*", r"\*")):
            check_rules(rules)
        with pytest.raises(InvalidTask) as refused:
            accept(Submission(type="a", retry_rules=rules), TaskId("id"), NOW, Settings())
        assert refused.value.field == "retry_rules"

    @pytest.mark.parametrize(
        ("rule", "said"),
        [
            ({"max_retries": -1}, "max_retries -1 is out of range; use 0 to 10,000"),
            ({"max_retries": True}, "max_retries True is not a whole number"),
            ({"max_retries": 2.5}, "max_retries 2.5 is not a whole number"),
            ({"backoff": 5}, "backoff 5 is not a Backoff; write Backoff"),
            ({"reject": "yes"}, "reject 'yes' is neither true nor false"),
        ],
    )
    def test_a_rule_that_makes_no_sense_is_refused_where_it_is_made(self, rule: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidSettings, match=said):
            RetryRule(**rule)


def test_a_task_without_rules_stores_nothing_for_them() -> None:
    plain = accept(Submission(type="a"), TaskId("id"), NOW, Settings()).spec
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(plain))

    assert len(fields) == len(Spec.__struct_fields__) and b"rule" not in msgspec.msgpack.encode(plain)
    assert fields[Spec.__struct_fields__.index("backoff")] == list(msgspec.structs.astuple(Backoff()))
