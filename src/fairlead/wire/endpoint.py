"""An endpoint as data: where it is, who may call it, what it takes and gives.

The server routes the same objects that the client calls. The OpenAPI document, the reference pages and the test of all
roles are made from them too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

from msgspec import Struct

from fairlead.core.errors import FairleadError
from fairlead.core.instant import Instant
from fairlead.core.tenancy import Role
from fairlead.core.validation import is_unicode

Q = TypeVar("Q")
B = TypeVar("B")
T = TypeVar("T")

_VARIABLE: Final = re.compile(r"\{(\w+)(?::\w+)?\}")


class Empty(Struct, frozen=True, forbid_unknown_fields=True):
    """No fields at all."""


class Anything(Struct, frozen=True):
    """Whatever a query string says, unread: the business of the page that is answered."""


@dataclass(frozen=True, slots=True)
class Media:
    """The type of an answer that is not JSON."""

    type: str
    messages: tuple[Any, ...] = ()
    """The types of the messages of a stream, and of their data."""


@dataclass(frozen=True, kw_only=True)
class Endpoint(Generic[Q, B]):
    """One method of one path."""

    method: str
    path: str
    summary: str
    """One line; the docstring of what answers it says more."""
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
    patient: bool = False
    """Whether it may wait, for work, for a task's end or for the rest of a body, or looks at much: any other answer
    comes within the time of one call to the store."""
    problems: tuple[int, ...] = ()
    """The statuses of the problems that are peculiar to it."""
    calls: str = ""
    """The method of a service that answers it, such as `circuits.open`, which takes what the path names; empty if the
    server has a handler for it."""
    shows: Callable[[Mapping[str, str], Any, Instant], Struct] | None = None
    """Makes the answer of what that method returned: given what the path names, that, and the time."""
    about: str = ""
    """What is said of it beside the summary, if no handler says so."""

    @property
    def variables(self) -> list[str]:
        """The names in the path that stand for values."""
        return _VARIABLE.findall(self.path)

    @property
    def plain_path(self) -> str:
        """The path without the converters of its variables."""
        return _VARIABLE.sub(r"{\1}", self.path)

    def path_to(self, **values: str) -> str:
        """The path of one thing, with the values of all its variables."""
        return _VARIABLE.sub(lambda variable: quote(values[variable[1]], safe=""), self.path)


class Ask(Protocol):
    """Calls an endpoint of a server, and raises what it answers as an error."""

    async def __call__(
        self,
        endpoint: Endpoint[Any, Any],
        kind: type[T],
        body: object = None,
        /,
        *,
        query: Mapping[str, str] | None = None,
        subject: str = "",
        wait: float | None = None,
        **path: str,
    ) -> T:
        """The body of the answer; `subject` is what it is about, and `wait` how long the server is asked to wait."""
        ...

    async def answer(
        self,
        endpoint: Endpoint[Any, Any],
        kind: type[T],
        body: object = None,
        /,
        *,
        query: Mapping[str, str] | None = None,
        subject: str = "",
        wait: float | None = None,
        **path: str,
    ) -> tuple[int, T]:
        """The same, behind its status."""
        ...


def named(name: object, missing: FairleadError) -> str:
    """A name that can be a part of a path; raises `missing` for one that nothing can have."""
    if not isinstance(name, str) or not name or not is_unicode(name):
        raise missing
    return name


MEDIA_TYPE: Final = "application/problem+json"

Value: TypeAlias = str | int | float | bool | None
"""A value that is short enough to be repeated."""


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, for programs (`type`, `status`, `field`) and for people (`title`, `detail`, `remedy`)."""

    type: str
    """Where the kind of problem is explained, relative to the server."""
    title: str
    status: int
    detail: str
    """What went wrong this time: the thing, its value and the remedy."""
    field: str | None = None
    """The field or parameter that is at fault."""
    value: Value = None
    """The value at fault, where it is known and short."""
    remedy: str | None = None
    """What to do about it."""
    position: int | None = None
    """Where in a query the mistake begins, in characters from 0."""
    pointer: str | None = None
    """Two lines: the query, and carets under the mistake."""
