"""What a PostgreSQL store finds out about its server and its schema."""

from __future__ import annotations

from urllib.parse import urlsplit

from fairlead.core.health.diagnosis import POSTGRES_OFF, POSTGRES_ON, Examination, Finding, Level
from fairlead.core.instant import DAY
from fairlead.storage.postgres.store import PostgresStore, open_postgres
from fairlead.testing.builders import a_task
from tests.servers.postgres import PostgresServer


def found(examination: Examination, what: str) -> Finding:
    (finding,) = [finding for finding in examination.findings if finding.what == what]
    return finding


async def test_a_server_as_it_is_installed_is_well(store: PostgresStore) -> None:
    examination = await store.examine()
    assert examination.tier is POSTGRES_ON
    assert found(examination, "PostgreSQL").value.endswith("schema fairlead version 6")
    assert {each.what for each in examination.findings} >= {"durability", "connections", "vacuum", "orphans"}
    assert found(examination, "orphans").level is Level.GREEN


async def test_a_commit_that_does_not_wait_and_a_key_without_its_task_are_found(
    server: PostgresServer, own_url: str
) -> None:
    database = urlsplit(own_url).path.removeprefix("/")
    with server.admin() as connection:
        connection.execute(f"ALTER DATABASE {database} SET synchronous_commit = off".encode())
    store = await open_postgres(own_url)
    try:
        await store.add([a_task(key="k", key_until=DAY)], now=0, bounds={})
        with server.admin(database) as connection:
            connection.execute("DELETE FROM fairlead.task")
        examination = await store.examine()
        assert examination.tier is POSTGRES_OFF
        assert found(examination, "durability").level is Level.RED
        assert found(examination, "orphans").value.startswith("1 ")
    finally:
        await store.close()
