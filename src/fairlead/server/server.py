"""Running a server: from its first request to its last, without cutting one off."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
from collections.abc import Generator
from typing import Final, cast

import uvicorn

from fairlead.core.errors import InvalidSettings
from fairlead.engine.engine import Engine
from fairlead.engine.keys import Keyring
from fairlead.engine.metrics import Metrics
from fairlead.engine.sweep import Sweeper
from fairlead.server.app import build
from fairlead.server.binding import BACKLOG, Binding, Listeners
from fairlead.server.connection import Connection
from fairlead.server.gate import Gate
from fairlead.server.hub import Hub
from fairlead.server.settings import ServerSettings
from fairlead.server.together import Together

log = logging.getLogger("fairlead.server")

KEEP_ALIVE: Final = 75
"""How long a connection may be idle, in seconds: longer than the load balancers in front keep theirs."""
MESSAGE_LIMIT: Final = 64 * 1024
"""The largest message that is taken from a WebSocket, in bytes: callers only say what they want to hear of."""

_LINGER: Final = 0.5
_LAST_WORDS: Final = 1.0
_TICK: Final = 0.02


async def open_server(
    engine: Engine,
    binding: Binding,
    settings: ServerSettings | None = None,
    *,
    sweep: bool = True,
    metrics: Metrics | None = None,
) -> Server:
    """A server that listens already; refused when it would let in anybody from beyond this machine."""
    keyring = Keyring(engine)
    listeners = Listeners(binding)
    try:
        if not listeners.loopback:
            await _check_exposed(keyring, binding, listeners)
        # Whether there are keys is looked at again with every request; whether they may be missing is decided here.
        gate = Gate(
            keyring,
            settings,
            keyless=listeners.loopback or binding.insecure,
            hosts=[binding.host] if listeners.loopback else None,
        )
        return Server(Hub(engine, settings, gate, metrics), listeners, binding, sweep=sweep)
    except BaseException:
        listeners.close()
        raise


async def _check_exposed(keyring: Keyring, binding: Binding, listeners: Listeners) -> None:
    has_keys = bool(await keyring.keys())
    if not has_keys and not binding.insecure:
        raise InvalidSettings(
            f"serving on {binding.host} needs a key, as anybody who reaches it could do everything; make one with "
            f"`fairlead keys create NAME --roles admin`, serve on 127.0.0.1, or accept the danger with --insecure"
        )
    if not has_keys:
        log.warning("serving on %s without keys: anybody who reaches it can do everything", binding.host)
    elif listeners.tls is None and not binding.trusted_proxies:
        log.warning(
            "serving on %s without TLS: keys can be read on the way; give --cert and --key, or put a proxy in front",
            binding.host,
        )


class Server:
    """A server and its life. It is a `fairlead.worker.serving.Service`."""

    def __init__(self, hub: Hub, listeners: Listeners, binding: Binding, *, sweep: bool = True) -> None:
        """With `sweep` it answers alarms too, for a store whose workers all come over HTTP."""
        self.hub = hub
        self.url = listeners.url
        self._listeners = listeners
        self._sweep = sweep
        self._uvicorn = _Uvicorn(_config(hub, listeners, binding))
        _quieten()

    async def run(self) -> None:
        """Serve until asked to leave; then finish what was accepted."""
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(self._wind_down()), group.create_task(self.hub.history.run())]
            if self._sweep:
                beside.append(group.create_task(Sweeper(self.hub.engine).run()))
            await self._uvicorn.serve(sockets=self._listeners.sockets)
            for task in beside:
                task.cancel()
        if self._uvicorn.server_state.tasks:
            await asyncio.wait(self._uvicorn.server_state.tasks, timeout=_LAST_WORDS)

    def leave(self) -> None:
        """Take no more connections and finish what was accepted; the second time, cut it off."""
        if not self.hub.stopping.is_set():
            self.hub.stopping.set()
            return
        self._uvicorn.should_exit = self._uvicorn.force_exit = True
        for task in list(self._uvicorn.server_state.tasks):
            task.cancel()
        for connection in list(self._uvicorn.server_state.connections):
            connection.transport.abort()

    async def _wind_down(self) -> None:
        await self.hub.stopping.wait()
        while not self._uvicorn.started:  # noqa: ASYNC110 - uvicorn has no event for it, nor for the next
            await asyncio.sleep(_TICK)
        for server in self._uvicorn.servers:
            server.close()
        # A caller may have sent its next request on a connection that looks idle from here. Every answer from now on
        # says that the connection ends with it, so those that are in use go by themselves.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                while self._uvicorn.server_state.connections:  # noqa: ASYNC110
                    await asyncio.sleep(_TICK)
        self._uvicorn.should_exit = True


class _Uvicorn(uvicorn.Server):
    """uvicorn without its handling of signals, which are the process's own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _config(hub: Hub, listeners: Listeners, binding: Binding) -> uvicorn.Config:
    tls = listeners.tls
    together = Together(hub, proxied=bool(binding.trusted_proxies))
    return uvicorn.Config(
        build(hub),
        # Typed as a class, used as what makes one.
        http=cast(type[Connection], functools.partial(Connection, together=together)),
        ws="websockets-sansio",
        ws_max_size=MESSAGE_LIMIT,
        # Compression keeps some 300 KB for each connection.
        ws_per_message_deflate=False,
        lifespan="off",
        interface="asgi3",
        log_config=None,
        # Query strings and paths are the callers' business, and a log is read by many.
        access_log=False,
        server_header=False,
        proxy_headers=bool(binding.trusted_proxies),
        forwarded_allow_ips=binding.trusted_proxies or None,
        root_path=binding.root_path,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(binding.grace_seconds),
        ssl_context_factory=None if tls is None else lambda config, default: tls,
    )


def _quieten() -> None:
    """Have uvicorn speak of its own faults only, not of callers' mistakes or of what was cut off on purpose."""
    logger = logging.getLogger("uvicorn.error")
    logger.setLevel(logging.ERROR)
    logger.addFilter(_is_fault)


def _is_fault(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
