"""Events over HTTP: a stream of server-sent events, and a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.core.errors import FairleadError, TaskNotFound
from fairlead.server.broadcast import LAGGED, Listening, Message
from fairlead.server.endpoint import Call, Endpoint, Media
from fairlead.server.hub import Hub
from fairlead.server.principal import Principal, Role
from fairlead.server.queries import parse_query
from fairlead.server.refusals import Refusal, invalid_value, refusal_of
from fairlead.server.tenancy import may_see
from fairlead.wire.events import Wanted, message_of, wanted_of

KEEPALIVE: Final = 15.0
"""Seconds of silence after which a stream shows that it is alive."""

TOO_SLOW: Final = 1013
GOING_AWAY: Final = 1001

_POSITION_LIMIT: Final = 64
_LAST_WORDS: Final = 1.0
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
    """Begin behind this event; the header Last-Event-ID, which browsers send by themselves, comes before it."""


class Subscribe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a listener says over a WebSocket to change which events it hears of."""

    types: list[str] = []
    queue: str | None = None
    task_id: str | None = None


async def stream(call: Call[EventsQuery, None]) -> ASGIApp:
    """Tell what happens, as server-sent events.

    Each has an `id`; a browser that lost the connection says the last one when it comes back, and is told what it
    missed, as far as that is kept: a few minutes, and some 10,000 events. Who takes events more slowly than they
    happen is told so and hung up on.
    """
    query = call.query
    wanted = await _wanted(call.hub, call.principal, query.types, query.queue, query.task_id)
    header = dict(call.scope["headers"]).get(b"last-event-id", b"").decode("latin-1")
    after = (header if 0 < len(header) <= _POSITION_LIMIT else None) or query.last_event_id
    return _Stream(call.hub, wanted, after)


class _Stream:
    def __init__(self, hub: Hub, wanted: Wanted, after: str | None) -> None:
        self._hub = hub
        self._wanted = wanted
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", _STREAM.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        async with self._hub.broadcast.listen(self._wanted, self._after) as listening:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": _HEAD, "more_body": True})
            if scope["method"] != "HEAD":
                await _first_of(self._tell(listening, send), _gone(receive), listening.over.wait())
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
    return b"event: feed.lagged\ndata: %s\n\n" % msgspec.json.encode(LAGGED) if listening.lagged else b""


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


async def _wanted(hub: Hub, principal: Principal, types: str | None, queue: str | None, task_id: str | None) -> Wanted:
    wanted = wanted_of([word.strip() for word in (types or "").split(",") if word.strip()], queue, task_id)
    await _check_tenant(hub, principal, wanted)
    return wanted


async def _check_tenant(hub: Hub, principal: Principal, wanted: Wanted) -> None:
    """Events do not say whose task they are about: who may see one tenant's tasks only must name one of them."""
    if principal.tenant is None:
        return
    if wanted.task_id is None:
        remedy = "name one with task_id, or use a key that is not bound to a tenant"
        raise Refusal("forbidden", f"this key may hear of tasks of its own tenant only; {remedy}", remedy=remedy)
    if not may_see(principal, await hub.engine.get(wanted.task_id)):
        raise TaskNotFound(wanted.task_id)


class Socket:
    """The WebSocket: tells what happens, and takes other wishes at any time."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # The word that somebody connects.
        try:
            principal = await self._hub.gate.admit_websocket(scope, Role.READ)
            query: EventsQuery = parse_query(EventsQuery, scope["query_string"])
            wanted = await _wanted(self._hub, principal, query.types, query.queue, query.task_id)
        except Refusal as refusal:
            await _refuse(refusal, scope, send)
            return
        except FairleadError as error:
            await _refuse(refusal_of(error), scope, send)
            return
        async with self._hub.broadcast.listen(wanted, query.last_event_id) as listening:
            await send({"type": "websocket.accept"})
            heeding = self._heed(listening, principal, receive, send)
            with contextlib.suppress(OSError):
                await _first_of(self._tell(listening, send), heeding, listening.over.wait())
            code, reason = (TOO_SLOW, LAGGED) if listening.lagged else (GOING_AWAY, "the server stops")
            # There may be nobody left to hear it, or nobody who listens.
            with contextlib.suppress(TimeoutError, OSError, RuntimeError):
                async with asyncio.timeout(_LAST_WORDS):
                    await send({"type": "websocket.close", "code": code, "reason": reason})

    async def _tell(self, listening: Listening, send: Send) -> None:
        async for messages in _batches(listening):
            for message in messages:
                await send({"type": "websocket.send", "text": message.json.decode()})

    async def _heed(self, listening: Listening, principal: Principal, receive: Receive, send: Send) -> None:
        """Take the listener's wishes until it leaves; a wish that cannot be met is answered, and the old one stays."""
        while (message := await receive())["type"] == "websocket.receive":
            text = message.get("text") or (message.get("bytes") or b"").decode(errors="replace")
            now = self._hub.engine.clock.now()
            if text.strip() == "ping":
                answer = message_of("pong", now, {})
            else:
                try:
                    await self._hub.broadcast.change(listening, await self._subscribed(principal, text))
                    answer = message_of("subscribed", now, _shown(listening.wanted))
                except Refusal as refusal:
                    answer = message_of("error", now, refusal.problem)
                except FairleadError as error:
                    answer = message_of("error", now, refusal_of(error).problem)
            await send({"type": "websocket.send", "text": answer.decode()})

    async def _subscribed(self, principal: Principal, text: str) -> Wanted:
        try:
            wish = msgspec.json.decode(text, type=Subscribe)
        except msgspec.ValidationError as error:
            raise invalid_value(error) from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise Refusal(
                "invalid-json",
                f'the message is not valid JSON: {error}; say {{"types": ["task.*"]}}, with "queue" or "task_id"',
            ) from None
        wanted = wanted_of(wish.types, wish.queue, wish.task_id)
        await _check_tenant(self._hub, principal, wanted)
        return wanted


def _shown(wanted: Wanted) -> dict[str, Any]:
    return {"types": sorted(wanted.types), "queue": wanted.queue, "task_id": wanted.task_id}


async def _refuse(refusal: Refusal, scope: Scope, send: Send) -> None:
    """Answer with a problem instead of opening a WebSocket."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": str(refusal)[:120]})
        return
    headers = [(b"content-type", b"application/problem+json")]
    headers += [(name.encode(), value.encode()) for name, value in refusal.headers]
    await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": msgspec.json.encode(refusal.problem)})


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/events",
        handler=stream,
        summary="Hear what happens",
        role=Role.READ,
        query=EventsQuery,
        answers={200: Media(_STREAM)},
        problems=(404,),
    ),
)
