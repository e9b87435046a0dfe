"""Which protocols a server's connections have: the short ways, or the plain one with a uvicorn that has other parts."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from typing import Any, Final

import uvicorn
from msgspec import Struct
from starlette.types import ASGIApp

from fairlead.server.http.connections import Peers
from fairlead.server.http.relay import Relay, Relayed
from fairlead.server.http.submit_batcher import Together

log = logging.getLogger("fairlead.server")

SUPPORTED: Final = ">=0.47,<0.55"
"""The versions of uvicorn whose parts are known, as the extra says it."""

_BEHIND: Final = "auto"
"""What uvicorn itself would choose, for HTTP and for WebSockets."""
_LATER: Final = 5
"""How many seconds the clock of uvicorn is behind that of `Peers`, which counts."""


class Protocols(Struct, frozen=True):
    """What uvicorn makes connections of."""

    app: ASGIApp
    http: Callable[..., Any]
    ws: Any
    keep_alive: int
    """After how many idle seconds uvicorn itself may end a connection."""


def protocols_of(app: ASGIApp, together: Together, peers: Peers) -> Protocols:
    """The short ways if uvicorn has the parts that they build upon."""
    keep_alive = math.ceil(peers.settings.idle_seconds) + _LATER
    try:
        from fairlead.server.http.connection import Connection, Socket, rehearse

        rehearse()
    except Exception as error:
        _warn(f"{type(error).__name__}: {error}")
        behind = uvicorn.Config(app, http=_BEHIND, lifespan="off", log_config=None)
        behind.load()
        relay = functools.partial(Relay, behind=behind.http_protocol_class, peers=peers)
        return Protocols(Relayed(app), relay, _BEHIND, keep_alive)
    connection = functools.partial(Connection, together=together, peers=peers)
    return Protocols(app, connection, functools.partial(Socket, peers=peers), keep_alive)


@functools.cache
def _warn(reason: str) -> None:
    """Log it once."""
    log.warning(
        "uvicorn %s has other parts than this version of fairlead builds upon (%s); requests are served all the same, "
        "but take more processor time: install 'uvicorn%s'",
        uvicorn.__version__,
        reason,
        SUPPORTED,
    )
