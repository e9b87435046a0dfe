"""What users write, in all its forms: checked with mypy --strict, with the rest of tests/ and by test_user_code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import assert_type

from fairlead import (
    MINUTE,
    SECOND,
    Backoff,
    Defaults,
    DelayCeilings,
    Depends,
    Fairlead,
    Middleware,
    Priority,
    PriorityDefaults,
    Promote,
    Reject,
    Retention,
    Retry,
    RetryRule,
    Rules,
    Sentry,
    Settings,
    Submission,
    TaskContext,
    TaskHandle,
    current_task,
)
from fairlead import State as TaskState
from fairlead.core.health.diagnosis import Level
from fairlead.core.operation import Operation
from fairlead.core.task import Task

app = Fairlead(
    "memory://",
    settings=Settings(
        lease=30,
        heartbeat=0.5 * SECOND,
        order=Promote(low=5 * MINUTE),
        defaults=Defaults(high=PriorityDefaults(max_retries=1, timeout=30), backoff=Backoff(initial=5)),
        rules=Rules(
            retention=Retention(failed=7 * 86_400.0),
            delay_ceilings=DelayCeilings(critical=10, high=30 * SECOND, low=None),
            timeout_growth_after_failure=True,
        ),
    ),
)


@dataclass
class Video:
    name: str
    width: int = 1920


@app.task
async def bare(number: int) -> str:
    return str(number)


@app.task(priority="high", timeout=30, max_retries=5, requires={"gpu"}, backoff=Backoff(factor=3.0), tags=["a"])
async def render(video: Video, width: int = 1920, *, fast: bool = False) -> list[Video]:
    context = current_task()
    context.progress(50, "half way")
    if context.cancel_asked:
        raise Retry(after=1.5)
    if width < 0:
        raise Reject("no such width")
    return [video]


@app.task(isolate=True, memory_limit=1 << 30, retry_on=[OSError], reject_on=[ValueError], name="shrink.v2")
def shrink(video: Video, **labels: str) -> None: ...


@app.task(
    timeout=2 * MINUTE,
    delay=0.5,
    priority=Priority.LOW,
    retry_rules={OSError: RetryRule(backoff=Backoff(initial=30 * SECOND, ceiling=300)), ValueError: "reject"},
)
def plain() -> int | None:
    return None


@dataclass
class State:
    pool: list[str]


@asynccontextmanager
async def lifespan(app: Fairlead) -> AsyncIterator[State]:
    yield State([])


async def session(context: TaskContext) -> AsyncIterator[str]:
    yield context.state(State).pool[0]


def clock() -> float:
    return 0.0


async def user(context: TaskContext) -> int:
    return context.attempt


def lines() -> Iterator[Video]:
    yield Video("a")


class Errors(Middleware):
    def on_submit(self, submission: Submission) -> Submission:
        return submission

    @contextmanager
    def attempt(self, context: TaskContext) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            assert_type(context.is_final(error), bool)
            raise


class Later(Middleware):
    @asynccontextmanager
    async def attempt(self, context: TaskContext) -> AsyncIterator[None]:
        yield


resourceful = Fairlead("memory://", lifespan=lifespan, middleware=[Errors(), Later(), Sentry()])


@resourceful.task
async def bill(
    order: int,
    *,
    db: str = Depends(session),
    now: float = Depends(clock),
    who: int = Depends(user),
    video: Video = Depends(lines),
) -> str:
    return db


async def provide() -> None:
    assert_type(await bill.submit(17), TaskHandle[str])
    assert_type(await bill(17, db="mine", now=1.0, who=1, video=Video("a")), str)
    assert_type(current_task().state(State), State)
    async with resourceful.testing(overrides={session: clock, lifespan: lifespan}) as rehearsal:
        assert_type(await rehearsal.run(), int)


async def submit() -> None:
    assert_type(await bare.submit(1), TaskHandle[str])
    assert_type(await (await bare.submit(number=1)).result(timeout=60), str)
    handle = await render.options(priority="low", delay=30, idempotency_key="x").submit(Video("a"), 1280, fast=True)
    assert_type(await handle.result(), list[Video])
    assert_type(await handle.cancel(), TaskState)
    assert_type(handle.status, TaskState)
    assert_type(await render.submit_many([render.call(Video("a")), render.call(Video("b"), fast=True)]), Rendered)
    assert_type(shrink.submit_sync(Video("a"), owner="me"), TaskHandle[None])
    assert_type(plain.submit_sync().result_sync(timeout=1), int | None)


async def operate() -> None:
    assert_type((await app.tasks.search("state:failed", limit=5)).tasks, list[Task])
    assert_type(await app.operations.start("replay", "error:Timeout", rate=50, canary=20), Operation)
    assert_type(app.operations.preview_sync("discard", "type:x").count, int)
    assert_type((await app.dead_letters.groups()).total, int)
    assert_type((await app.diagnose()).level, Level)


async def call_directly() -> None:
    assert_type(await bare(1), str)
    assert_type(await render(Video("a"), fast=True), list[Video])
    assert_type(plain(), int | None)


async def rehearse() -> None:
    async with app.testing() as rehearsal:
        await bare.submit(1)
        rehearsal.advance(60)
        assert_type(await rehearsal.run_all(), int)


Rendered = list[TaskHandle[list[Video]]]
start: Callable[[], None] = app.run_worker
