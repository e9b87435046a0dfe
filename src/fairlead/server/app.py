"""The application: endpoints become routes, errors become problem documents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.server import (
    batch,
    circuits,
    dashboard,
    dead_letters,
    doctor,
    events,
    fleet,
    health,
    metrics,
    operations,
    queues,
    scaling,
    schedules,
    session,
    stats,
    tasks,
    workers,
)
from fairlead.server.bodies import Decoder, Disconnected
from fairlead.server.direct import direct_of
from fairlead.server.documents import Documents
from fairlead.server.endpoint import Answer, Anything, Call, Endpoint
from fairlead.server.headers import SafeHeaders, head_of
from fairlead.server.hub import Hub
from fairlead.server.queries import parse_query
from fairlead.server.refusals import Refusal, refusal_for
from fairlead.wire.problems import MEDIA_TYPE

ENDPOINTS: Final[tuple[Endpoint[Any, Any], ...]] = Documents(
    (
        *tasks.ENDPOINTS,
        *batch.ENDPOINTS,
        *dead_letters.ENDPOINTS,
        *operations.ENDPOINTS,
        *schedules.ENDPOINTS,
        *queues.ENDPOINTS,
        *circuits.ENDPOINTS,
        *fleet.ENDPOINTS,
        *stats.ENDPOINTS,
        *scaling.ENDPOINTS,
        *doctor.ENDPOINTS,
        *health.ENDPOINTS,
        *metrics.ENDPOINTS,
        *workers.ENDPOINTS,
        *session.ENDPOINTS,
        *events.ENDPOINTS,
    )
).endpoints
"""The whole API."""

_ENCODE: Final = msgspec.json.Encoder().encode
_JSON: Final = b"application/json"
_PROBLEM: Final = MEDIA_TYPE.encode()


def build(hub: Hub, pages: Sequence[Endpoint[Any, Any]] = dashboard.ENDPOINTS) -> ASGIApp:
    """The application of a server: its API, and the pages of its dashboard."""
    by_path: dict[str, list[Endpoint[Any, Any]]] = defaultdict(list)
    for endpoint in (*ENDPOINTS, *pages):
        by_path[endpoint.path].append(endpoint)
    resources = {path: Resource(hub, endpoints) for path, endpoints in by_path.items()}
    application = Application(resources, {"/ws": events.Socket(hub)})
    return SafeHeaders(application, hub.stopping)


class Application:
    """Leads a request to its resource."""

    def __init__(self, resources: Mapping[str, Resource], sockets: Mapping[str, ASGIApp]) -> None:
        # A path without parameters is found at once; the router, which tries one after the other, knows the rest.
        self._exact = {
            (method, path): desk
            for path, resource in resources.items()
            if "{" not in path
            for method, desk in resource.desks.items()
        }
        routes = [
            *(Route(path, resource) for path, resource in resources.items()),
            *(WebSocketRoute(path, socket) for path, socket in sockets.items()),
        ]
        self._router = Router(routes, redirect_slashes=False, default=no_such_path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        desk = self._exact.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        await (desk or self._router)(scope, receive, send)


class Resource:
    """All methods of one path."""

    def __init__(self, hub: Hub, endpoints: Sequence[Endpoint[Any, Any]]) -> None:
        self.desks = {endpoint.method: Desk(hub, endpoint) for endpoint in endpoints}
        if "GET" in self.desks:
            self.desks["HEAD"] = self.desks["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        desk = self.desks.get(scope["method"])
        if desk is not None:
            await desk(scope, receive, send)
            return
        allowed = ", ".join(self.desks)
        detail = f"{scope['method']} is not allowed on {scope['path']}; use {allowed}"
        await refuse(Refusal("method-not-allowed", detail, headers=(("allow", allowed),)), send)


async def no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request for a path that is none of ours."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": "no such path"})
        return
    await refuse(Refusal("not-found", f"there is no {scope['path']}; /docs lists what there is"), send)


class Desk:
    """Answers the requests for one endpoint."""

    def __init__(self, hub: Hub, endpoint: Endpoint[Any, Any]) -> None:
        self._hub = hub
        self._endpoint = endpoint
        self._limit = endpoint.body_limit or hub.settings.body_limit
        self._no_query = None if _asks(endpoint.query) else endpoint.query()
        self._decode = Decoder(endpoint.body, optional=endpoint.body_optional) if endpoint.body is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except Disconnected:
            return
        except Exception as error:
            await refuse(refusal_for(error, f"{scope['method']} {scope['path']}"), send)
            return
        if not isinstance(answer, Answer):
            await answer(scope, receive, send)
            return
        body = b"" if answer.body is None else _ENCODE(answer.body)
        direct = direct_of(scope)
        if direct is not None and direct.open and not answer.headers:
            last = self._hub.stopping.is_set()
            direct.answer(answer.status, head_of(_JSON, scope["scheme"]), body, last=last)
        else:
            await say(send, answer.status, body, _JSON, answer.headers)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer | ASGIApp:
        endpoint, hub = self._endpoint, self._hub
        principal = await hub.gate.admit(scope, endpoint.role)
        body = None
        if self._decode is not None:
            body = await self._decode(await hub.bodies.read(scope, receive, self._limit))
        query = self._no_query if not scope["query_string"] or endpoint.query is Anything else None
        if query is None:
            query = parse_query(endpoint.query, scope["query_string"])
        return await endpoint.handler(Call(hub, principal, scope.get("path_params", {}), query, body, scope, receive))


def _asks(shape: type[Any]) -> bool:
    """Whether a query has parameters that must be given."""
    return any(field.required for field in msgspec.structs.fields(shape))


async def refuse(refusal: Refusal, send: Send) -> None:
    """Answer with a problem document."""
    await say(send, refusal.status, _ENCODE(refusal.problem), _PROBLEM, refusal.headers)


async def say(send: Send, status: int, body: bytes, media_type: bytes, headers: tuple[tuple[str, str], ...]) -> None:
    """Answer with a whole body."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", media_type),
                (b"content-length", b"%d" % len(body)),
                *((name.encode(), value.encode()) for name, value in headers),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
