"""Running a server: where it listens, and its life from the first request to the last, without cutting one off."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import math
import os
import socket
import ssl
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import uvicorn
from msgspec import Struct

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.admin.sweeper import Sweeper
from fairlead.core.errors import InvalidSettings, StoreError
from fairlead.core.hosts import is_loopback
from fairlead.engine.metrics.collector import Metrics
from fairlead.server.app import build
from fairlead.server.auth.gate import Gate
from fairlead.server.http.connections import Peers, TlsListener
from fairlead.server.http.protocols import SUPPORTED, protocols_of
from fairlead.server.live.dead_letter_alert import Call, DeadLetterAlert
from fairlead.server.settings import ServerSettings
from fairlead.server.state import ServerState
from fairlead.server.submit import Together

BACKLOG: Final = 2048

_ABSENT: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Binding(Struct, frozen=True, kw_only=True):
    """Where and how a server listens."""

    host: str = "127.0.0.1"
    port: int = 8420
    """0 for one that is free."""
    cert: str | None = None
    """The file with the certificate chain."""
    key: str | None = None
    """The file with the certificate's private key; None if it is in the same file."""
    insecure: bool = False
    """Whether it may listen beyond loopback while there are no keys."""
    root_path: str = ""
    """The path at which a proxy shows the server; the proxy takes it off before it passes a request on."""
    trusted_proxies: str = ""
    """The addresses of proxies whose word on who calls, and how, is believed."""
    grace_seconds: float = 30.0
    """How long accepted requests may take to end once the server is asked to leave."""


class Listeners:
    """Sockets that listen."""

    def __init__(self, binding: Binding) -> None:
        self.tls = _context(binding)
        self.sockets = _bind(binding.host, binding.port)
        self._host = binding.host
        self._root_path = binding.root_path

    @property
    def port(self) -> int:
        """The port, which is a real one even if any was asked for."""
        port: int = self.sockets[0].getsockname()[1]
        return port

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return all(is_loopback(listener.getsockname()[0]) for listener in self.sockets)

    @property
    def url(self) -> str:
        """Where to find it from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)  # noqa: S104 - not bound here
        shown = f"[{host}]" if ":" in host else host
        return f"{'http' if self.tls is None else 'https'}://{shown}:{self.port}{self._root_path}"

    def close(self) -> None:
        """Stop listening."""
        for listener in self.sockets:
            listener.close()


def _context(binding: Binding) -> ssl.SSLContext | None:
    if binding.cert is None:
        if binding.key is not None:
            raise InvalidSettings(f"the private key {binding.key} is of no use without a certificate; give --cert too")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An empty password: a key that needs one must fail, not ask whoever may or may not be at the terminal.
        context.load_cert_chain(binding.cert, binding.key, password=lambda: "")
    except FileNotFoundError:
        missing = next((file for file in (binding.cert, binding.key) if file and not Path(file).exists()), "")
        raise InvalidSettings(f"the file {missing} for TLS does not exist; name others with --cert and --key") from None
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise InvalidSettings(
            f"the certificate {binding.cert} and its private key {binding.key or binding.cert} cannot be used: "
            f"{reason}; they must be PEM files that belong together, the key without a password"
        ) from None
    return context


def _bind(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host, all on the same port."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise InvalidSettings(f"the host {host!r} is not known; use an address of this machine") from None
    with contextlib.ExitStack() as undo:
        sockets: list[socket.socket] = []
        absent: OSError | None = None
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            chosen = sockets[0].getsockname()[1] if sockets else port
            try:
                listener = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
                _listen(listener, family, (address[0], chosen, *address[2:]))
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise _refused(host, chosen, error) from None
                absent = error
            else:
                sockets.append(listener)
        if absent is not None and not sockets:
            raise _refused(host, port, absent)
        undo.pop_all()
    return sockets


def _listen(listener: socket.socket, family: int, address: tuple[object, ...]) -> None:
    if os.name == "posix":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind(address)
    # At once: two that only bind the same port would not notice each other.
    listener.listen(BACKLOG)
    listener.setblocking(False)


def _refused(host: str, port: int, error: OSError) -> InvalidSettings:
    match error.errno:
        case errno.EADDRINUSE:
            return InvalidSettings(
                f"port {port} on {host} is in use by another program; stop it, or choose another port with --port, "
                f"0 for one that is free"
            )
        case errno.EACCES:
            return InvalidSettings(f"port {port} on {host} is not allowed to this user; choose one from 1024 on")
        case errno.EADDRNOTAVAIL | errno.EAFNOSUPPORT:
            return InvalidSettings(f"the host {host!r} is not an address of this machine; use one that is")
        case _:
            return InvalidSettings(f"port {port} on {host} cannot be used: {error.strerror}; choose another")


log = logging.getLogger("fairlead.server")

MESSAGE_LIMIT: Final = 64 * 1024
"""The largest message that is taken from a WebSocket, in bytes: callers only say what they want to hear of."""

_SERVER_PARTS: Final = (
    "serve", "startup", "capture_signals", "server_state", "started", "should_exit", "force_exit",
)  # fmt: skip
"""What is used of uvicorn's server beside its configuration."""

