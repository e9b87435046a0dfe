"""What a handler raises, and what becomes of its task."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from fairlead import Reject, Retry, RetryRule, current_task
from fairlead.core.task import Reason, State, Task
from tests.worker import isolated
from tests.worker.building import Crew, reasons


async def test_an_error_is_retried_and_kept_with_its_traceback(crew: Crew) -> None:
    async def broken() -> None:
        raise ValueError("no such value")

    crew.handle(broken)
    async with crew.working():
        task = await crew.until_ended(await crew.submit("broken", max_retries=2))
    assert (task.state, task.status.reason, task.status.attempts) == (State.DEAD_LETTER, Reason.RETRIES_USED_UP, 3)
    assert task.status.failure is not None
    assert (task.status.failure.type, task.status.failure.message) == ("ValueError", "no such value")
    assert 'raise ValueError("no such value")' in (task.status.failure.traceback or "")


@pytest.mark.parametrize("after", [0, 0.05])
async def test_retry_says_when(crew: Crew, after: float) -> None:
    async def once_more() -> None:
        if current_task().attempt == 1:
            raise Retry("not yet", after=after)

    crew.handle(once_more)
    async with crew.working():
        task = await crew.until_ended(await crew.submit("once_more"))
    assert (task.state, task.status.retries) == (State.COMPLETED, 1)
    first, *_ = task.status.history
    assert first.failure is not None
    assert (first.failure.type, first.failure.message) == ("Retry", "not yet")
    assert first.state is (State.SCHEDULED if after else State.QUEUED)


async def test_reject_fails_at_once(crew: Crew) -> None:
    def refuse() -> None:
        raise Reject("not this one")

    crew.handle(refuse)
    async with crew.working():
        task = await crew.until_ended(await crew.submit("refuse"))
    assert (task.state, task.status.reason, task.status.attempts) == (State.FAILED, Reason.REJECTED, 1)
    assert task.status.failure is not None
    assert task.status.failure.message == "not this one"


async def test_only_what_is_to_be_retried_is_retried(crew: Crew) -> None:
    async def picky(error: str) -> None:
        raise {"KeyError": KeyError, "OSError": OSError, "FileNotFoundError": FileNotFoundError}[error]("x")

    crew.handle(picky, retry_on=(OSError,), reject_on=(FileNotFoundError,))
    async with crew.working():
        ends = {
            error: await crew.until_ended(await crew.submit("picky", parameters={"error": error}, max_retries=1))
            for error in ("KeyError", "OSError", "FileNotFoundError")
        }
    assert {error: (end.state, end.status.attempts) for error, end in ends.items()} == {
        "KeyError": (State.FAILED, 1),
        "OSError": (State.DEAD_LETTER, 2),
        "FileNotFoundError": (State.FAILED, 1),
    }


@pytest.mark.parametrize("isolate", [False, True])
async def test_a_traceback_begins_in_the_handler_wherever_that_runs(crew: Crew, isolate: bool) -> None:
    crew.handle(isolated.raise_value_error, isolate=isolate)
    async with crew.working():
        raised = await crew.until_ended(await crew.submit("raise_value_error", max_retries=0))
    assert raised.status.failure is not None
    assert raised.status.failure.traceback is not None
    _, first, *_ = raised.status.failure.traceback.splitlines()
    assert first.endswith("in raise_value_error")


async def test_isolated_handlers_are_judged_alike(crew: Crew) -> None:
    crew.handle(isolated.reject, isolate=True)
    crew.handle(isolated.retry, isolate=True)
    crew.handle(isolated.raise_value_error, isolate=True)
    async with crew.working():
        rejected = await crew.until_ended(await crew.submit("reject"))
        retried = await crew.until_ended(await crew.submit("retry"))
        raised = await crew.until_ended(await crew.submit("raise_value_error", max_retries=0))
    assert (rejected.state, rejected.status.crashes) == (State.FAILED, 0)
    assert (retried.status.result, retried.status.retries) == (b"2", 1)
    assert raised.status.failure is not None
    assert (raised.state, raised.status.failure.message) == (State.DEAD_LETTER, "no such value")
    assert 'raise ValueError("no such value")' in (raised.status.failure.traceback or "")


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        (b'{"left":"one"}', "Expected `int`, got `str` - at `$.left`"),
        (b'{"left":1,"right":[2]}', "Expected `int`, got `array` - at `$.right`"),
        (b"{}", "Object missing required field `left`"),
        (b'{"left":1,"middle":2}', "Object contains unknown field `middle`"),
    ],
)
async def test_arguments_that_do_not_fit_fail_the_task_with_their_path(
    crew: Crew, parameters: bytes, complaint: str, isolate: bool
) -> None:
    crew.handle(isolated.add, isolate=isolate)
    async with crew.working():
        task = await crew.until_ended(await crew.submit("add", parameters=parameters))
    assert (task.state, task.status.attempts) == (State.FAILED, 1)
    assert task.status.failure is not None
    assert task.status.failure.type == "InvalidArguments"
    assert complaint in task.status.failure.message


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def act() -> NoReturn:
        raise error

    return act


class Odd(BaseException):
    """Not an Exception, as few things should be."""


ODDITIES: dict[str, Callable[[], Any]] = {
    "system_exit": lambda: sys.exit(3),
    "keyboard_interrupt": raising(KeyboardInterrupt()),
    "generator_exit": raising(GeneratorExit()),
    "stop_iteration": lambda: next(iter(())),
    "stop_async_iteration": raising(StopAsyncIteration()),
    "cancelled": raising(asyncio.CancelledError()),
    "odd": raising(Odd("odd")),
    "recursion": lambda: ODDITIES["recursion"](),
    "group": raising(ExceptionGroup("several", [ValueError("one"), KeyError("two")])),
    "surrogates": raising(ValueError("\ud800")),
}


@pytest.mark.parametrize("oddity", ODDITIES)
async def test_nothing_that_a_handler_raises_harms_the_worker(
    crew: Crew, oddity: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def on_loop() -> None:
        ODDITIES[oddity]()

    def in_thread() -> None:
        ODDITIES[oddity]()

    async def well() -> str:
        return "well"

    for handler in (on_loop, in_thread, well):
        crew.handle(handler)
    ends: list[Task] = []
    async with crew.working(concurrency=1):
        for name in ("on_loop", "in_thread"):
            ends.append(await crew.until_ended(await crew.submit(name, max_retries=1, timeout=20)))
            assert (await crew.until_ended(await crew.submit("well"))).state is State.COMPLETED
    for end in ends:
        assert end.state in (State.FAILED, State.DEAD_LETTER)
        assert Reason.TIMED_OUT not in reasons(end)
    on_the_loop, in_a_thread = ends
    # A task fares the same wherever its handler runs.
    assert on_the_loop.state is in_a_thread.state
    assert on_the_loop.status.failure is not None
    assert in_a_thread.status.failure is not None
    assert on_the_loop.status.failure.type == in_a_thread.status.failure.type
    others = [record for record in caplog.records if record.name != "fairlead.tasks"]
    assert not [record for record in others if record.levelno >= logging.ERROR]


async def test_a_retry_rule_is_for_what_derives_from_its_error_too(crew: Crew) -> None:
    async def strict(error: str) -> None:
        raise {"Retry": Retry, "FileNotFoundError": FileNotFoundError, "KeyError": KeyError}[error]("x")

    crew.handle(strict)
    rules = {"OSError": RetryRule(reject=True), "LookupError": RetryRule(max_retries=2), "Exception": RetryRule()}
    async with crew.working():
        ends = {
            error: await crew.until_ended(
                await crew.submit("strict", parameters={"error": error}, max_retries=1, retry_rules=rules)
            )
            for error in ("Retry", "FileNotFoundError", "KeyError")
        }
    assert {error: (end.status.reason, end.status.attempts) for error, end in ends.items()} == {
        "Retry": (Reason.RETRIES_USED_UP, 2),
        "FileNotFoundError": (Reason.REJECTED_BY_RULE, 1),
        "KeyError": (Reason.RULE_USED_UP, 3),
    }


async def test_an_isolated_handlers_errors_are_known_by_what_they_derive_from(crew: Crew) -> None:
    crew.handle(isolated.miss_a_file, isolate=True)
    async with crew.working():
        task = await crew.submit("miss_a_file", retry_rules={"OSError": RetryRule(reject=True)})
        assert (await crew.until_ended(task)).status.reason is Reason.REJECTED_BY_RULE
