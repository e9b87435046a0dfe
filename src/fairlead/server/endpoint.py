"""Endpoints with what answers them: a handler, or the method of a service that they name."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from msgspec import Raw, Struct
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope

from fairlead.core.errors import InvalidTask, TaskNotFound
from fairlead.core.identity import TaskId, check_name, parse_task_id
from fairlead.server.auth.credentials import Principal
from fairlead.server.caller_view import View
from fairlead.server.http.problems import Refusal
from fairlead.server.state import ServerState
from fairlead.wire.endpoint import Endpoint

Q = TypeVar("Q")
B = TypeVar("B")


class Call(Struct, Generic[Q, B], frozen=True):
    """One request, checked and decoded."""

    view: View
    """What there is of the server for the caller."""
    path: Mapping[str, str]
    query: Q
    body: B
    scope: Scope
    receive: Receive

    @property
    def state(self) -> ServerState:
        """Everything; refused to a caller who is bound to a tenant."""
        return self.view.state

    @property
    def principal(self) -> Principal:
        """Who calls."""
        return self.view.principal


class Answer(Struct, frozen=True):
    """What an endpoint says: a status and a body that becomes JSON."""

    body: Struct | Mapping[str, Any] | Raw | None = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


Handler: TypeAlias = Callable[[Call[Q, B]], Awaitable[Answer | ASGIApp]]
"""Answers a call, or gives an ASGI application that does, for what is streamed."""


class EndpointGroup(NamedTuple):
    """Endpoints that are told of together."""

    name: str
    """What programs know the group by: its tag, and the beginning of its operations' ids."""
    about: str

    def of(self, *endpoints: Served[Any, Any]) -> tuple[Served[Any, Any], ...]:
        """Endpoints, as those of this group."""
        return tuple(replace(each, group=self) for each in endpoints)


_NO_GROUP: Final = EndpointGroup("", "")


@dataclass(frozen=True, kw_only=True)
class Served(Endpoint[Q, B]):
    """An endpoint of this server."""

    handler: Handler[Q, B]
    name: str = ""
    """What programs know it by in its group; empty for the name of the handler."""
    group: EndpointGroup = _NO_GROUP


def serve(endpoint: Endpoint[Q, B], handler: Handler[Q, B], name: str = "") -> Served[Q, B]:
    """An endpoint, answered by a handler."""
    own = {each.name: getattr(endpoint, each.name) for each in fields(Endpoint)}
    return Served(**own, handler=handler, name=name)


_SHOWN: Final = 64


def task_id_of(call: Call[Any, Any]) -> TaskId:
    """The id in the path; what cannot be one is the id of no task."""
    text = call.path["task_id"]
    try:
        return parse_task_id(text)
    except InvalidTask:
        raise TaskNotFound(repr(text[:_SHOWN])) from None


def named(call: Call[Any, Any], what: str) -> str:
    """The name in the path; what cannot be one is the name of nothing."""
    name = call.path[what]
    try:
        return check_name(what, name)
    except InvalidTask:
        raise Refusal(
            "not-found",
            f"{what} {name[:_SHOWN]!r} not found: that is not a valid name; check the name",
            field=what,
            remedy="check the name",
        ) from None


def called(api: ModuleType) -> tuple[Served[Any, Any], ...]:
    """The endpoints of an API, such as `fairlead.admin.circuits.api`, that name a method of a service."""
    return tuple(
        serve(each, _handler(name.lower(), each))
        for name, each in vars(api).items()
        if isinstance(each, Endpoint) and each.calls
    )


def _handler(name: str, endpoint: Endpoint[Any, Any]) -> Handler[Any, Any]:
    """What calls the service and shows what it returns."""
    thing, method = endpoint.calls.split(".")

    async def answer(call: Call[Any, Any]) -> Answer:
        values = {each: _value(call, each) for each in endpoint.variables}
        result = await _service(call, thing, method)(*values.values())
        return Answer(_shown(endpoint, values, result, call))

    answer.__name__ = name
    answer.__doc__ = endpoint.about
    return answer


def _service(call: Call[Any, Any], thing: str, method: str) -> Callable[..., Awaitable[Any]]:
    """The method, as it is there for the caller: what nobody has opened to tenants is refused to them."""
    own = getattr(call.view.engine, thing, None)
    found: Callable[..., Awaitable[Any]] = getattr(
        own if hasattr(own, method) else getattr(call.state.engine, thing), method
    )
    return found


def _value(call: Call[Any, Any], variable: str) -> str:
    """What the path names; the name of a worker may be anything."""
    return call.path[variable] if variable == "worker_id" else named(call, variable)


def _shown(endpoint: Endpoint[Any, Any], values: dict[str, str], result: Any, call: Call[Any, Any]) -> Struct:
    if endpoint.shows is None:
        raise TypeError(f"{endpoint.path} names {endpoint.calls} and does not say how its answer is shown")
    return endpoint.shows(values, result, call.view.now)


class Document(NamedTuple):
    """A document, ready to be sent."""

    body: bytes
    etag: str


def copy_of(body: bytes) -> Document:
    """A document from its bytes."""
    return Document(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def sent(call: Call[Any, None], copy: Document, media: str, more: Mapping[str, str] | None = None) -> Response:
    """The document with these headers, or 304 for a caller that has it."""
    headers = {"etag": copy.etag, "cache-control": "no-cache", **(more or {})}
    known = b",".join(value for name, value in call.scope["headers"] if name == b"if-none-match").decode("latin-1")
    if copy.etag in (each.strip().removeprefix("W/") for each in known.split(",")) or known.strip() == "*":
        return Response(status_code=304, headers=headers)
    return Response(copy.body, media_type=media, headers=headers)
