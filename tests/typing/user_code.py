"""What users write, in all its forms: checked with mypy --strict, with the rest of tests/ and by test_user_code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_type

from fairlead import (
    MINUTE,
    SECOND,
    Backoff,
    Defaults,
    DelayCeilings,
    Fairlead,
    Priority,
    PriorityDefaults,
    Promote,
    Reject,
    Retention,
    Retry,
    RetryRule,
    Rules,
    Settings,
    State,
    TaskHandle,
    current_task,
)
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


async def submit() -> None:
    assert_type(await bare.submit(1), TaskHandle[str])
    assert_type(await (await bare.submit(number=1)).result(timeout=60), str)
    handle = await render.options(priority="low", delay=30, idempotency_key="x").submit(Video("a"), 1280, fast=True)
    assert_type(await handle.result(), list[Video])
    assert_type(await handle.cancel(), State)
    assert_type(handle.status, State)
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
