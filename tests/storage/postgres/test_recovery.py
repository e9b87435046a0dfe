"""The server restarts, closes connections, stalls or fails: the store goes on, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from fairlead.core.errors import StoreMismatch, StoreReadOnly, StoreRefused, StoreUnavailable
from fairlead.core.events import Completed
from fairlead.core.task import State
from fairlead.storage.postgres.connection import session
from fairlead.storage.postgres.store import PostgresStore, open_postgres
from fairlead.testing.builders import NOW, a_claim, a_settle, a_task, some_tasks
from fairlead.testing.steps import add, contents, ids
from tests.servers.postgres import PostgresServer

PATIENCE = 90.0

pytestmark = pytest.mark.slow


@pytest.fixture
def broken_url(own_server: PostgresServer) -> str:
    return own_server.url(own_server.create_database())


@pytest.fixture(params=[False, True], ids=["async", "blocking"])
async def fragile(request: pytest.FixtureRequest, broken_url: str) -> AsyncIterator[PostgresStore]:
    """A store on a server that the test breaks; it gives up on a call after two seconds."""
    store = await open_postgres(f"{broken_url}?timeout=2", blocking=request.param)
    yield store
    await store.close()


async def within_patience(call: Callable[[], Awaitable[object]]) -> None:
    """Repeat a call until the store is back."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            await call()
            return
        except StoreUnavailable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restart", "crash"])
async def test_a_restarted_server_loses_nothing(
    fragile: PostgresStore, own_server: PostgresServer, how: signal.Signals
) -> None:
    tasks = some_tasks(50)
    await add(fragile, *tasks)
    claimed = await fragile.claim(a_claim(limit=10))
    own_server.restart(how)
    await within_patience(fragile.tally)
    assert ids(await contents(fragile)) == ids(tasks)
    await fragile.apply([a_settle(task, Completed(b"1")) for task in claimed])
    states = [task.state for task in await contents(fragile)]
    assert states == [State.COMPLETED] * 10 + [State.QUEUED] * 40


async def test_a_call_while_the_server_is_down_says_so(fragile: PostgresStore, own_server: PostgresServer) -> None:
    await add(fragile, a_task())
    own_server.halt()
    with pytest.raises(StoreUnavailable):
        await fragile.tally()
    own_server.launch()
    await within_patience(fragile.tally)


async def test_terminated_backends_are_replaced(fragile: PostgresStore, own_server: PostgresServer) -> None:
    await add(fragile, *some_tasks(20))
    with own_server.admin() as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'fairlead'")
    await within_patience(lambda: fragile.claim(a_claim(limit=5)))
    assert len(await contents(fragile)) == 20


async def test_a_paused_server_ends_a_call_in_time(fragile: PostgresStore, own_server: PostgresServer) -> None:
    await add(fragile, *some_tasks(5))
    own_server.pause()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="did not answer"):
        await fragile.claim(a_claim(limit=5))
    assert time.monotonic() - began < 10
    own_server.resume()
    await within_patience(fragile.tally)
    assert len(await contents(fragile)) == 5


async def test_a_read_only_server_says_so(own_server: PostgresServer, broken_url: str) -> None:
    await (await open_postgres(broken_url)).close()
    with own_server.admin() as connection:
        database = broken_url.rpartition("/")[2]
        connection.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on".encode())
    store = await open_postgres(broken_url)
    with pytest.raises(StoreReadOnly):
        await store.add(some_tasks(1), now=NOW, bounds={})
    assert await contents(store) == []
    await store.close()


async def test_a_dropped_schema_says_what_to_run(fragile: PostgresStore, own_server: PostgresServer) -> None:
    await add(fragile, a_task())
    with own_server.admin(own_server_database(fragile)) as connection:
        connection.execute("DROP SCHEMA fairlead CASCADE")
    with pytest.raises(StoreMismatch, match="fairlead migrate"):
        await fragile.tally()


@pytest.fixture
def suspicious(own_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server that wants a password of everyone but its superuser."""
    rules = own_server.data / "cluster" / "pg_hba.conf"
    former = rules.read_text()
    rules.write_text("host all postgres 127.0.0.1/32 trust\nhost all fairlead 127.0.0.1/32 scram-sha-256\n")
    with own_server.admin() as connection:
        connection.execute("ALTER ROLE fairlead PASSWORD 'secret'")
    own_server.restart()
    yield own_server
    rules.write_text(former)
    own_server.restart()


@pytest.mark.parametrize("login", ["fairlead", "fairlead:wrong", "nobody", "stranger:secret"])
async def test_who_is_not_let_in_is_told_so_and_not_to_repeat_it(
    suspicious: PostgresServer, broken_url: str, login: str
) -> None:
    with pytest.raises(StoreRefused, match=r"nothing was done\. Check user and password") as refused:
        await open_postgres(broken_url.replace("fairlead@", f"{login}@", 1))
    assert "repeat" not in str(refused.value) and "secret" not in str(refused.value)


async def test_a_password_that_is_changed_is_an_outage_to_those_who_work(
    suspicious: PostgresServer, broken_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long the machine takes, the connection was used just now.
    monkeypatch.setattr(session, "_IDLE_CHECK", math.inf)
    store = await open_postgres(broken_url.replace("fairlead@", "fairlead:secret@", 1))
    with suspicious.admin() as connection:
        connection.execute("ALTER ROLE fairlead PASSWORD 'other'")
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'fairlead'")
    # The first finds its connection broken, and whether it took effect is unknown.
    with pytest.raises(StoreUnavailable):
        await store.tally()
    for _ in range(2):
        with pytest.raises(StoreRefused):
            await store.tally()
    with suspicious.admin() as connection:
        connection.execute("ALTER ROLE fairlead PASSWORD 'secret'")
    await store.tally()
    await store.close()


async def test_a_database_that_the_server_does_not_have_is_no_outage(own_server: PostgresServer) -> None:
    with pytest.raises(StoreMismatch, match=r"nothing was done\. Create the database") as refused:
        await open_postgres(own_server.url("nowhere"))
    assert "repeat" not in str(refused.value)


async def test_too_many_connections_are_the_servers_trouble(own_server: PostgresServer, broken_url: str) -> None:
    store = await open_postgres(broken_url)
    with own_server.admin() as connection:
        connection.execute("ALTER ROLE fairlead CONNECTION LIMIT 0")
    with pytest.raises(StoreUnavailable):
        # The store has one connection already; the second call at once needs another.
        await asyncio.gather(store.tally(), store.tally())
    with own_server.admin() as connection:
        connection.execute("ALTER ROLE fairlead CONNECTION LIMIT -1")
    await store.tally()
    await store.close()


async def test_a_waiter_hears_again_after_its_connection_broke(own_server: PostgresServer, broken_url: str) -> None:
    store = await open_postgres(broken_url)
    await store.wait(["default"], 0.2)
    own_server.restart()
    waiter = asyncio.create_task(store.wait(["default"], 60.0))
    async with asyncio.timeout(PATIENCE):
        while not waiter.done():
            await within_patience(lambda: add(store, a_task()))
            await asyncio.sleep(0.1)
    await store.close()


def own_server_database(store: PostgresStore) -> str:
    return store._address.conninfo.partition("?")[0].rpartition("/")[2]
