"""What the server says about itself: the OpenAPI document and pages to read."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from fairlead.server.docs.openapi import document
from fairlead.server.docs.pages import STYLE, page
from fairlead.server.endpoint import Call, Served
from fairlead.wire.endpoint import Empty, Media


class Document(NamedTuple):
    """A document, ready to be sent."""

    body: bytes
    etag: str


class Documents:
    """The documents about a table of endpoints, themselves included; each made when it is first asked for."""

    def __init__(self, endpoints: Sequence[Served[Any, Any]]) -> None:
        self.endpoints: tuple[Served[Any, Any], ...] = (*endpoints, *self._own())

    async def openapi(self, call: Call[Empty, None]) -> Response:
        """This API as an OpenAPI 3.1 document, for programs. It changes only with the version of the server."""
        return sent(call, self._openapi, "application/json")

    async def docs(self, call: Call[Empty, None]) -> Response:
        """This page: every endpoint, every shape, and what each kind of problem means."""
        return sent(call, self._docs, "text/html")

    async def style(self, call: Call[Empty, None]) -> Response:
        """How the page looks."""
        return sent(call, self._style, "text/css")

    def _own(self) -> tuple[Served[Any, Any], ...]:
        handlers = (
            ("/openapi.json", self.openapi, "Get the OpenAPI document", dict[str, Any]),
            ("/docs", self.docs, "Read the documentation of the API", Media("text/html")),
            (STYLE, self.style, "Get the style sheet", Media("text/css")),
        )
        return tuple(
            Served(method="GET", path=path, handler=each, summary=summary, role=None, answers={200: kind, 304: None})
            for path, each, summary, kind in handlers
        )

    @functools.cached_property
    def _document(self) -> dict[str, Any]:
        return document(self.endpoints)

    @functools.cached_property
    def _openapi(self) -> Document:
        return copy_of(msgspec.json.encode(self._document))

    @functools.cached_property
    def _docs(self) -> Document:
        return copy_of(page(self._document).encode())

    @functools.cached_property
    def _style(self) -> Document:
        return copy_of((files("fairlead.server") / "docs.css").read_bytes())


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
