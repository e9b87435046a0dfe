"""Waiting for what other tasks and servers do by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def until(holds: Callable[[], Awaitable[bool]], within: float = 60.0) -> None:
    """Return when it holds."""
    async with asyncio.timeout(within):
        while not await holds():  # noqa: ASYNC110 - no one here is told
            await asyncio.sleep(0.05)
