"""The lines that a fairlead process logs."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from fairlead.admin.engine import AdminEngine
from fairlead.core.events import CancelConfirmed, Completed, Failed, HandedBack
from fairlead.core.instant import HOUR, SECOND
from fairlead.core.task import Priority
from fairlead.engine.events.types import Happening
from fairlead.worker.logs import LogSetup, log_handler, start_logging
from fairlead.worker.task_log import LEVELS, TransitionLog
from tests.engine.building import BOOM, Bench
from tests.worker import isolated
from tests.worker.building import Crew

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"

Start = Callable[..., io.StringIO]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Sets up logging as a command would; the answer is what then stands on stderr."""
    root, ours = logging.getLogger(), logging.getLogger("fairlead")
    before = root.handlers[:], root.level, ours.level

    def start(level: str = "info", *, as_json: bool = True) -> io.StringIO:
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        # pytest's own handlers are not closed by a forced setup of ours.
        root.handlers[:] = []
        start_logging(LogSetup(level, as_json))
        return stream

    yield start
    root.handlers[:], level, own = before
    root.setLevel(level)
    ours.setLevel(own)


def flush() -> None:
    handler = log_handler()
    assert handler is not None
    handler.flush()


class Logged(Bench):
    """A bench whose engine tells the log."""

    def __init__(self) -> None:
        super().__init__()
        handler = log_handler()
        assert handler is not None
        self.engine = AdminEngine(self.store, clock=self.clock, observers=[TransitionLog(handler)])


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    flush()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_a_transition_is_one_line_that_says_all_but_what_the_task_carries(start: Start) -> None:
    stream = start()
    bench = Logged()
    wish = {"parameters": b'{"secret":"s3cret"}', "trace": TRACEPARENT, "priority": Priority.HIGH}
    task = await bench.submit(**wish)
    bench.clock.advance(3 * SECOND)
    (claimed,) = await bench.claim()
    bench.clock.advance(2 * SECOND)
    await bench.settle(claimed, Completed(b'"s3cret"'))
    submitted, started, completed = lines(stream)
    for line in (submitted, started, completed):
        assert (line["level"], line["logger"]) == ("info", "fairlead.tasks")
        assert (line["task_id"], line["task_type"], line["priority"]) == (task.id, "send_mail", "high")
        assert (line["queue"], line["trace_id"]) == ("default", TRACE)
    assert submitted["message"] == "task submitted"
    assert "worker_id" not in submitted
    assert (started["message"], started["attempt"], started["worker_id"]) == ("task started", 1, "worker-1")
    assert started["wait_seconds"] == 3
    assert (completed["message"], completed["duration_seconds"]) == ("task completed", 2)
    assert completed["worker_id"] == "worker-1"
    assert "s3cret" not in stream.getvalue()


async def test_a_line_says_which_state_was_left_and_which_come_to(start: Start) -> None:
    stream = start("debug")
    bench = Logged()
    later = await bench.submit(delay=SECOND)
    await bench.engine.cancel(later.id)
    await bench.engine.replay(later.id)
    (again,) = await bench.claim()
    await bench.settle(again, Failed(failure=BOOM))
    bench.clock.advance(HOUR)
    await bench.engine.sweep()
    (asked,) = await bench.claim()
    await bench.engine.cancel(asked.id)
    await bench.settle(asked, Completed())
    await bench.engine.discard(asked.id)
    said = [(line["message"], line.get("from_state"), line.get("to_state")) for line in lines(stream)]
    assert said == [
        ("task submitted", None, "scheduled"),
        ("task cancelled", "scheduled", "cancelled"),
        ("task replayed", "cancelled", "queued"),
        ("task started", "queued", "executing"),
        ("task retrying", "executing", "scheduled"),
        ("task ready", "scheduled", "queued"),
        ("task started", "queued", "executing"),
        ("task promoted", None, None),
        ("task cancel asked", "executing", "executing"),
        ("task completed", "executing", "completed"),
        ("task removed", "completed", None),
    ]


