"""A worker's metrics over HTTP: one page on a port of its own, for Prometheus.

It is served from the worker's event loop by a few lines of our own: a worker has no web server installed, and one page
needs none.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from fairlead.core.errors import InvalidSettings
from fairlead.core.validation import bad_setting, check_count, check_text
from fairlead.engine.metrics.collector import Metrics
from fairlead.engine.metrics.names import MEDIA_TYPE, render
from fairlead.engine.runtime.telemetry import Logger
from fairlead.worker.process import Service

log = Logger("fairlead.worker")

PATH: Final = "/metrics"

_LAST_PORT: Final = 65_535
_LONGEST_HEAD: Final = 16 * 1024
_PATIENCE: Final = 10.0
"""How long a request may take to arrive, in seconds."""


class Exposed:
    """A worker, and its metrics for as long as it runs. It is a `fairlead.worker.process.Service`."""

    def __init__(self, worker: Service, server: asyncio.Server) -> None:
        self._worker = worker
        self._server = server

    async def run(self) -> None:
        """Work, and answer, until the worker has left: how it drains is of interest too."""
        async with self._server:
            await self._worker.run()

    def leave(self) -> None:
        """Have the worker leave."""
        self._worker.leave()


async def listen(metrics: Metrics, host: str, port: int) -> asyncio.Server:
    """Show metrics at this address from now on. Port 0 takes one that is free."""
    check_text("metrics_host", host, refuse=bad_setting)
    check_count("metrics_port", port, 0, _LAST_PORT, bad_setting)
    try:
        server = await asyncio.start_server(
            lambda reader, writer: _answer(metrics, reader, writer), host, port, limit=_LONGEST_HEAD
        )
    except OSError as error:
        raise InvalidSettings(
            f"metrics cannot be shown at {host}:{port}: {error}; choose another metrics_host or metrics_port"
        ) from None
    log.info("serving metrics at http://%s:%d%s", host, server.sockets[0].getsockname()[1], PATH)
    return server


async def _answer(metrics: Metrics, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        async with asyncio.timeout(_PATIENCE):
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(_reply(metrics, head))
            await writer.drain()
    except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        # Whoever asked has gone, or asks for something else than a page.
        pass
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _reply(metrics: Metrics, head: bytes) -> bytes:
    method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if path != PATH.encode():
        status, body = "404 Not Found", f"there is only {PATH} here\n".encode()
    elif method not in (b"GET", b"HEAD"):
        status, body = "405 Method Not Allowed", b"use GET\n"
    else:
        status, body = "200 OK", render(metrics.collect_worker())
    kind = MEDIA_TYPE if status == "200 OK" else "text/plain; charset=utf-8"
    lines = (f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close", "", "")
    return "\r\n".join(lines).encode() + (b"" if method == b"HEAD" else body)
