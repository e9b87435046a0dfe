"""Driving a coroutine without an event loop.

The engine is written once, as coroutines. Over a store opened for blocking use they never suspend, so plain
synchronous code can run them to their end by a single step: no loop, no thread, no second copy of the code.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_inline(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    coroutine.close()
    raise RuntimeError("the coroutine suspended, so it needs an event loop; open its store with blocking=True")


async def sleep_inline(seconds: float) -> None:
    """`asyncio.sleep` for a coroutine that is run inline: its thread waits."""
    time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop to be held up
