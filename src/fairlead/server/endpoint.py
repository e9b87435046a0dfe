"""An endpoint as data: what it is called, who may call it, what it takes and gives.

The routes, the OpenAPI document, the reference pages and the test of all roles are made from the same table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope

from fairlead.server.hub import Hub
from fairlead.server.principal import Principal, Role

Q = TypeVar("Q")
B = TypeVar("B")


class Empty(Struct, frozen=True, forbid_unknown_fields=True):
    """No fields at all."""


class Anything(Struct, frozen=True):
    """Whatever a query string says, unread: the business of the page that is answered."""


class Call(Struct, Generic[Q, B], frozen=True):
    """One request, checked and decoded."""

    hub: Hub
    principal: Principal
    path: Mapping[str, str]
    query: Q
    body: B
    scope: Scope
    receive: Receive


class Answer(Struct, frozen=True):
    """What an endpoint says: a status and a body that becomes JSON."""

    body: Struct | Mapping[str, Any] | None = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Media:
    """The type of an answer that is not JSON."""

    type: str


Handler: TypeAlias = Callable[[Call[Q, B]], Awaitable[Answer | ASGIApp]]
"""Answers a call, or gives an ASGI application that does, for what is streamed."""


@dataclass(frozen=True, kw_only=True)
class Endpoint(Generic[Q, B]):
    """One method of one path."""

    method: str
    path: str
    handler: Handler[Q, B]
    summary: str
    """One line; the handler's docstring says more."""
    role: Role | None
    """Who may call it; None for everybody."""
    query: type[Q] = field(default=Empty)  # type: ignore[assignment]
    """The query parameters, as a Struct of plain values."""
    body: type[B] | None = None
    """The JSON body, as a Struct; None for no body, or one that the handler reads itself."""
    bodies: Mapping[str, Any] = field(default_factory=dict)
    """The types of the body by media type, for what is said of the endpoint only: where the handler reads the body
    itself, or `body` says too little. A tuple of types is a choice."""
    body_optional: bool = False
    """Whether no body at all means the same as an empty object."""
    body_limit: int | None = None
    """The largest body, in bytes; None for the limit of single requests."""
    answers: Mapping[int, Any]
    """The types of the answers by status, without the problems that any endpoint may answer. A tuple of types is a
    choice, None an answer without a body."""
    problems: tuple[int, ...] = ()
    """The statuses of the problems that are peculiar to it."""
