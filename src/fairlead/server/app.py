"""The application: endpoints become routes, errors become problem documents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.server.auth.credentials import SAFE_METHODS, Principal
from fairlead.server.caller_view import View, views_of
from fairlead.server.docs.pages import ENDPOINTS
from fairlead.server.endpoint import Answer, Call, Served
from fairlead.server.http.bodies import Decoder, Disconnected
from fairlead.server.http.problems import Refusal, refusal_for
from fairlead.server.http.response import SafeHeaders, direct_of, head_of, headers_of, warning_of
from fairlead.server.http.url import PathTable, parse_query, path_of
from fairlead.server.routes import dashboard, events
from fairlead.server.state import ServerState
from fairlead.wire.endpoint import MEDIA_TYPE, Anything

_ENCODE: Final = msgspec.json.Encoder().encode
_JSON: Final = b"application/json"
_PROBLEM: Final = MEDIA_TYPE.encode()


def build(state: ServerState, pages: Sequence[Served[Any, Any]] = dashboard.PAGES) -> ASGIApp:
    """The application of a server: its API, and the pages of its dashboard."""
    by_path: dict[str, list[Served[Any, Any]]] = defaultdict(list)
    for endpoint in (*ENDPOINTS, *pages):
        by_path[endpoint.path].append(endpoint)
    view_of = views_of(state)
    resources = {path: Resource(state, endpoints, view_of) for path, endpoints in by_path.items()}
    application = Application(resources, {"/ws": events.EventSocket(state)})
    return SafeHeaders(application, state.stopping)


class Application:
    """Leads a request to its resource."""

    def __init__(self, resources: Mapping[str, Resource], sockets: Mapping[str, ASGIApp]) -> None:
        self._resources = PathTable(resources)
        self._sockets = PathTable(sockets)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            socket = self._sockets.find(path_of(scope))
            return (no_such_path if socket is None else socket[0])(scope, receive, send)
        found = self._resources.find(path_of(scope))
        if found is None:
            return no_such_path(scope, receive, send)
        resource, scope["path_params"] = found
        return resource(scope, receive, send)


class Resource:
    """All methods of one path."""

    def __init__(
        self, state: ServerState, endpoints: Sequence[Served[Any, Any]], view_of: Callable[[Principal], View]
    ) -> None:
        self._desks = {endpoint.method: EndpointHandler(state, endpoint, view_of) for endpoint in endpoints}
        if "GET" in self._desks:
            self._desks["HEAD"] = self._desks["GET"]

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        desk = self._desks.get(scope["method"])
        if desk is not None:
            return desk(scope, receive, send)
        allowed = ", ".join(self._desks)
        detail = f"{scope['method']} is not allowed on {scope['path']}; use {allowed}"
        return refuse(Refusal("method-not-allowed", detail, headers=(("allow", allowed),)), send)


async def no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request for a path that is none of ours."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": "not found"})
        return
    await refuse(Refusal("not-found", f"there is no endpoint {scope['path']}; /docs lists all endpoints"), send)


class EndpointHandler:
    """Answers the requests for one endpoint."""

    def __init__(self, state: ServerState, endpoint: Served[Any, Any], view_of: Callable[[Principal], View]) -> None:
        self._state = state
        self._endpoint = endpoint
        self._view_of = view_of
        self._changes = endpoint.method not in SAFE_METHODS
        self._limit = endpoint.body_limit or state.settings.body_limit
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
            last = self._state.stopping.is_set()
            direct.answer(answer.status, head_of(_JSON, scope["scheme"]), body, last=last)
        else:
            await say(send, answer.status, body, _JSON, answer.headers)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer | ASGIApp:
        endpoint, state = self._endpoint, self._state
        # The body comes when the caller sends it, which is none of the store's time.
        allowance = state.allowance()
        principal = state.gate.admit_at_once(headers_of(scope), endpoint.role, changes=self._changes)
        if principal is None:
            with allowance:
                principal = await state.gate.admit(scope, endpoint.role)
        body = None
        ignored: tuple[str, ...] = ()
        if self._decode is not None:
            body, ignored = await self._decode.read(await state.bodies.read(scope, receive, self._limit))
        query = self._no_query if not scope["query_string"] or endpoint.query is Anything else None
        if query is None:
            query = parse_query(endpoint.query, scope["query_string"])
        call = Call(self._view_of(principal), scope["path_params"], query, body, scope, receive)
        if endpoint.patient:
            answer = await endpoint.handler(call)
        else:
            with allowance:
                answer = await endpoint.handler(call)
        if ignored and isinstance(answer, Answer):
            return replace(answer, headers=(*answer.headers, warning_of(ignored)))
        return answer


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
