"""Handlers for trying things: they do nothing but end in the way they are asked to."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from msgspec import Meta

from fairlead.core.errors import Reject


async def echo(message: Any = "") -> Any:
    """Return the message, which may be any JSON value."""
    return message


async def sleep(seconds: Annotated[float, Meta(ge=0)] = 1.0) -> float:
    """Wait for so many seconds, and return them."""
    await asyncio.sleep(seconds)
    return seconds


async def fail(message: str = "this task fails because it was asked to", retriable: bool = True) -> None:
    """Fail: as an error of a handler does, so that it is tried again, or for good."""
    if not retriable:
        raise Reject(message)
    raise RuntimeError(message)
