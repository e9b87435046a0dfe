"""The error tree: one root, and messages that name the thing, the value and the remedy."""

from __future__ import annotations

import pytest

from fairlead.core import errors, retry
from fairlead.core.errors import (
    FairleadError,
    InvalidSettings,
    InvalidTask,
    LeaseLost,
    PayloadTooLarge,
    QueueFull,
    StoreError,
    TaskFailed,
    TaskNotFound,
    WorkerNotFound,
    WrongState,
)
from fairlead.core.retry import Reject, Retry

ERRORS = [
    value
    for value in {**vars(errors), **vars(retry)}.values()
    if isinstance(value, type) and issubclass(value, Exception)
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_is_in_the_tree_and_in_its_drawing(error: type[Exception]) -> None:
    assert issubclass(error, FairleadError)
    assert errors.__doc__ is not None
    assert error.__name__ in errors.__doc__


def test_errors_are_also_what_python_programmers_would_catch() -> None:
    assert issubclass(InvalidTask, ValueError)
    assert issubclass(InvalidSettings, ValueError)
    assert issubclass(TaskNotFound, LookupError)
    assert issubclass(WorkerNotFound, LookupError)
    assert issubclass(PayloadTooLarge, InvalidTask)


@pytest.mark.parametrize("name", ["StoreUnavailable", "StoreFull", "StoreReadOnly", "StoreMismatch"])
def test_what_a_store_cannot_do_is_a_store_error(name: str) -> None:
    assert issubclass(getattr(errors, name), StoreError)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PayloadTooLarge("result", 2_000, 1_000), ["result", "2,000", "1,000", "pass a reference"]),
        (QueueFull("mail", 5_000, 4_000), ["'mail'", "5,000", "4,000", "submit later"]),
        (TaskNotFound("abc"), ["abc", "retention"]),
        (WorkerNotFound("abc"), ["abc", "register again"]),
        (WrongState("abc", "queued", "replay", ("failed", "cancelled")), ["abc", "queued", "failed or cancelled"]),
        (WrongState("abc", "queued", "replay", ()), ["no state"]),
        (LeaseLost("abc"), ["abc", "drop this attempt"]),
        (TaskFailed("abc", "dead_letter", "crash_loop", "killed"), ["abc", "dead_letter", "crash_loop", "killed"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_message_names_the_thing_the_value_and_the_remedy(error: Exception, says: list[str]) -> None:
    assert [part for part in says if part not in str(error)] == []


def test_an_error_carries_its_values_for_programs() -> None:
    full = QueueFull("mail", 5, 4)

    assert (full.queue, full.depth, full.bound) == ("mail", 5, 4)
    assert PayloadTooLarge("result", 2, 1).field == "result"


def test_a_handler_may_say_when_to_try_again() -> None:
    assert Retry(after=2.5).after == 2.5
    assert Retry("the line is busy", after=0).after == 0
    assert Retry().after is None
    assert str(Reject("no such customer")) == "no such customer"


@pytest.mark.parametrize("after", [-1.0, float("inf"), float("nan"), 1e300, 2**70, 101 * 366 * 86_400, "5", True])
def test_but_not_a_time_that_never_comes(after: float) -> None:
    with pytest.raises(InvalidSettings, match=r"Retry after .*; use "):
        Retry(after=after)
