"""Answers held to what the OpenAPI document says of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import httpx
import jsonschema_rs
from starlette.routing import compile_path

from fairlead.server.docs.openapi import document
from fairlead.server.docs.pages import ENDPOINTS
from fairlead.wire.endpoint import MEDIA_TYPE

DOCUMENT = document(ENDPOINTS)
"""The whole API."""

_ROUTES = [(endpoint.method, compile_path(endpoint.path)[0], endpoint.plain_path) for endpoint in ENDPOINTS]


class ValidatingTransport(httpx.AsyncBaseTransport):
    """A transport that fails the test when an answer is not as declared."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        media = response.headers.get("content-type", "")
        if not media.startswith(("text/event-stream", "application/x-ndjson")):  # These are read as they come.
            await response.aread()
            check_answer(request.method, request.url.path, response.status_code, media, response.content)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def check_answer(method: str, path: str, status: int, media: str, body: bytes) -> None:
    """Fail unless this status, this media type and this shape are declared for the request."""
    asked = f"{method} {path}, answered with {status}"
    declared = _declared(method, path, status)
    assert declared is not None, f"{asked}: the status is not declared"
    content: Mapping[str, Any] = declared.get("content", {})
    if method == "HEAD" or not content:
        assert method == "HEAD" or not body, f"{asked}: no body is declared"
        return
    media = media.partition(";")[0]
    assert media in content, f"{asked}: {media!r} is not declared, only {', '.join(content)}"
    if media in ("application/json", MEDIA_TYPE):
        validator_of(content[media]["schema"]).validate(json.loads(body))


def validator_of(schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
    """What holds a value to a schema of the document."""
    return _validator(json.dumps(schema))


@functools.cache
def _validator(schema: str) -> jsonschema_rs.Validator:
    whole = {**json.loads(schema), "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True)


def _declared(method: str, path: str, status: int) -> Mapping[str, Any] | None:
    shared: Mapping[str, Any] = DOCUMENT["components"]["responses"]
    # A path without parameters goes before one with them.
    matching = {plain for _, pattern, plain in _ROUTES if pattern.match(path)}
    paths = matching & {path} or matching
    known = [plain for plain in paths if _method(method) in DOCUMENT["paths"][plain]]
    if not known:  # A path or a method that is none of ours.
        return shared[f"Problem{405 if paths else 404}"] if status in (404, 405) else None
    for plain in known:
        found: Mapping[str, Any] | None = DOCUMENT["paths"][plain][_method(method)]["responses"].get(str(status))
        if found is not None:
            return shared[found["$ref"].rpartition("/")[2]] if "$ref" in found else found
    return None


def _method(method: str) -> str:
    return "get" if method == "HEAD" else method.lower()