_LINGER: Final = 0.5
_LAST_WORDS: Final = 1.0
_TICK: Final = 0.02


async def open_server(
    engine: AdminEngine,
    binding: Binding,
    settings: ServerSettings | None = None,
    *,
    sweep: bool = True,
    metrics: Metrics | None = None,
    webhook: Call | None = None,
) -> Server:
    """A server that listens already; refused when it would let in anybody from beyond this machine.

    `webhook` is called when there are as many dead letters as a threshold.
    """
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
        # An outage must not keep a server from starting, nor a store that is only read: the first key asks again.
        with contextlib.suppress(StoreError):
            await engine.begin_key_scopes()
        return Server(ServerState(engine, settings, gate, metrics), listeners, binding, sweep=sweep, webhook=webhook)
    except BaseException:
        listeners.close()
        raise


async def _check_exposed(keyring: Keyring, binding: Binding, listeners: Listeners) -> None:
    has_keys = any(await keyring.read())
    if not has_keys and not binding.insecure:
        raise InvalidSettings(
            f"serving on {binding.host} needs an API key: without one, anybody who can reach it could do everything; "
            f"create one with `fairlead keys create NAME --roles admin`, serve on 127.0.0.1, or accept the risk with "
            f"--insecure"
        )
    if not has_keys:
        log.warning("serving on %s without API keys: anybody who can reach it can do everything", binding.host)
    elif listeners.tls is None and not binding.trusted_proxies:
        log.warning(
            "serving on %s without TLS: API keys can be read on the network; give --cert and --key, or use a TLS proxy",
            binding.host,
        )


class Server:
    """A server and its life. It is a `fairlead.worker.process.Service`."""

    def __init__(
        self,
        state: ServerState,
        listeners: Listeners,
        binding: Binding,
        *,
        sweep: bool = True,
        webhook: Call | None = None,
    ) -> None:
        """With `sweep` it answers alarms too, for a store whose workers all come over HTTP."""
        self.state = state
        self.url = listeners.url
        self._listeners = listeners
        self._sweep = sweep
        self._alert = DeadLetterAlert(state.engine, state.depths, state.settings, webhook)
        self._peers = Peers(state.settings, binding.trusted_proxies)
        self._uvicorn = _Uvicorn(_config(state, binding, self._peers), listeners.tls, self._peers)
        _quieten()

    async def run(self) -> None:
        """Serve until asked to leave; then finish what was accepted."""
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(self._wind_down()), group.create_task(self.state.history.run())]
            if self._alert.is_wanted:
                beside.append(group.create_task(self._alert.run()))
            if self._sweep:
                beside.append(group.create_task(Sweeper(self.state.engine, log=log).run()))
            await self._uvicorn.serve(sockets=self._listeners.sockets)
            for task in beside:
                task.cancel()
        if self._uvicorn.server_state.tasks:
            await asyncio.wait(self._uvicorn.server_state.tasks, timeout=_LAST_WORDS)

    def leave(self) -> None:
        """Take no more connections and finish what was accepted; the second time, cut it off."""
        if not self.state.stopping.is_set():
            self.state.stopping.set()
            return
        self._uvicorn.should_exit = self._uvicorn.force_exit = True
        for task in list(self._uvicorn.server_state.tasks):
            task.cancel()
        for connection in list(self._uvicorn.server_state.connections):
            connection.transport.abort()

    async def _wind_down(self) -> None:
        await self.state.stopping.wait()
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
    """uvicorn without its handling of signals, which are the process's own, and with our own way to TLS."""

    def __init__(self, config: uvicorn.Config, tls: ssl.SSLContext | None, peers: Peers) -> None:
        super().__init__(config)
        if missing := [name for name in _SERVER_PARTS if not hasattr(self, name)]:
            raise InvalidSettings(
                f"uvicorn {uvicorn.__version__} cannot be served with: its server has no {', '.join(missing)}; "
                f"install 'uvicorn{SUPPORTED}'"
            )
        self._tls = tls
        self._peers = peers

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._tls is None or sockets is None:
            await super().startup(sockets)
            return
        await super().startup([])
        make: Any = self.config.http_protocol_class
        protocol = functools.partial(
            make, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        listeners: list[Any] = [TlsListener(each, self._tls, self._peers, protocol) for each in sockets]
        self.servers = listeners

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _config(state: ServerState, binding: Binding, peers: Peers) -> uvicorn.Config:
    together = Together(state, proxied=bool(binding.trusted_proxies))
    protocols = protocols_of(build(state), together, peers)
    # uvicorn says that it wants a class; it uses it as what makes a protocol.
    make: Any = protocols.http
    return uvicorn.Config(
        protocols.app,
        http=make,
        ws=protocols.ws,
        timeout_keep_alive=protocols.keep_alive,
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
        timeout_graceful_shutdown=math.ceil(binding.grace_seconds),
    )


def _quieten() -> None:
    """Have uvicorn speak of its own faults only, not of callers' mistakes or of what was cut off on purpose."""
    logger = logging.getLogger("uvicorn.error")
    logger.setLevel(logging.ERROR)
    logger.addFilter(_is_fault)


def _is_fault(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
