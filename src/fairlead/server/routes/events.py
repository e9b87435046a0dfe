"""Events over HTTP: a stream of server-sent events, and a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.admin.stats import SystemMetrics
from fairlead.core.errors import FairleadError
from fairlead.core.tenancy import Role
from fairlead.engine.events.types import CircuitData, QueueData, SkippedData, WorkerData
from fairlead.server.caller_view import View
from fairlead.server.endpoint import Call, EndpointGroup, Served
from fairlead.server.http.problems import Refusal, invalid_value, refusal_of
from fairlead.server.http.url import parse_query
from fairlead.server.live.broadcast import LAGGED, Listening, Message
from fairlead.server.state import ServerState
from fairlead.wire.endpoint import Media
from fairlead.wire.events import EventMessage, TaskEventData, Wanted, message_of

MESSAGES: Final = (EventMessage, TaskEventData, WorkerData, QueueData, CircuitData, SkippedData, SystemMetrics)
"""What a message is made of: the message itself, and its data by the type of event."""

KEEPALIVE: Final = 15.0
"""Seconds of silence after which a stream shows that it is alive."""

REFUSED: Final = 1008
TOO_SLOW: Final = 1013
GOING_AWAY: Final = 1001

_POSITION_LIMIT: Final = 64
_LAST_WORDS: Final = 1.0
_REASON_LIMIT: Final = 120
"""Letters of a reason; a key's name in it is ASCII, and more than 123 bytes cannot be said."""
_HEAD: Final = b": events, oldest first\nretry: 1000\n\n"
_STREAM: Final = "text/event-stream"


class EventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events to hear of; all if nothing is said."""

    types: str | None = None
    """Types of events, separated by commas; `task.*` for all that begin so."""
    queue: str | None = None
    """Only tasks of this queue."""
    task_id: str | None = None
    """Only this task."""
    last_event_id: Annotated[str, Meta(max_length=_POSITION_LIMIT)] | None = None
    """Continue after this event; the header Last-Event-ID, which browsers send by themselves, takes precedence."""


class Subscribe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a listener says over a WebSocket to change which events it hears of."""

    types: list[str] = []
    queue: str | None = None
    task_id: str | None = None


async def stream(call: Call[EventsQuery, None]) -> ASGIApp:
    """Stream what happens, as server-sent events (SSE).

    Each has an `id`; a browser that reconnects sends the last one and gets the events that it missed, as far as they
    are kept: a few minutes, and some 10,000 events. A client that reads more slowly than events happen gets a last
    event that says so, and its connection is closed. A key that is bound to a tenant gets the events of that tenant's
    tasks, workers and queues.
    """
    query = call.query
    wanted = await _wanted(call.view, query.types, query.queue, query.task_id)
    header = dict(call.scope["headers"]).get(b"last-event-id", b"").decode("latin-1")
    after = (header if 0 < len(header) <= _POSITION_LIMIT else None) or query.last_event_id
    return _Stream(call.view, wanted, after)


class _Stream:
    def __init__(self, view: View, wanted: Wanted, after: str | None) -> None:
        self._view = view
        self._wanted = wanted
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", _STREAM.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        async with self._view.listen(self._wanted, self._after) as listening:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": _HEAD, "more_body": True})
            if scope["method"] != "HEAD":
                watch = listening.end_with(self._view.watch(scope, Role.READ))
                await _first_of(self._tell(listening, send), _gone(receive), watch, listening.over.wait())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS):
                    await send({"type": "http.response.body", "body": _farewell(listening), "more_body": False})

    async def _tell(self, listening: Listening, send: Send) -> None:
        async for messages in _batches(listening):
            body = b"".join(map(_lines, messages)) if messages else b": alive\n\n"
            await send({"type": "http.response.body", "body": body, "more_body": True})


def _lines(message: Message) -> bytes:
    name = b"" if message.position is None else b"id: %s\n" % message.position.encode()
    return b"%sevent: %s\ndata: %s\n\n" % (name, message.type.encode(), message.json)


def _farewell(listening: Listening) -> bytes:
    if listening.refusal is not None:
        return b"event: feed.refused\ndata: %s\n\n" % msgspec.json.encode(listening.refusal.problem)
    return b"event: feed.lagged\ndata: %s\n\n" % msgspec.json.encode(LAGGED) if listening.lagged else b""


def _reason(listening: Listening) -> tuple[int, str]:
    """The code and the reason with which a WebSocket is closed."""
    if listening.refusal is not None:
        return REFUSED, str(listening.refusal)[:_REASON_LIMIT]
    return (TOO_SLOW, LAGGED) if listening.lagged else (GOING_AWAY, "the server stops")


