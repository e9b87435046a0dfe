"""The fields of a submit have one name over HTTP and one in Python, and nothing is lost between the two."""

from __future__ import annotations

from typing import Final

import msgspec

from fairlead.admin.schedules.api import TaskTemplate
from fairlead.app.task_type import Options
from fairlead.core.identity import TaskId
from fairlead.core.retry import Backoff, RetryRule
from fairlead.core.submission import Submission
from fairlead.core.task import OnFailure, OwnRetention, Priority
from fairlead.wire.task_shown import TaskWhole
from fairlead.wire.tasks import HTTP_NAMES, SubmitRequest, request_of, submission_of

FULL: Final = Submission(
    type="render",
    parameters=b'{"ratio":1.50}',
    priority=Priority.HIGH,
    queue="video",
    requires=frozenset({"gpu"}),
    timeout=1_500_000,
    max_retries=7,
    max_crashes=2,
    backoff=Backoff(initial=5),
    run_at=4_102_441_200_000_000,
    delay=1,
    idempotency_key="order 7",
    tenant="acme",
    tags=("b", "a"),
    trace="mine",
    retry_rules={"ValueError": RetryRule(reject=True)},
    concurrency_key="user 7",
    after=(TaskId("019a85f3c2d08000a3d25f1e9c7b4a60"), 0),
    on_failure=OnFailure.RUN_ONLY_THEN,
    expires=60_000_000,
    retention=OwnRetention(completed=5_000_000, dead_letter=0),
    fair_key="user 7",
    by_name=True,
)
INTERNAL: Final = {"bound", "by_name"}
"""What is said of who submits, and not by them."""
EMPTY: Final = Submission(type="echo")
BY_NAME: Final = Submission(type="echo", queue="", by_name=True)


def test_the_full_submission_says_something_of_every_field() -> None:
    unsaid = {field for field in Submission.__struct_fields__ if getattr(FULL, field) == getattr(EMPTY, field)}
    assert unsaid <= INTERNAL


def test_a_submission_is_the_same_after_a_way_over_http() -> None:
    for submission in (FULL, BY_NAME):
        body = msgspec.json.encode(request_of(submission))
        assert submission_of(msgspec.json.decode(body, type=SubmitRequest), submission.tenant) == submission


def test_a_client_leaves_out_what_is_not_said() -> None:
    assert msgspec.json.encode(request_of(BY_NAME)) == b'{"task_type":"echo","parameters":{}}'


def test_a_program_that_has_declared_the_type_says_its_queue() -> None:
    """Or what another program has published would say it."""
    assert msgspec.json.encode(request_of(EMPTY)) == b'{"task_type":"echo","parameters":{},"queue":"default"}'


def test_the_fields_are_the_same_in_every_form() -> None:
    named = set(SubmitRequest.__struct_fields__)
    assert named == {*Submission.__struct_fields__} - INTERNAL == {"type", "parameters", *Options.__annotations__}
    of_one_task = {"run_at", "delay", "idempotency_key", "after", "on_failure"}
    assert set(TaskTemplate.__struct_fields__) == named - of_one_task


def test_answers_use_the_names_of_http() -> None:
    shown = set(TaskWhole.__struct_fields__)
    assert not shown & set(HTTP_NAMES)
    assert {field.encode_name for field in msgspec.structs.fields(SubmitRequest)} - shown == {"delay_seconds"}
