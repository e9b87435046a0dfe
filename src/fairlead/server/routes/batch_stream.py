"""Tasks as a stream of lines: read, stored and answered in pieces, whatever its length."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from fairlead.core.errors import FairleadError
from fairlead.core.tenancy import Role
from fairlead.server.auth import gate
from fairlead.server.caller_view import View
from fairlead.server.http.bodies import LARGE, Disconnected
from fairlead.server.http.problems import Refusal, refusal_of
from fairlead.server.routes.batch_submit import Item, read_one, refused, submit_all
from fairlead.wire.tasks import BATCH_LIMIT, BatchResult, SubmitRequest

_ENCODE_LINES: Final = msgspec.json.Encoder().encode_lines

_NO_POSITIONS: Final = "after names a position, which a stream of lines does not support; name tasks by their ids"


class Splitter:
    """Cuts what arrives into lines, and keeps no more of one than the limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun = bytearray()
        self._too_long = False

    def feed(self, piece: bytes) -> list[bytes | None]:
        """The lines that this piece completes; None for one that is too long."""
        first, *others = piece.split(b"\n")
        self._extend(first)
        lines: list[bytes | None] = []
        for other in others:
            lines.append(self._take())
            self._extend(other)
        return lines

    def rest(self) -> list[bytes | None]:
        """The last line, if it has no end of its own."""
        return [self._take()] if self._begun or self._too_long else []

    def _extend(self, part: bytes) -> None:
        self._begun += part
        if len(self._begun) > self._limit:
            self._too_long = True
            self._begun.clear()

    def _take(self) -> bytes | None:
        line = None if self._too_long else bytes(self._begun)
        self._begun.clear()
        self._too_long = False
        return line


class LineStream:
    """Answers a stream of tasks with a stream of results."""

    def __init__(self, view: View, traceparent: str | None = None) -> None:
        self._view = view
        self._checked_at = 0.0
        self._traceparent = traceparent
        self._limit = view.settings.body_limit
        self._seconds = view.settings.body_seconds
        self._next = 0
        """The number of the next line, from 0."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/x-ndjson"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            await self._run(scope, receive, send)
            await self._say(send, b"", last=True)
        except (Disconnected, TimeoutError):
            # The caller has left, or does not read its answers: nobody is there to be told, and no end of the answer
            # says so to whoever looks at it later.
            return

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        splitter = Splitter(self._limit)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        self._checked_at = loop.time()
        more = True
        while more:
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                slow = f"no whole line arrived within {self._seconds:g} s; send faster, or the rest in another request"
                await self._end(send, Refusal("slow-body", slow))
                return
            if message["type"] == "http.disconnect":
                raise Disconnected
            more = message.get("more_body", False)
            lines = splitter.feed(message.get("body", b""))
            if not more:
                lines += splitter.rest()
            if loop.time() - self._checked_at >= gate.RECHECK:
                self._checked_at = loop.time()
                try:
                    await self._view.recheck(scope, Role.SUBMIT)
                except Refusal as refusal:
                    await self._end(send, refusal)
                    return
            for start in range(0, len(lines), BATCH_LIMIT):
                await self._answer(lines[start : start + BATCH_LIMIT], send)
            if lines:
                # Not the body but each line has a time limit, so that a trickle of bytes cannot hold on for ever.
                deadline = loop.time() + self._seconds
            if more and self._view.stopping.is_set():
                stops = "the server is shutting down; send this line and the rest to another server"
                await self._end(send, Refusal("store-unavailable", stops))
                return

    async def _answer(self, lines: list[bytes | None], send: Send) -> None:
        first = self._next
        self._next += len(lines)
        kept = [(number, line) for number, line in enumerate(lines, first) if line is None or line.strip()]
        if not kept:
            return
        if sum(len(line or b"") for _, line in kept) > LARGE:
            items = await asyncio.to_thread(self._read_all, kept)
        else:
            items = self._read_all(kept)
        try:
            results = await submit_all(self._view, items, self._traceparent)
        except FairleadError as error:
            # The store failed: what becomes of these lines is unknown, and the next may fare better.
            results = [refused(0, refusal_of(error)) for _ in items]
        numbered = [
            msgspec.structs.replace(result, index=number) for result, (number, _) in zip(results, kept, strict=True)
        ]
        await self._say(send, _ENCODE_LINES(numbered))

    def _read_all(self, numbered: Sequence[tuple[int, bytes | None]]) -> list[Item]:
        return [self._read(line) for _, line in numbered]

    def _read(self, line: bytes | None) -> Item:
        if line is not None:
            item = read_one(line)
            if isinstance(item, SubmitRequest) and any(isinstance(one, int) for one in item.after):
                return Refusal("invalid-value", _NO_POSITIONS, field="after", remedy="name tasks by their ids")
            return item
        return Refusal(
            "too-large",
            f"the line is over the limit of {self._limit:,} bytes; pass a reference to the data",
            remedy="pass a reference to the data",
        )

    async def _end(self, send: Send, refusal: Refusal) -> None:
        result: BatchResult = refused(self._next, refusal)
        await self._say(send, _ENCODE_LINES([result]))

    async def _say(self, send: Send, body: bytes, *, last: bool = False) -> None:
        async with asyncio.timeout(self._seconds):
            await send({"type": "http.response.body", "body": body, "more_body": not last})
