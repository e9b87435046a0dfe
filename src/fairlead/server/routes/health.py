"""Whether the server is alive, and ready for requests."""

from __future__ import annotations

import asyncio
from typing import Final, Literal

from msgspec import Struct

from fairlead._version import __version__
from fairlead.core.errors import StoreError
from fairlead.server.endpoint import Answer, Call, Served
from fairlead.server.http.problems import Refusal
from fairlead.storage.protocol import Journaled
from fairlead.wire.endpoint import Empty

PATIENCE: Final = 2.0
"""How long the store may take to answer, in seconds."""


class Health(Struct, frozen=True, kw_only=True):
    """The server is well."""

    status: Literal["ok"] = "ok"
    version: str = __version__


async def healthz(call: Call[Empty, None]) -> Answer:
    """Say that the server is alive, whether or not it can reach its store."""
    return Answer(Health())


async def readyz(call: Call[Empty, None]) -> Answer:
    """Say whether the server can reach its store and is not shutting down; the problem says why it is not ready."""
    if call.state.stopping.is_set():
        raise _unready("the server is shutting down; ask another one")
    store = call.state.engine.store
    try:
        async with asyncio.timeout(PATIENCE):
            # The cheapest question that every store must really answer; there are no such records.
            await store.scan("readiness")
            lost = await store.loss() if isinstance(store, Journaled) else None
    except TimeoutError:
        raise _unready(f"the store did not answer within {PATIENCE:g} s; see whether it is up and reachable") from None
    except StoreError as error:
        raise _unready(str(error)) from None
    if lost is not None:
        raise _unready(lost)
    return Answer(Health())


def _unready(reason: str) -> Refusal:
    return Refusal("store-unavailable", reason, headers=(("retry-after", "1"),))


ENDPOINTS = (
    Served(
        method="GET",
        path="/healthz",
        handler=healthz,
        summary="Check that the server is alive",
        role=None,
        answers={200: Health},
    ),
    Served(
        method="GET",
        path="/readyz",
        handler=readyz,
        summary="Check that the server is ready",
        role=None,
        answers={200: Health},
        problems=(503,),
    ),
)