async def test_how_bad_a_transition_is_is_its_level(start: Start) -> None:
    stream = start("debug")
    bench = Logged()
    again = await bench.executing(priority=Priority.LOW)
    await bench.settle(again, Failed(failure=BOOM))
    bench.clock.advance(HOUR)
    await bench.engine.sweep()
    (promoted,) = await bench.claim()
    await bench.settle(promoted, HandedBack())
    (retried,) = await bench.claim()
    await bench.engine.cancel(retried.id)
    await bench.settle(retried, CancelConfirmed())
    await bench.settle(await bench.executing(max_retries=0), Failed(failure=BOOM))
    dead = lines(stream)[-1]
    await bench.settle(await bench.executing(), Failed(failure=BOOM, retriable=False))
    said = {(line["message"], line["level"]) for line in lines(stream)}
    assert said >= {
        ("task submitted", "info"),
        ("task started", "info"),
        ("task retrying", "warning"),
        ("task ready", "debug"),
        ("task handed back", "info"),
        ("task cancel asked", "info"),
        ("task cancelled", "info"),
        ("task dead letter", "error"),
        ("task failed", "error"),
    }
    assert (dead["reason"], dead["error"]) == ("retries_used_up", "Boom: it went boom")
    assert dead["duration_seconds"] == 0
    assert LEVELS.keys() == set(Happening)


async def test_what_is_below_the_level_is_not_said(start: Start) -> None:
    stream = start("error")
    bench = Logged()
    await bench.settle(await bench.executing(), Completed())
    await bench.settle(await bench.executing(), Failed(failure=BOOM))
    assert lines(stream) == []
    await bench.settle(await bench.executing(), Failed(failure=BOOM, retriable=False))
    assert [line["message"] for line in lines(stream)] == ["task failed"]


async def test_a_promotion_and_a_removal_are_told_to_who_wants_every_step(start: Start) -> None:
    stream = start("debug")
    bench = Logged()
    task = await bench.submit(priority=Priority.LOW)
    bench.clock.advance(HOUR)
    await bench.settle((await bench.claim())[0], Completed())
    await bench.engine.discard(task.id)
    by_message = {line["message"]: line for line in lines(stream)}
    assert by_message["task promoted"]["treated_as"] in ("critical", "high")
    assert "task removed" in by_message


async def test_a_person_reads_sentences(start: Start) -> None:
    stream = start(as_json=False)
    bench = Logged()
    task = await bench.executing(trace=TRACEPARENT, max_retries=0)
    bench.clock.advance(SECOND)
    await bench.settle(task, Failed(failure=BOOM))
    flush()
    *_, last = stream.getvalue().splitlines()
    assert last.endswith(
        f"task {task.id} send_mail dead letter after 1 s, attempt 1 by worker-1, medium, trace {TRACE} "
        f"(retries_used_up): Boom: it went boom"
    )


async def run_logging(crew: Crew, **options: Any) -> None:
    own = logging.getLogger("application")

    async def on_the_loop() -> None:
        await asyncio.sleep(0)
        own.warning("hello", extra={"order": 17})

    def in_a_thread() -> None:
        own.warning("hello")

    crew.handle(on_the_loop)
    crew.handle(in_a_thread)
    tasks = [await crew.submit(name, **options) for name in ("on_the_loop", "in_a_thread")]
    async with crew.working():
        for task in tasks:
            await crew.until_ended(task)


async def test_what_a_handler_logs_carries_its_task(crew: Crew, start: Start) -> None:
    stream = start()
    await run_logging(crew, trace=TRACEPARENT)
    logging.getLogger("application").warning("outside")
    by_type = {line.get("task_type"): line for line in lines(stream) if line["logger"] == "application"}
    for task_type in ("on_the_loop", "in_a_thread"):
        line = by_type[task_type]
        assert (line["message"], line["attempt"], line["worker_id"]) == ("hello", 1, "worker-1")
        assert (line["trace_id"], line["priority"], len(line["task_id"])) == (TRACE, "medium", 32)
    assert by_type["on_the_loop"]["order"] == 17
    assert "task_id" not in by_type[None]


