"""Calls of a server's endpoints, and its answers as values or errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from fairlead.client.http.problems import decoded
from fairlead.client.http.transport import PATIENCE, Transport
from fairlead.wire.endpoint import Endpoint

T = TypeVar("T")

_LONG: Final = 120.0
"""How long an endpoint that looks at much may take, in seconds."""

_encode: Final = msgspec.json.Encoder().encode


class ServerCalls:
    """Calls the endpoints of one server: an `Ask`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

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
        _, answer = await self.answer(endpoint, kind, body, query=query, subject=subject, wait=wait, **path)
        return answer

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
        patience = PATIENCE + wait if wait is not None else _LONG if endpoint.patient else PATIENCE
        encoded = None if body is None else _encode(body)
        asked = None if query is None else dict(query)
        where = endpoint.path_to(**path) if path else endpoint.path
        reply = await self._transport.ask(endpoint.method, where, encoded, query=asked, patience=patience)
        return reply.status, decoded(reply, kind, self._transport.address, subject)
