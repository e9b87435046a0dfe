"""Submitting many tasks at once: as one document, or as a stream of lines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.core.errors import FairleadError
from fairlead.core.submission import Submission
from fairlead.core.tenancy import Role
from fairlead.engine.runtime.event_loop import FEW, Turn
from fairlead.server.auth import gate
from fairlead.server.caller_view import View
from fairlead.server.endpoint import Answer, Call, serve
from fairlead.server.http.bodies import LARGE, Disconnected, check_depth, check_unambiguous
from fairlead.server.http.problems import Refusal, invalid_value, refusal_of
from fairlead.server.routes.tasks import TASKS
from fairlead.server.submit import Item, placed, read_one, traceparent_of
from fairlead.wire import task_endpoints
from fairlead.wire.endpoint import Empty
from fairlead.wire.tasks import BATCH_LIMIT, BatchAnswer, BatchRequest, BatchResult, SubmitRequest, submission_of

_ENCODE_LINES: Final = msgspec.json.Encoder().encode_lines

_NO_POSITIONS: Final = "after names a position, which a stream of lines does not support; name tasks by their ids"


async def submit_all(view: View, items: Sequence[Item], traceparent: str | None = None) -> list[BatchResult]:
    """Store what can be stored; the results are in the order of the items, numbered from 0."""
    turn = Turn(len(items))
    wishes: list[Submission | Refusal] = []
    tenant_of, awaiting = view.tenant_of, False
    for index, item in enumerate(items):
        if index % FEW == 0 and turn.is_over:
            await turn.next()
        wish: Submission | Refusal
        try:
            wish = item if isinstance(item, Refusal) else submission_of(item, tenant_of(item.tenant), traceparent)
        except FairleadError as error:
            wish = refusal_of(error)
        wishes.append(wish)
        if isinstance(wish, Submission) and wish.after:
            awaiting = True
    if awaiting:
        wishes = await placed(await _awaitable(view, wishes))
    answers = iter(await view.submit_many([wish for wish in wishes if isinstance(wish, Submission)]))
    results = []
    turn = Turn(len(wishes))
    for index, wish in enumerate(wishes):
        if index % FEW == 0 and turn.is_over:
            await turn.next()
        answer = next(answers) if isinstance(wish, Submission) else wish
        if isinstance(answer, Refusal):
            results.append(refused(index, answer))
        else:
            results.append(BatchResult(index=index, status=200 if answer.existing else 201, task=answer))
    return results


async def _awaitable(view: View, wishes: Sequence[Submission | Refusal]) -> list[Submission | Refusal]:
    """The wishes; one that is to wait for what is not there for the caller is refused, as if it were not stored."""
    refusals = await view.awaitable([wish if isinstance(wish, Submission) else None for wish in wishes])
    return [
        wish if refusal is None else refusal_of(refusal) for wish, refusal in zip(wishes, refusals, strict=True)
    ]  # fmt: skip


def refused(index: int, refusal: Refusal) -> BatchResult:
    """What becomes of a task that is refused."""
    return BatchResult(index=index, status=refusal.status, problem=refusal.problem)


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


_JSON: Final = "application/json"


class Items(Struct, frozen=True, forbid_unknown_fields=True):
    """A batch whose tasks are yet to be read."""

    tasks: list[Raw]


_DECODE: Final = msgspec.json.Decoder(BatchRequest | list[SubmitRequest]).decode
_DECODE_ITEMS: Final = msgspec.json.Decoder(Items | list[Raw]).decode
_DECODE_ANY: Final = msgspec.json.Decoder().decode


async def submit_batch(call: Call[Empty, None]) -> Answer | ASGIApp:
    """Store up to 1,000 tasks; each succeeds or fails by itself, and those stored are durable when this is answered.

    The body is `{"tasks": […]}` or the array alone. The answer has a result for each task, in their order, and its
    status is 200, or 207 if any was rejected.

    With the content type `application/x-ndjson` the body is a stream of any number of lines, each a task. They are
    stored as they arrive and answered in the same form, a result per line with status 200 for the whole: read the
    answers while you send, or the server stops reading. Blank lines are skipped, and a line that is wrong fails alone.
    """
    view = call.view
    if _is_lines(call):
        return LineStream(view, traceparent_of(call.scope["headers"]))
    body = await view.bodies.read(call.scope, call.receive, view.settings.batch_limit)
    items = await read_batch(body)
    results = await submit_all(view, items, traceparent_of(call.scope["headers"]))
    rejected = len([result for result in results if result.status >= 400])
    answer = BatchAnswer(results=results, accepted=len(results) - rejected, rejected=rejected)
    return Answer(answer, status=207 if rejected else 200)


async def read_batch(body: bytes) -> Sequence[Item]:
    """The tasks in a body; refused as a whole if they cannot be told apart."""
    requests = await asyncio.to_thread(_read_together, body) if len(body) > LARGE else _read_together(body)
    if requests is None:
        return await asyncio.to_thread(_read_one_by_one, body)
    _check_size(len(requests))
    return requests


def _read_together(body: bytes) -> Sequence[Item] | None:
    """The tasks in a body; None if anything is wrong with any of them, which is rare."""
    try:
        batch = _DECODE(body)
        check_depth(body)
        check_unambiguous(body, _DECODE_ANY(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Refusal):
        return None
    return batch.tasks if isinstance(batch, BatchRequest) else batch


def _read_one_by_one(body: bytes) -> Sequence[Item]:
    raws = _raws(body)
    _check_size(len(raws))
    return [read_one(raw) for raw in raws]


def _raws(body: bytes) -> list[Raw]:
    try:
        items = _DECODE_ITEMS(body)
    except msgspec.ValidationError as error:
        raise invalid_value(error, shape=BatchRequest) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal("invalid-json", f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise Refusal("invalid-json", "the body is nested too deeply; flatten it") from None
    # Whether the batch itself names a key twice; what is inside of its tasks is looked at one by one.
    if isinstance(items, Items) and msgspec.json.encode(items).count(b":") != body.count(b":"):
        raise Refusal("invalid-json", "the body has the key 'tasks' twice; keep one of them", field="tasks")
    return items.tasks if isinstance(items, Items) else items


def _check_size(count: int) -> None:
    if count > BATCH_LIMIT:
        remedy = f"send several batches, or a stream of lines as {task_endpoints.LINES}"
        raise Refusal(
            "too-large",
            f"tasks has {count:,} entries, over the limit of {BATCH_LIMIT:,}; {remedy}",
            field="tasks",
            remedy=remedy,
        )


def _is_lines(call: Call[Empty, None]) -> bool:
    media_type = next((value for name, value in call.scope["headers"] if name == b"content-type"), b"")
    return media_type.partition(b";")[0].strip().lower() == task_endpoints.LINES.encode()


ENDPOINTS = TASKS.of(serve(task_endpoints.SUBMIT_BATCH, submit_batch))
