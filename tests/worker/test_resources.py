"""A lifespan, middleware and providers around handlers, wherever those run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead import (
    Depends,
    Fairlead,
    InvalidSettings,
    InvalidTask,
    Middleware,
    Reject,
    Retry,
    RetryRule,
    State,
    Submission,
    TaskContext,
    TaskFailed,
    chain,
)
from fairlead.engine.runtime.inline import run_inline
from fairlead.worker.resources import blame, blamed
from fairlead.worker.worker import Worker, WorkerSettings
from tests.worker import surrounded
from tests.worker.building import PATIENCE


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "noted"
    file.touch()
    monkeypatch.setenv("SURROUNDED", str(file))
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    return file


@asynccontextmanager
async def working(app: Fairlead) -> AsyncIterator[Worker]:
    worker = await app.worker(keeper_process=False, settings=WorkerSettings(concurrency=2))
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.leave()
        await asyncio.wait_for(running, PATIENCE)


def lines(noted: Path) -> list[str]:
    return noted.read_text().splitlines()


def words(noted: Path) -> list[str]:
    return [line.split()[0] for line in lines(noted)]


@pytest.mark.parametrize("kind", surrounded.TASKS)
async def test_middleware_and_providers_are_entered_in_order_and_left_in_reverse(kind: str, noted: Path) -> None:
    async with working(surrounded.app):
        handle = await surrounded.TASKS[kind].submit()
        plain, process, task_id, session, own = await handle.result(timeout=PATIENCE)

    assert (plain, task_id, session) == ("plain", handle.id, "session")
    assert process == own
    assert (own == os.getpid()) is not kind.startswith("isolated")
    expected = ["outer+", "inner+", "generator+", "session+", "handler", "session-", "generator-", "inner-", "outer-"]
    assert [word for word in words(noted) if word not in ("open", "close")] == expected


@pytest.mark.parametrize("kind", surrounded.TASKS)
async def test_a_plain_generator_is_entered_and_left_in_the_thread_of_its_handler(kind: str, noted: Path) -> None:
    async with working(surrounded.app):
        await (await surrounded.TASKS[kind].submit()).result(timeout=PATIENCE)

    threads = dict(line.split() for line in lines(noted) if line.startswith(("gen", "hand", "outer+")))
    assert len(set(threads.values())) == 1


@pytest.mark.parametrize("kind", surrounded.TASKS)
async def test_what_surrounds_a_handler_sees_its_error_and_hides_it_from_nobody(kind: str, noted: Path) -> None:
    async with working(surrounded.app):
        handle = await surrounded.TASKS[kind].submit(fails=True)
        with pytest.raises(TaskFailed, match="as asked"):
            await handle.result(timeout=PATIENCE)

    seen = lines(noted)
    assert "session rolls back" in seen
    assert "outer ValueError True" in seen
    failure = (await surrounded.app.tasks.get(handle.id)).status.failure
    assert failure is not None
    assert (failure.type, failure.message) == ("ValueError", "as asked")
    assert "tests/worker/surrounded.py" in (failure.traceback or "").splitlines()[1]


@pytest.mark.parametrize("kind", ["coroutine", "isolated_function"])
async def test_a_lifespan_is_entered_once_in_each_process_and_left_at_its_end(kind: str, noted: Path) -> None:
    async with working(surrounded.app):
        await (await surrounded.TASKS[kind].submit()).result(timeout=PATIENCE)
        *_, process = await (await surrounded.TASKS[kind].submit()).result(timeout=PATIENCE)

    told = [line for line in lines(noted) if line.startswith(("open", "close"))]
    inner = [] if process == os.getpid() else [f"open {process}", f"close {process}"]
    assert told == [f"open {os.getpid()}", *inner, f"close {os.getpid()}"]


async def test_an_isolated_process_keeps_one_event_loop(noted: Path) -> None:
    async with working(surrounded.app):
        first = await (await surrounded.loop_id.submit()).result(timeout=PATIENCE)
        assert await (await surrounded.loop_id.submit()).result(timeout=PATIENCE) == first


async def test_a_job_that_stops_the_loop_does_not_go_on_in_the_next(noted: Path) -> None:
    async with working(surrounded.app):
        with pytest.raises(TaskFailed):
            await (await surrounded.stop_loop.submit()).result(timeout=PATIENCE)
        await (await surrounded.loop_id.submit()).result(timeout=PATIENCE)

    assert "went" not in words(noted)


class Recorder(Middleware):
    """Writes down what an attempt ends with, and whether that is final."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool]] = []

    @contextmanager
    def attempt(self, context: TaskContext, /) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.seen.append((type(error).__name__, context.is_final(error)))
            raise


class Unwell(Exception): ...


