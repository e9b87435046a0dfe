"""How a store gets to its server: in every way that libpq knows, and with credentials that change while it runs."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from fairlead.core.errors import StoreError, StoreRefused, StoreUnavailable
from fairlead.storage.journal.journal import migrate as migrate_journal
from fairlead.storage.open import open_store
from fairlead.storage.postgres.schema import migrate
from fairlead.storage.protocol import Store
from fairlead.testing.builders import a_task
from fairlead.testing.steps import add, contents
from tests.servers.postgres import ROLE, PostgresServer
from tests.servers.redis import RedisServer, until

both = pytest.mark.parametrize("blocking", [False, True], ids=["asyncio", "blocking"])
NOBODY = "127.0.0.1:1"


def urls(server: PostgresServer, database: str, folder: Path, environment: pytest.MonkeyPatch) -> dict[str, str]:
    """A database's URL in each form, and what it takes around it."""
    services = folder / "services.conf"
    services.write_text(
        f"[here]\nhost=127.0.0.1\nport={server.port}\nuser={ROLE}\n"
        f"[anywhere]\nhost=127.0.0.1,127.0.0.1\nport=1,{server.port}\nuser={ROLE}\ndbname={database}\n"
    )
    environment.setenv("PGSERVICEFILE", str(services))
    socket, login = quote(str(server.data), safe=""), f"{quote(ROLE)}@"
    return {
        "socket": f"postgresql:///{database}?host={server.data}&port={server.port}&user={ROLE}",
        "socket as host": f"postgresql://{login}{socket}:{server.port}/{database}",
        "service": f"postgresql:///{database}?service=here",
        "service alone": "postgresql://?service=anywhere",
        "several hosts": f"postgresql://{login}{NOBODY},127.0.0.1:{server.port}/{database}",
        "the one that can be written": (
            f"postgres://{login}{NOBODY},127.0.0.1:{server.port}/{database}?target_session_attrs=read-write"
        ),
        "encoded": f"postgresql://%66airlead@127.0.0.1:{server.port}/{database.replace('_', '%5F')}?sslmode=prefer",
    }


@pytest.fixture
def database(server: PostgresServer) -> Iterator[str]:
    name = server.copy_of_template()
    yield name
    server.drop_database(name)


@both
async def test_a_store_is_reached_by_every_form_of_url(
    server: PostgresServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocking: bool
) -> None:
    added = []
    for form, url in urls(server, database, tmp_path, monkeypatch).items():
        store = await open_store(url, blocking=blocking)
        added.append(a_task())
        await add(store, added[-1])
        assert len(await contents(store)) == len(added), form
        await store.close()
        assert migrate(url) == [], form
        assert len(migrate_journal(f"{url}{'&' if '?' in url else '?'}schema=journal_{len(added)}")) > 0, form


@both
async def test_what_the_url_leaves_out_comes_from_the_environment(
    server: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch, blocking: bool
) -> None:
    settings = {"HOST": str(server.data), "PORT": str(server.port), "USER": ROLE, "DATABASE": database}
    for name, value in settings.items():
        monkeypatch.setenv(f"PG{name}", value)
    monkeypatch.setenv("PGAPPNAME", "orders")
    store = await open_store("postgresql://", blocking=blocking)
    await add(store, a_task())
    with server.admin() as connection:
        found = connection.execute(
            "SELECT DISTINCT application_name FROM pg_stat_activity WHERE datname = %s", (database,)
        )
        assert found.fetchall() == [("orders",)]
    await store.close()


async def test_a_server_that_takes_no_writes_is_passed_over(server: PostgresServer, database: str) -> None:
    with server.admin() as connection:
        connection.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    url = f"{server.url(database)}?target_session_attrs=read-write"
    with pytest.raises(StoreUnavailable, match="read-only"):
        await open_store(url)


async def test_connections_bear_our_name(server: PostgresServer, database: str) -> None:
    store = await open_store(server.url(database))
    with server.admin() as connection:
        found = connection.execute(
            "SELECT DISTINCT application_name FROM pg_stat_activity WHERE datname = %s", (database,)
        )
        assert found.fetchall() == [("fairlead",)]
    await store.close()


class Vault:
    """Gives the password of a role, which changes, and counts how often it was asked."""

    role = "vaulted"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.asked = 0
        self.stale: list[str] = []
        """What it gives first, though it holds no more."""
        self.password = ""

    def change(self, password: str) -> None:
        """Let the role in with this password alone, and hang up on it."""
        self.password = password
        with self._server.admin() as connection:
            connection.execute(f"ALTER ROLE {self.role} PASSWORD '{password}'".encode())
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (self.role,)
            )

    def __call__(self) -> tuple[str, str]:
        self.asked += 1
        return self.role, self.stale.pop(0) if self.stale else self.password