async def test_a_person_sees_the_task_of_a_line_too(crew: Crew, start: Start) -> None:
    stream = start(as_json=False)
    await run_logging(crew)
    flush()
    said = [line for line in stream.getvalue().splitlines() if " hello (task " in line]
    assert len(said) == 2 and said[0].endswith("_loop, attempt 1)") | said[1].endswith("_loop, attempt 1)")


def raise_value_error() -> None:
    raise ValueError("no such value")


async def raise_on_the_loop() -> None:
    raise ValueError("no such value")


async def failing(crew: Crew, *, isolate: bool, function: Callable[..., Any]) -> Any:
    """A task that fails twice, and is a dead letter then, in a worker whose engine tells the log too."""
    handler = log_handler()
    assert handler is not None
    crew.engine = AdminEngine(crew.store, crew.engine.settings, observers=[TransitionLog(handler)])
    crew.handle(function, isolate=isolate)
    async with crew.working():
        return await crew.until_ended(await crew.submit(function.__name__, max_retries=1, trace=TRACEPARENT))


@pytest.mark.parametrize(
    ("function", "isolate"),
    [(raise_on_the_loop, False), (raise_value_error, False), (isolated.raise_value_error, True)],
)
async def test_a_failed_attempt_is_one_line_with_its_traceback(
    crew: Crew, start: Start, function: Callable[..., Any], isolate: bool
) -> None:
    stream = start()
    task = await failing(crew, isolate=isolate, function=function)
    told = [line for line in lines(stream) if line.get("task_id") == task.id]
    assert [(line["message"], line["level"]) for line in told] == [
        ("task submitted", "info"),
        ("task started", "info"),
        ("task retrying", "warning"),
        ("task started", "info"),
        ("task dead letter", "error"),
    ]
    for line in (told[2], told[4]):
        assert line["logger"] == "fairlead.tasks"
        assert line["error"].startswith("ValueError: ")
        assert (line["from_state"], line["worker_id"], line["trace_id"]) == ("executing", "worker-1", TRACE)
        first, second, *_, last = line["traceback"].splitlines()
        assert first.startswith("Traceback")
        assert function.__code__.co_filename in second
        assert last.startswith("ValueError: ")
    assert (told[2]["reason"], told[4]["reason"]) == ("failed", "retries_used_up")


async def test_a_person_reads_a_traceback_that_can_pass_for_nothing_else(crew: Crew, start: Start) -> None:
    stream = start("warning", as_json=False)

    async def forge() -> None:
        raise ValueError("no\n2026-11-15T15:29:25.672Z error   [1] all is lost")

    await failing(crew, isolate=False, function=forge)
    flush()
    retrying, *trace = stream.getvalue().splitlines()
    assert " warning " in retrying and " forge retrying after " in retrying and "no 2026" in retrying
    assert trace[0] == "    Traceback (most recent call last):"
    assert "    2026-11-15T15:29:25.672Z error   [1] all is lost" in trace


async def test_what_a_timeout_or_a_crash_becomes_is_told_too(crew: Crew, start: Start) -> None:
    async def hang() -> None:
        await asyncio.sleep(3600)

    stream = start()
    crew.handle(hang)
    crew.handle(isolated.leave, isolate=True)
    async with crew.working():
        tasks = [
            await crew.submit("hang", timeout=0.1, max_retries=0),
            await crew.submit("leave", parameters={"code": 7}, max_crashes=0),
        ]
        for task in tasks:
            await crew.until_ended(task)
    by_id = {line["task_id"]: line for line in lines(stream) if line["message"] == "task dead letter"}
    assert by_id[tasks[0].id]["error"].startswith("Timeout: ")
    assert by_id[tasks[1].id]["error"].startswith("ProcessDied: ")


