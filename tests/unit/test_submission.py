"""What a producer asks for, and the task it becomes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.errors import InvalidTask, PayloadTooLarge
from fairlead.core.instant import DAY, LATEST, MINUTE, SECOND, Instant
from fairlead.core.retry import Backoff
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission, accept
from fairlead.core.task import Priority, State, Task
from tests.unit.building import NOW, an_id

SETTINGS = Settings()


def accepted(**wish: Any) -> Task:
    return accept(Submission(**({"type": "send_mail"} | wish)), an_id(), NOW, SETTINGS)


class TestWhatIsLeftOut:
    @pytest.mark.parametrize("priority", Priority)
    def test_comes_from_the_defaults_of_the_priority(self, priority: Priority) -> None:
        task = accepted(priority=priority)
        defaults = SETTINGS.defaults.of(priority)

        assert task.spec.max_retries == defaults.max_retries
        assert task.spec.timeout == task.status.timeout == defaults.timeout
        assert task.spec.max_crashes == SETTINGS.defaults.max_crashes
        assert task.spec.backoff == SETTINGS.defaults.backoff

    def test_is_not_confused_with_zero(self) -> None:
        spec = accepted(max_retries=0, max_crashes=0).spec

        assert (spec.max_retries, spec.max_crashes) == (0, 0)

    def test_is_overruled_by_what_is_said(self) -> None:
        task = accepted(timeout=MINUTE, max_retries=7, max_crashes=1, backoff=Backoff(initial=0))

        assert task.status.timeout == task.spec.timeout == MINUTE
        assert (task.spec.max_retries, task.spec.max_crashes) == (7, 1)
        assert task.spec.backoff == Backoff(initial=0)


class TestTheTask:
    def test_is_queued_now_in_the_default_queue_at_medium_priority(self) -> None:
        task = accepted()

        assert (task.id, task.spec.queue, task.status.priority) == (an_id(), "default", Priority.MEDIUM)
        assert task.state is State.QUEUED
        assert task.status.ready_at == task.spec.created_at == NOW
        assert task.status.alarm is None
        assert (task.status.version, task.status.attempts) == (1, 0)

    def test_keeps_its_parameters_byte_for_byte(self) -> None:
        parameters = b'{ "b": 1e2, "a": 123456789012345678901234567890, "a": [] , "\\u0041": 1.10}'

        assert accepted(parameters=parameters).spec.parameters == parameters

    def test_needs_its_capabilities_sorted_and_distinct(self) -> None:
        assert accepted(requires=frozenset({"gpu", "eu", "arm"})).spec.requires == ("arm", "eu", "gpu")

    def test_holds_its_key_for_the_retention_of_keys(self) -> None:
        spec = accepted(idempotency_key="order-7").spec

        assert (spec.idempotency_key, spec.key_until) == ("order-7", NOW + DAY)
        assert accepted().spec.key_until is None


class TestTheMoment:
    @pytest.mark.parametrize("wish", [{"delay": MINUTE}, {"run_at": NOW + MINUTE}], ids=["delay", "run_at"])
    def test_later_means_scheduled(self, wish: dict[str, int]) -> None:
        task = accepted(**wish)

        assert task.state is State.SCHEDULED
        assert task.status.ready_at == task.status.alarm == NOW + MINUTE

    @given(st.integers(0, NOW))
    def test_a_moment_that_is_past_means_now_and_is_not_back_dated(self, run_at: Instant) -> None:
        task = accepted(run_at=run_at)

        assert task.state is State.QUEUED
        assert task.status.ready_at == NOW
        assert task.status.alarm is None

    def test_no_delay_means_now(self) -> None:
        assert accepted(delay=0).state is State.QUEUED

    def test_the_latest_instant_is_a_moment(self) -> None:
        assert accepted(run_at=LATEST).status.alarm == LATEST


LONG = "x" * 501
REFUSALS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("type", {"type": "send mail"}, ["'send mail'", "letters, digits"]),
    ("queue", {"queue": ""}, ["''", "letters, digits"]),
    ("requires", {"requires": frozenset({"g p u"})}, ["'g p u'", "letters, digits"]),
    ("requires", {"requires": frozenset(str(n) for n in range(51))}, ["51", "50"]),
    ("tags", {"tags": ("ok", "no way")}, ["'no way'", "letters, digits"]),
    ("tags", {"tags": ("x",) * 51}, ["51", "50"]),
    ("timeout", {"timeout": 0}, ["0 s", "more than 0"]),
    ("timeout", {"timeout": -SECOND}, ["-1 s", "more than 0"]),
    ("max_retries", {"max_retries": -1}, ["-1", "0 to 10,000"]),
    ("max_retries", {"max_retries": 10_001}, ["10001", "0 to 10,000"]),
    ("max_crashes", {"max_crashes": -1}, ["-1", "0 to 10,000"]),
    ("idempotency_key", {"idempotency_key": ""}, ["0 characters", "1 to 500"]),
    ("idempotency_key", {"idempotency_key": LONG}, ["501 characters", "1 to 500"]),
    ("tenant", {"tenant": LONG}, ["501 characters", "1 to 500"]),
    ("trace", {"trace": LONG}, ["501 characters", "1 to 500"]),
    ("delay", {"delay": -SECOND}, ["-1 s", "0 or more"]),
    ("delay", {"delay": 0, "run_at": NOW}, ["only one"]),
    ("run_at", {"run_at": -1}, ["1970 to 2255"]),
    ("run_at", {"run_at": LATEST + 1}, ["1970 to 2255"]),
    ("parameters", {"parameters": b""}, ["JSON object"]),
    ("parameters", {"parameters": b"[]"}, ["JSON object"]),
    ("parameters", {"parameters": b"{"}, ["JSON object"]),
    ("parameters", {"parameters": b'{"a": NaN}'}, ["JSON object"]),
    ("parameters", {"parameters": b'{"a": "\xff"}'}, ["JSON object"]),
    ("parameters", {"parameters": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"}, ["flatten"]),
]


class TestWhatCannotBeATask:
    @pytest.mark.parametrize(
        ("field", "wish", "says"), REFUSALS, ids=lambda value: value if isinstance(value, str) else ""
    )
    def test_is_refused_with_the_field_the_value_and_the_remedy(
        self, field: str, wish: dict[str, Any], says: list[str]
    ) -> None:
        with pytest.raises(InvalidTask) as refusal:
            accepted(**wish)

        assert refusal.value.field == field
        assert [part for part in [field, *says] if part not in str(refusal.value)] == []

    def test_a_delay_past_the_latest_instant_is_called_a_delay(self) -> None:
        with pytest.raises(InvalidTask) as refusal:
            accepted(delay=LATEST)

        assert refusal.value.field == "delay"

    def test_a_timeout_that_no_store_can_keep_is_refused(self) -> None:
        with pytest.raises(InvalidTask, match="timeout"):
            accepted(timeout=2**70)

    @pytest.mark.parametrize("field", ["idempotency_key", "tenant", "trace"])
    def test_text_that_cannot_be_encoded_is_refused(self, field: str) -> None:
        with pytest.raises(InvalidTask):
            accepted(**{field: "\ud800"})


class TestLimits:
    def test_parameters_at_the_limit_pass_and_one_byte_more_is_too_large(self) -> None:
        limit = SETTINGS.payload_limit
        at_limit = b'{"a":"' + b"x" * (limit - 8) + b'"}'

        assert accepted(parameters=at_limit).spec.parameters == at_limit
        with pytest.raises(PayloadTooLarge) as refusal:
            accepted(parameters=at_limit + b" ")
        assert (refusal.value.field, refusal.value.size, refusal.value.limit) == ("parameters", limit + 1, limit)

    @pytest.mark.parametrize(
        "wish",
        [
            {"max_retries": 10_000, "max_crashes": 10_000},
            {"idempotency_key": "x" * 500, "tenant": "x" * 500, "trace": "x" * 500},
            {"tags": tuple(str(n) for n in range(50)), "requires": frozenset(str(n) for n in range(50))},
            {"timeout": 1},
        ],
        ids=["counts", "texts", "lists", "timeout"],
    )
    def test_what_is_just_within_the_limits_passes(self, wish: dict[str, Any]) -> None:
        assert accepted(**wish).state is State.QUEUED

    @given(st.binary(max_size=40))
    def test_any_bytes_are_a_task_or_an_invalid_task(self, parameters: bytes) -> None:
        try:
            assert accepted(parameters=parameters).spec.parameters == parameters
        except InvalidTask as refusal:
            assert refusal.field == "parameters"