@pytest.fixture
def vault(own_server: PostgresServer) -> Vault:
    vault = Vault(own_server)
    rules = own_server.data / "cluster" / "pg_hba.conf"
    with own_server.admin() as connection:
        connection.execute(f"CREATE ROLE {vault.role} LOGIN IN ROLE {ROLE}".encode())
        rules.write_text(f"host all {vault.role} all scram-sha-256\n{rules.read_text()}")
        connection.execute("SELECT pg_reload_conf()")
    until(lambda: _is_refused(own_server, vault.role), "the server to ask for a password")
    vault.change("first")
    return vault


def _is_refused(server: PostgresServer, role: str) -> bool:
    with contextlib.suppress(psycopg.OperationalError):
        psycopg.connect(server.url("postgres", role=role)).close()
        return False
    return True


async def persistent(store: Store) -> list[object]:
    """What is in a store whose server has hung up: what was asked of it in that moment is asked once more."""
    for _ in range(10):
        with contextlib.suppress(StoreUnavailable):
            return list(await contents(store))
    return list(await contents(store))


@both
async def test_credentials_are_asked_for_at_each_new_connection_and_no_other_time(
    own_server: PostgresServer, vault: Vault, blocking: bool
) -> None:
    url = f"postgresql://127.0.0.1:{own_server.port}/{own_server.copy_of_template()}?listen=off"
    store = await open_store(url, blocking=blocking, credentials=vault)
    for _ in range(10):
        await store.tally()
    assert vault.asked == 1
    vault.change("second")
    assert await persistent(store) == []
    assert vault.asked == 2
    vault.stale = ["first"]
    vault.change("third")
    assert await persistent(store) == []
    assert vault.asked == 4
    vault.stale = ["first", "second"]
    vault.change("fourth")
    with pytest.raises(StoreRefused, match="what gives the credentials") as refused:
        await persistent(store)
    assert "second" not in str(refused.value)
    assert await persistent(store) == []
    await store.close()


@both
async def test_a_wait_listens_on_a_connection_with_credentials(
    own_server: PostgresServer, vault: Vault, blocking: bool
) -> None:
    url = f"postgresql://127.0.0.1:{own_server.port}/{own_server.copy_of_template()}"
    store = await open_store(url, blocking=blocking, credentials=vault)
    await store.wait(["default"], 0.01)
    vault.stale = ["wrong", "worse"]
    # Whoever cannot listen looks now and then.
    await store.wait(["default"], 0.01)
    await store.close()


@both
async def test_a_journal_has_credentials_of_its_own(own_server: PostgresServer, vault: Vault, blocking: bool) -> None:
    with own_server.admin() as connection:
        connection.execute("CREATE DATABASE empty OWNER vaulted")
    journal = f"postgresql:///empty?host=127.0.0.1&port={own_server.port}&timeout=60"
    redis = RedisServer("--unixsocket", "redis.sock")
    try:
        hot = f"unix://{redis.start().folder}/redis.sock?timeout=60"
        store = await open_store(hot, journal=journal, blocking=blocking, journal_credentials=vault)
        await add(store, a_task())
        vault.change("second")
        assert len(await persistent(store)) == 1
        await add(store, a_task())
        assert vault.asked > 1
        await store.close()
    finally:
        redis.stop()


@both
async def test_a_new_database_is_set_up_with_what_a_command_gives(
    own_server: PostgresServer, vault: Vault, tmp_path: Path, blocking: bool
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    with own_server.admin() as connection:
        connection.execute("CREATE DATABASE empty OWNER vaulted")
    command = quote(f"cat {shlex.quote(str(token))}")
    url = f"postgresql://vaulted@127.0.0.1:{own_server.port}/empty?timeout=60&credentials_command={command}"
    store = await open_store(url, blocking=blocking)
    await add(store, a_task())
    await store.close()
    assert migrate(url) == []
    assert len(migrate_journal(url)) > 0
    token.write_text("wrong\n")
    with pytest.raises(StoreRefused) as refused:
        await open_store(url, blocking=blocking)
    assert "wrong" not in str(refused.value)
    token.unlink()
    with pytest.raises(StoreError, match="ended with 1 and gave no credentials"):
        await open_store(url, blocking=blocking)
