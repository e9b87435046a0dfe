"""Hypothesis examples inside a coroutine.

A store belongs to the event loop that opened it, so the examples are made in a thread and each is checked in the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

Example = TypeVar("Example")

STEADY = settings(
    max_examples=50,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""The same examples at every run: a store that passes keeps passing."""


async def for_examples(
    examples: SearchStrategy[Example],
    check: Callable[[Example], Awaitable[None]],
    settings: settings = STEADY,
) -> None:
    """Check examples until one fails, and then the smallest that fails."""
    loop = asyncio.get_running_loop()

    async def check_in_loop(example: Example) -> None:
        await check(example)

    @settings
    @given(examples)
    def run(example: Example) -> None:
        asyncio.run_coroutine_threadsafe(check_in_loop(example), loop).result()

    await asyncio.to_thread(run)