@pytest.mark.parametrize("error", [Reject, Retry, ValueError, OSError, KeyError, Unwell, SystemExit])
def test_is_final_says_what_becomes_of_the_task(error: type[BaseException]) -> None:
    recorder = Recorder()
    app = Fairlead("memory://", middleware=[recorder])

    @app.task(
        max_retries=2,
        reject_on=[KeyError],
        retry_rules={OSError: RetryRule(max_retries=1), Unwell: "reject"},
    )
    def handler() -> None:
        raise error("x")

    with app.testing() as rehearsal:
        handle = handler.submit_sync()
        rehearsal.run_all_sync()
        attempts = len(recorder.seen)

        assert handle.refresh_sync().status.ended
        assert recorder.seen == [(error.__name__, number == attempts - 1) for number in range(attempts)]


async def test_is_final_of_a_timeout_is_about_the_timeout() -> None:
    recorder = Recorder()
    app = Fairlead("memory://", middleware=[recorder])

    @app.task(max_retries=1, timeout=0.1)
    async def hang() -> None:
        await asyncio.sleep(3600)

    async with app.testing() as rehearsal:
        handle = await hang.submit()
        await rehearsal.run_all()
        assert (await handle.refresh()).status is State.DEAD_LETTER
    assert recorder.seen == [("CancelledError", False), ("CancelledError", True)]


class Broken(Middleware):
    def __init__(self, where: str) -> None:
        self.where = where

    @contextmanager
    def attempt(self, context: TaskContext, /) -> Iterator[None]:
        if self.where == "enter":
            raise Reject("not today")
        yield
        if self.where == "leave":
            raise RuntimeError("too late")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("where", "error", "state"),
    [("enter", ("Reject", "not today"), State.FAILED), ("leave", ("RuntimeError", "too late"), State.DEAD_LETTER)],
)
def test_an_error_of_a_middleware_fails_the_attempt_and_names_it(
    where: str, error: tuple[str, str], state: State, is_async: bool
) -> None:
    outer = Recorder()
    app = Fairlead("memory://", middleware=[outer, Broken(where)])

    async def coroutine() -> None: ...
    def function() -> None: ...

    handler = app.task(name="handler", max_retries=0)(coroutine if is_async else function)
    with app.testing() as rehearsal:
        handle = handler.submit_sync()
        rehearsal.run_all_sync()
        task = app.tasks.get_sync(handle.id)

    assert task.state is state
    assert task.status.failure is not None
    assert task.status.failure.type == error[0]
    assert task.status.failure.message == f"{error[1]} (raised by the middleware Broken)"
    assert outer.seen == [(error[0], True)]


