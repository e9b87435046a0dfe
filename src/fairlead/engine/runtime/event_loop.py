"""Sharing an event loop: concurrent calls become one batch (group commit), and long work takes turns.

The next batch is whatever arrived while the last one was under way, so an idle system adds no delay and a busy one
pays the round trip or the fsync once for many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

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


class PlacedBatcher(Generic[Item, Answer]):
    """A batcher for each place of a store: a place that keeps its items waiting does not keep those of the others."""

    def __init__(
        self, send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], place_of: Callable[[Item], int]
    ) -> None:
        self._send = send
        self._place_of = place_of
        self._batchers: dict[int, Batcher[Item, Answer]] = {}

    def answers(self, items: Sequence[Item]) -> Awaitable[Sequence[Answer]]:
        """The answers to these items, in their order, each sent along with whatever else waits for its place."""
        by_place: dict[int, list[int]] = {}
        for at, item in enumerate(items):
            by_place.setdefault(self._place_of(item), []).append(at)
        if len(by_place) == 1:
            return self._batcher(next(iter(by_place))).answers(items)
        return self._gathered(items, by_place)

    async def _gathered(self, items: Sequence[Item], by_place: dict[int, list[int]]) -> Sequence[Answer]:
        parts = [self._batcher(place).answers([items[at] for at in at_place]) for place, at_place in by_place.items()]
        answered: dict[int, Answer] = {}
        # All of them first: what failed in one place was done in the others.
        outcomes = await asyncio.gather(*parts, return_exceptions=True)
        for at_place, outcome in zip(by_place.values(), outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            answered.update(zip(at_place, outcome, strict=True))
        return [answered[at] for at in range(len(items))]

    def _batcher(self, place: int) -> Batcher[Item, Answer]:
        batcher = self._batchers.get(place)
        if batcher is None:
            batcher = self._batchers[place] = Batcher(self._send)
        return batcher


LENGTH: Final = 0.002
"""Seconds that one turn takes, or hardly more."""
FEW: Final = 8
"""How many things are done in one turn, however long each takes."""


class Turn:
    """A turn of the running event loop; where there is none, because the engine is driven without one, it never ends.

    After each thing that is done ask `is_over`, and if it is, `await next()`. Of a few things, to ask would take longer
    than to do them: their turn does not end, and where each thing is as small as a task it is enough to ask at every
    few.
    """

    __slots__ = ("_end", "_loop")

    def __init__(self, things: int, *, looped: bool = True) -> None:
        self._loop = asyncio.get_running_loop() if looped and things > FEW else None
        self._end = 0.0 if self._loop is None else self._loop.time() + LENGTH

    @property
    def is_over(self) -> bool:
        """Whether others are to have their turn now."""
        return self._loop is not None and self._loop.time() >= self._end

    async def next(self) -> None:
        """Let others have their turn."""
        await asyncio.sleep(0)
        if self._loop is not None:
            self._end = self._loop.time() + LENGTH
