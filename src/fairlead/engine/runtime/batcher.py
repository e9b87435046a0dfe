"""Group commit: concurrent calls become one batch.

The next batch is whatever arrived while the last one was under way, so an idle system adds no delay and a busy one
pays the round trip or the fsync once for many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_Call: TypeAlias = tuple[Sequence[Item], asyncio.Future[Sequence[Answer]]]
"""What someone wants to be sent, and what they wait for."""


class Batcher(Generic[Item, Answer]):
    """Coalesces the calls of one event loop into batches, one batch under way at a time."""

    def __init__(self, send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], *, limit: int = 1_000) -> None:
        if limit < 1:
            raise ValueError(f"a batch of at most {limit} items sends nothing; use 1 or more")
        self._send = send
        self._limit = limit
        self._waiting: list[_Call[Item, Answer]] = []
        self._sending: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop
        """The loop that it sends in."""

    def answers(self, items: Sequence[Item]) -> asyncio.Future[Sequence[Answer]]:
        """The answers to these items, in their order, sent along with whatever else waits."""
        if self._sending is None:
            self._loop = asyncio.get_running_loop()
        answers: asyncio.Future[Sequence[Answer]] = self._loop.create_future()
        self._waiting.append((items, answers))
        if self._sending is None:
            self._sending = self._loop.create_task(self._run())
        return answers

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._send_batch(self._next_batch())
        finally:
            self._sending = None
            # Only when this task was cancelled, with its loop: nobody will send these.
            for _, answers in self._waiting:
                answers.cancel()
            self._waiting.clear()

    def _next_batch(self) -> list[_Call[Item, Answer]]:
        """Whole calls, up to the limit; a call larger than that goes alone."""
        waiting, size = self._waiting, 0
        for at, (items, _) in enumerate(waiting):
            size += len(items)
            if size > self._limit and at:
                self._waiting = waiting[at:]
                return waiting[:at]
        self._waiting = []
        return waiting

    async def _send_batch(self, batch: list[_Call[Item, Answer]]) -> None:
        items = batch[0][0] if len(batch) == 1 else [item for call, _ in batch for item in call]
        try:
            answers = await self._send(items) if items else []
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            if self._sending is not None and self._sending.cancelling():
                raise
            return
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        start = 0
        for call, future in batch:
            end = start + len(call)
            if not future.done():
                future.set_result(answers[start:end])
            start = end
