"""A part of an app, such as `app.queues`, and what it asks of an engine in words of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar

from fairlead.admin.facade import Facade
from fairlead.app.connection import Link
from fairlead.engine.runtime.inline import sleep_inline

Sleep: TypeAlias = Callable[[float], Awaitable[object]]
"""Waits for so many seconds, as `asyncio.sleep` does."""


class EngineRequests:
    """What is asked of one engine."""

    def __init__(self, engine: Facade, link: Link, sleep: Sleep) -> None:
        self._engine = engine
        self._link = link
        self._sleep = sleep


R = TypeVar("R", bound=EngineRequests)
D = TypeVar("D")


class Part:
    """A part of an app, and its way to the engine: that of the running event loop, or the one for synchronous code."""

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect

    async def _engine(self) -> Facade:
        return await self._connect().engine()

    def _inline(self) -> Facade:
        return self._connect().inline()

    async def _requests(self, kind: type[R]) -> R:
        link = self._connect()
        return kind(await link.engine(), link, asyncio.sleep)

    def _requests_inline(self, kind: type[R]) -> R:
        link = self._connect()
        return kind(link.inline(), link, sleep_inline)


class DeclaringPart(Part, Generic[D]):
    """A part of an app for what programs declare beside what people set."""

    def __init__(self, connect: Callable[[], Link], declared: dict[str, D]) -> None:
        super().__init__(connect)
        self.declared = declared
        """What the app declares, by name."""