async def _batches(listening: Listening) -> AsyncIterator[list[Message]]:
    """What waits, as it comes; nothing at all when there is silence."""
    while True:
        try:
            async with asyncio.timeout(KEEPALIVE):
                messages = await listening.take()
        except TimeoutError:
            messages = []
        yield messages


async def _gone(receive: Receive) -> None:
    """Return when the caller has left."""
    while (await receive())["type"] not in ("http.disconnect", "websocket.disconnect"):
        pass


async def _first_of(*awaitables: Awaitable[object]) -> None:
    """Wait for the first to end, and end the others."""
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _wanted(view: View, types: str | None, queue: str | None, task_id: str | None) -> Wanted:
    return await view.wanted([word.strip() for word in (types or "").split(",") if word.strip()], queue, task_id)


class EventSocket:
    """The WebSocket: tells what happens, and takes other wishes at any time."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # The word that somebody connects.
        try:
            query, view, wanted = await self._state.in_time(self._admit(scope))
        except Refusal as refusal:
            await _refuse(refusal, scope, send)
            return
        except FairleadError as error:
            await _refuse(refusal_of(error), scope, send)
            return
        async with view.listen(wanted, query.last_event_id) as listening:
            await send({"type": "websocket.accept"})
            heeding = self._heed(listening, view, receive, send)
            with contextlib.suppress(OSError):
                watch = listening.end_with(view.watch(scope, Role.READ))
                await _first_of(self._tell(listening, send), heeding, watch, listening.over.wait())
            code, reason = _reason(listening)
            # There may be nobody left to hear it, or nobody who listens.
            with contextlib.suppress(TimeoutError, OSError, RuntimeError):
                async with asyncio.timeout(_LAST_WORDS):
                    await send({"type": "websocket.close", "code": code, "reason": reason})

    async def _admit(self, scope: Scope) -> tuple[EventsQuery, View, Wanted]:
        """What is asked, what there is for who asks, and what they may hear of it."""
        view = View(self._state, await self._state.gate.admit_websocket(scope, Role.READ))
        query: EventsQuery = parse_query(EventsQuery, scope["query_string"])
        return query, view, await _wanted(view, query.types, query.queue, query.task_id)

    async def _tell(self, listening: Listening, send: Send) -> None:
        async for messages in _batches(listening):
            for message in messages:
                await send({"type": "websocket.send", "text": message.json.decode()})

    async def _heed(self, listening: Listening, view: View, receive: Receive, send: Send) -> None:
        """Take the listener's wishes until it leaves; a wish that cannot be met is answered, and the old one stays."""
        while (message := await receive())["type"] == "websocket.receive":
            text = message.get("text") or (message.get("bytes") or b"").decode(errors="replace")
            now = view.now
            if text.strip() == "ping":
                answer = message_of("pong", now, {})
            else:
                try:
                    await view.listen_to(listening, await self._subscribed(view, text))
                    answer = message_of("subscribed", now, _shown(listening.wanted))
                except Refusal as refusal:
                    answer = message_of("error", now, refusal.problem)
                except FairleadError as error:
                    answer = message_of("error", now, refusal_of(error).problem)
            await send({"type": "websocket.send", "text": answer.decode()})

    async def _subscribed(self, view: View, text: str) -> Wanted:
        try:
            wish = msgspec.json.decode(text, type=Subscribe)
        except msgspec.ValidationError as error:
            raise invalid_value(error) from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise Refusal(
                "invalid-json",
                f'the message is not valid JSON: {error}; say {{"types": ["task.*"]}}, with "queue" or "task_id"',
            ) from None
        return await view.wanted(wish.types, wish.queue, wish.task_id)


def _shown(wanted: Wanted) -> dict[str, Any]:
    return {"types": sorted(wanted.types), "queue": wanted.queue, "task_id": wanted.task_id}


async def _refuse(refusal: Refusal, scope: Scope, send: Send) -> None:
    """Answer with a problem instead of opening a WebSocket."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": str(refusal)[:_REASON_LIMIT]})
        return
    headers = [(b"content-type", b"application/problem+json")]
    headers += [(name.encode(), value.encode()) for name, value in refusal.headers]
    await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": msgspec.json.encode(refusal.problem)})


ENDPOINTS = (
    *EndpointGroup("events", "Events over HTTP: a stream of server-sent events, and a WebSocket.").of(
        Served(
            method="GET",
            path="/api/v1/events",
            handler=stream,
            summary="Stream events",
            role=Role.READ,
            query=EventsQuery,
            answers={200: Media(_STREAM, MESSAGES)},
            problems=(404,),
        ),
    ),
)