class Closed(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise KeyboardInterrupt(f"no {name}")


class NotesExit(Exception):
    @property  # type: ignore[misc, unused-ignore]
    def __notes__(self) -> Any:  # type: ignore[override, misc, unused-ignore]
        raise SystemExit(3)


@pytest.mark.parametrize("kind", [Closed, NotesExit])
def test_an_error_that_resists_is_noted_on_and_asked_in_peace(kind: type[Exception]) -> None:
    error = kind("words")
    blame(error, "somebody")
    assert blamed(error) is None


def test_an_error_of_a_provider_names_it() -> None:
    app = Fairlead("memory://")

    def pool() -> Iterator[str]:
        yield unreachable()

    @app.task(max_retries=0)
    async def handler(*, db: str = Depends(pool)) -> None: ...

    with app.testing() as rehearsal:
        handle = handler.submit_sync()
        rehearsal.run_all_sync()
        failure = app.tasks.get_sync(handle.id).status.failure

    assert failure is not None
    assert failure.message.startswith("the real one (raised by the provider ")


def test_an_error_that_is_swallowed_fails_the_attempt_all_the_same() -> None:
    class Hush(Middleware):
        @contextmanager
        def attempt(self, context: TaskContext, /) -> Iterator[None]:
            with suppress(ValueError):
                yield

    app = Fairlead("memory://", middleware=[Hush()])

    @app.task(max_retries=0)
    def handler() -> None:
        raise ValueError("x")

    with app.testing() as rehearsal:
        handle = handler.submit_sync()
        rehearsal.run_all_sync()
        assert handle.refresh_sync().status is State.DEAD_LETTER


def test_a_middleware_that_is_no_context_manager_says_so() -> None:
    class Undecorated(Middleware):
        def attempt(self, context: TaskContext, /) -> Iterator[None]:  # type: ignore[override]
            yield

    app = Fairlead("memory://", middleware=[Undecorated()])

    @app.task(max_retries=0)
    def handler() -> None: ...

    with app.testing() as rehearsal:
        handle = handler.submit_sync()
        rehearsal.run_all_sync()
        failure = app.tasks.get_sync(handle.id).status.failure

    assert failure is not None
    assert "write @contextmanager above it" in failure.message


class Stamp(Middleware):
    def __init__(self, tag: str) -> None:
        self.tag = tag

    def on_submit(self, submission: Submission) -> Submission:
        return replace(submission, tags=(*submission.tags, self.tag))


async def test_each_submit_from_python_goes_through_on_submit_in_order() -> None:
    app = Fairlead("memory://", middleware=[Stamp("a"), Stamp("b")])

    @app.task
    async def handler(number: int) -> None: ...

    async with app.testing():
        handles = [
            await handler.submit(1),
            handler.submit_sync(2),
            *await handler.submit_many([handler.call(3)]),
            *handler.submit_many_sync([handler.call(4)]),
            await app.submit(handler.handler.type, {"number": 1}),
            app.submit_sync("elsewhere", {"number": 1}),
            *(await chain(handler.call(5), handler.call(6)).submit()).tasks,
        ]
        tags = [(await app.tasks.get(handle.id)).spec.tags for handle in handles]
    assert tags == [("a", "b")] * 8


async def test_an_error_of_on_submit_reaches_the_submitter_and_names_it() -> None:
    class Refuses(Middleware):
        def on_submit(self, submission: Submission) -> Submission:
            raise PermissionError("not you")

    class Forgets(Middleware):
        def on_submit(self, submission: Submission) -> Submission:  # type: ignore[empty-body]
            pass

    async def handler() -> None: ...

    refused = Fairlead("memory://", middleware=[Refuses()]).task(handler)
    with pytest.raises(PermissionError, match="not you") as raised:
        await refused.submit()
    assert raised.value.__notes__ == ["raised by on_submit of the middleware " + Refuses.__qualname__]
    forgotten = Fairlead("memory://", middleware=[Forgets()]).task(handler)
    with pytest.raises(InvalidSettings, match="returned None; return the submission"):
        await forgotten.submit()


def test_what_is_no_middleware_or_lifespan_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="middleware"):
        Fairlead("memory://", middleware=[print])  # type: ignore[list-item]
    with pytest.raises(InvalidSettings, match="middleware"):
        Fairlead("memory://", middleware=Stamp("a"))  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="lifespan 5 is not a function"):
        Fairlead("memory://", lifespan=5)  # type: ignore[arg-type]

    async def undecorated(app: Fairlead) -> AsyncIterator[int]:
        yield 1

    async def yields_nothing(app: Fairlead) -> int:
        return 1

    @asynccontextmanager
    async def takes_nothing() -> AsyncIterator[int]:
        yield 1

    for lifespan in (undecorated, yields_nothing):
        with pytest.raises(InvalidSettings, match="write @asynccontextmanager above its async def"):
            Fairlead("memory://", lifespan=lifespan)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match=r"takes_nothing cannot be called with the app: too many .* one argument"):
        Fairlead("memory://", lifespan=takes_nothing)  # type: ignore[arg-type]


async def test_a_lifespan_that_cannot_be_entered_ends_the_worker() -> None:
    @contextmanager
    def lifespan(app: Fairlead) -> Iterator[int]:
        yield 1

    app = Fairlead("memory://", lifespan=lifespan)  # type: ignore[arg-type]

    @app.task
    def handler() -> None: ...

    worker = await app.worker(keeper_process=False)
    with pytest.raises(InvalidSettings, match="write @asynccontextmanager above its async def"):
        await worker.run()


async def test_a_worker_can_be_asked_to_leave_while_its_lifespan_begins() -> None:
    began, left = asyncio.Event(), False

    @asynccontextmanager
    async def lifespan(app: Fairlead) -> AsyncIterator[None]:
        nonlocal left
        began.set()
        try:
            await asyncio.sleep(3600)
            yield
        finally:
            left = True

    app = Fairlead("memory://", lifespan=lifespan)

    @app.task
    def handler() -> None: ...

    worker = await app.worker(keeper_process=False)
    running = asyncio.create_task(worker.run())
    await began.wait()
    worker.leave()
    await asyncio.wait_for(running, PATIENCE)
    assert left


async def test_a_lifespan_that_does_not_end_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def lifespan(app: Fairlead) -> AsyncIterator[None]:
        yield
        await asyncio.sleep(3600)

    app = Fairlead("memory://", lifespan=lifespan)

    @app.task
    def handler() -> None: ...

    worker = await app.worker(keeper_process=False, settings=WorkerSettings(drain_seconds=0))
    running = asyncio.create_task(worker.run())
    await (await handler.submit()).result(timeout=PATIENCE)
    worker.leave()
    await asyncio.wait_for(running, PATIENCE)
    assert "the lifespan has not ended within 2 s" in caplog.text


