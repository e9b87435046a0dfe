"""Endpoints with what answers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope

from fairlead.server.auth.principal import Principal
from fairlead.server.caller_view import View
from fairlead.server.state import Hub
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
    def hub(self) -> Hub:
        """Everything; refused to a caller who is bound to a tenant."""
        return self.view.hub

    @property
    def principal(self) -> Principal:
        """Who calls."""
        return self.view.principal


class Answer(Struct, frozen=True):
    """What an endpoint says: a status and a body that becomes JSON."""

    body: Struct | Mapping[str, Any] | None = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


Handler: TypeAlias = Callable[[Call[Q, B]], Awaitable[Answer | ASGIApp]]
"""Answers a call, or gives an ASGI application that does, for what is streamed."""


@dataclass(frozen=True, kw_only=True)
class Served(Endpoint[Q, B]):
    """An endpoint of this server."""

    handler: Handler[Q, B]


def serve(endpoint: Endpoint[Q, B], handler: Handler[Q, B]) -> Served[Q, B]:
    """An endpoint, answered by a handler."""
    return Served(**{each.name: getattr(endpoint, each.name) for each in fields(Endpoint)}, handler=handler)
