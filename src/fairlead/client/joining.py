"""Submits of one turn of an event loop go as one request.

A request costs a server and its caller many times what a task of a batch does, and coroutines that submit at once tend
to do so in the same turn of their loop: all of them were woken by one answer. Nobody waits for others to come, and
nobody for a request that is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from fairlead.core.errors import FairleadError
from fairlead.core.submission import Submission
from fairlead.engine.engine import Submitted


class Joining:
    """Joins the submits of one event loop."""

    def __init__(self, send: Callable[[Sequence[Submission]], Awaitable[Sequence[Submitted | FairleadError]]]) -> None:
        self._send = send
        self._turn: list[tuple[Submission, asyncio.Future[Submitted]]] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def submit(self, submission: Submission) -> Submitted:
        """Submit a task, along with whatever else is submitted in this turn."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Submitted] = loop.create_future()
        self._turn.append((submission, answer))
        if len(self._turn) == 1:
            # A task begins in the next turn.
            sending = loop.create_task(self._end_turn())
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        return await answer

    async def _end_turn(self) -> None:
        # Whoever has been cancelled by now wants nothing any more.
        turn = [(submission, answer) for submission, answer in self._turn if not answer.done()]
        self._turn = []
        told: Sequence[Submitted | Exception]
        try:
            told = await self._send([submission for submission, _ in turn]) if turn else ()
        except asyncio.CancelledError:
            for _, answer in turn:
                answer.cancel()
            raise
        except Exception as error:
            told = [error] * len(turn)
        for (_, answer), one in zip(turn, told, strict=True):
            if answer.done():
                continue
            if isinstance(one, Exception):
                answer.set_exception(one)
            else:
                answer.set_result(one)