def test_state_is_what_the_lifespan_yields() -> None:
    @asynccontextmanager
    async def lifespan(app: Fairlead) -> AsyncIterator[int]:
        yield 5

    def asked(context: TaskContext) -> int:
        return context.state(int)

    def wrong(context: TaskContext) -> str:
        return context.state(str)

    app, bare = Fairlead("memory://", lifespan=lifespan), Fairlead("memory://")

    @app.task(max_retries=0)
    async def right(*, number: int = Depends(asked)) -> int:
        return number

    async def confused(*, text: str = Depends(wrong)) -> None: ...

    messages = []
    with app.testing() as rehearsal:
        handle, failing = right.submit_sync(), app.task(max_retries=0)(confused).submit_sync()
        rehearsal.run_all_sync()
        assert handle.result_sync(timeout=1) == 5
        messages.append(app.tasks.get_sync(failing.id).status.failure)
    with bare.testing() as rehearsal:
        failing = bare.task(max_retries=0)(confused).submit_sync()
        rehearsal.run_all_sync()
        messages.append(bare.tasks.get_sync(failing.id).status.failure)
    assert [message and message.message.partition(",")[0] for message in messages] == [
        "the app's lifespan yielded 5",
        "the app has no lifespan",
    ]


def unreachable() -> str:
    raise ConnectionError("the real one")


def test_providers_and_the_lifespan_are_overridden_in_a_test() -> None:
    @asynccontextmanager
    async def lifespan(app: Fairlead) -> AsyncIterator[str]:
        yield unreachable()

    async def session(context: TaskContext) -> AsyncIterator[str]:
        yield unreachable()

    def fake(context: TaskContext) -> str:
        return f"fake of {context.state(str)}"

    @asynccontextmanager
    async def fake_lifespan(app: Fairlead) -> AsyncIterator[str]:
        yield "fake state"

    app = Fairlead("memory://", lifespan=lifespan)

    @app.task(max_retries=0)
    async def handler(*, db: str = Depends(session)) -> str:
        return db

    with app.testing(overrides={session: fake, lifespan: fake_lifespan}) as rehearsal:
        handle = handler.submit_sync()
        rehearsal.run_all_sync()
        assert handle.result_sync(timeout=1) == "fake of fake state"


def test_an_isolated_handler_gets_its_fakes_too(noted: Path) -> None:
    def fake() -> str:
        return "fake"

    with surrounded.app.testing(overrides={surrounded.plain: fake}) as rehearsal:
        handle = surrounded.isolated_function.submit_sync()
        rehearsal.run_all_sync()
        first, *_, process = handle.result_sync(timeout=1)
    assert (first, process) == ("fake", os.getpid())


def session() -> str:
    return "real"


def test_what_a_provider_makes_is_no_argument() -> None:
    app = Fairlead("memory://")

    @app.task
    def handler(number: int, db: str = Depends(session), **labels: str) -> list[str]:
        return [db, *labels]

    @app.task
    async def later(number: int, *, db: str = Depends(session)) -> str:
        return db

    with app.testing() as rehearsal:
        for task in (handler, later):
            with pytest.raises(InvalidTask, match=r"db is made by Depends\(session\) when the task runs; leave it out"):
                task.submit_sync(1, db="mine")
        with pytest.raises(InvalidTask, match="too many positional arguments"):
            handler.submit_sync(1, "mine")
        handle = handler.submit_sync(1, colour="red")
        rehearsal.run_sync()
        assert handle.result_sync(timeout=1) == ["real", "colour"]
        # As a program in another language may submit it.
        engine = app.store_connection().inline()
        sent = engine.submit(Submission(type=handler.handler.type, parameters=b'{"number": 1, "db": "mine"}'))
        sent_task = run_inline(sent).task
        rehearsal.run_sync()
        failure = app.tasks.get_sync(sent_task.id).status.failure
    assert failure is not None
    assert (failure.type, "db is made by" in failure.message) == ("InvalidArguments", True)


def test_a_direct_call_injects_nothing_and_says_what_is_missing() -> None:
    app = Fairlead("memory://")

    @app.task
    def handler(number: int, *, db: str = Depends(session)) -> str:
        return db

    with pytest.raises(TypeError, match=r"called directly, where no provider runs: pass db=…, or submit it"):
        handler(1)
    assert handler(1, db="mine") == "mine"


def test_providers_that_cannot_be_called_are_refused_where_they_are_declared() -> None:
    def greedy(context: TaskContext, more: int) -> None: ...
    def nested(context: TaskContext, db: str = Depends(session)) -> None: ...
    def keyed(*, context: TaskContext) -> None: ...

    refused: list[tuple[Any, str]] = [
        (greedy, "it can take the TaskContext, or nothing"),
        (nested, "has a provider of its own, db: 'str' = Depends"),
        (keyed, "it can take the TaskContext, or nothing"),
        (5, "is not a function"),
        (session(), "is not a function"),
    ]
    for provider, message in refused:
        with pytest.raises(InvalidSettings, match=message):
            Depends(provider)
