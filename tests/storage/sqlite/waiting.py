"""Waiting for what other threads and processes do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE = 90.0


async def until(reached: Callable[[], bool]) -> None:
    """Look again and again until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not reached():  # noqa: ASYNC110 - what is waited for happens outside of the loop
            await asyncio.sleep(0.001)