async def test_a_program_with_logging_of_its_own_hears_of_errors_with_exc_info(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    raised = KeyError("mine")

    async def on_the_loop() -> None:
        raise raised

    def in_a_thread() -> None:
        raise raised

    crew.handle(on_the_loop)
    crew.handle(in_a_thread)
    async with crew.working():
        for name in ("on_the_loop", "in_a_thread"):
            await crew.until_ended(await crew.submit(name, max_retries=0))
    told = [record for record in caplog.records if record.name == "fairlead.tasks"]
    assert [(record.levelname, record.exc_info and record.exc_info[1]) for record in told] == [("ERROR", raised)] * 2
    assert {vars(record)["task_type"] for record in told} == {"on_the_loop", "in_a_thread"}


async def test_a_handler_that_raises_what_resists_is_told_all_the_same(crew: Crew, start: Start) -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("no looks")

    async def hostile() -> None:
        raise Hostile

    stream = start()
    crew.handle(hostile)
    async with crew.working():
        await crew.until_ended(await crew.submit("hostile", max_retries=0))
    (told,) = [line for line in lines(stream) if line["message"] == "task dead letter"]
    assert told["error"].startswith("Hostile: ")


async def test_what_a_handler_logs_with_structlog_carries_its_task(crew: Crew) -> None:
    heard: list[Any] = []

    def keep(logger: Any, method: str, event: Any) -> Any:
        heard.append(dict(event))
        raise structlog.DropEvent

    logger = structlog.wrap_logger(None, processors=[structlog.contextvars.merge_contextvars, keep])

    async def on_the_loop() -> None:
        logger.info("hello")

    def in_a_thread() -> None:
        logger.info("hello")

    crew.handle(on_the_loop)
    crew.handle(in_a_thread)
    tasks = [await crew.submit(name) for name in ("on_the_loop", "in_a_thread")]
    async with crew.working():
        for task in tasks:
            await crew.until_ended(task)
    logger.info("outside")
    assert {event.get("task_id") for event in heard} == {*(task.id for task in tasks), None}
    assert heard[-1] == {"event": "outside"}


def test_what_has_no_json_form_is_logged_all_the_same(start: Start) -> None:
    stream = start()
    log = logging.getLogger("application")
    log.warning("odd %s", "\udc80", extra={"thing": object(), "count": 2**70})
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("failed")
    odd, failed = lines(stream)
    assert odd["message"] == "odd \\udc80" and "object object" in odd["thing"]
    assert failed["message"] == "failed"
    assert failed["traceback"].endswith("ValueError: no")


def test_a_log_that_cannot_be_written_stops_nothing(start: Start) -> None:
    start()
    handler = log_handler()
    assert handler is not None

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    handler.setStream(Full())
    handler.write(b"lost\n")


async def test_lines_wait_a_moment_for_others_and_are_never_passed_by_a_record(start: Start) -> None:
    stream = start()
    handler = log_handler()
    assert handler is not None
    handler.write(b'{"message":"first"}\n')
    handler.write(b'{"message":"second"}\n')
    assert stream.getvalue() == "", "not written yet"
    logging.getLogger("application").warning("third")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["first", "second", "third"]
    handler.write(b'{"message":"fourth"}\n')
    async with asyncio.timeout(60):
        while "fourth" not in stream.getvalue():  # noqa: ASYNC110 - a stream has no event
            await asyncio.sleep(0.01)


async def test_lines_that_wait_are_written_when_logging_ends(start: Start) -> None:
    stream = start()
    handler = log_handler()
    assert handler is not None
    handler.write(b"last words\n")
    logging.shutdown([weakref.ref(handler)])
    assert stream.getvalue() == "last words\n"
