"""The clock that leases go by is that of one run of the server: a restart is not taken for it."""

from __future__ import annotations

from fairlead.core.instant import MINUTE
from fairlead.storage.postgres.store import open_postgres
from fairlead.storage.steps import host_time
from tests.servers.postgres import PostgresServer


async def test_sessions_in_different_time_zones_see_one_clock(server: PostgresServer) -> None:
    """Whoever changes that of a database has older sessions beside newer ones."""
    database = server.copy_of_template()
    names: set[str] = set()
    for zone in ("UTC", "Asia/Tokyo"):
        with server.admin(database) as connection:
            connection.execute(f"ALTER DATABASE {database} SET timezone = '{zone}'".encode())
        store = await open_postgres(server.url(database))
        names |= (await store.clocks()).keys()
        await store.close()
    server.drop_database(database)
    assert len(names) == 1


async def test_a_server_has_one_clock_and_another_when_it_was_restarted(own_server: PostgresServer) -> None:
    url = own_server.url(own_server.copy_of_template())
    store = await open_postgres(url)
    try:
        before = await store.clocks()
        ((run, now),) = before.items()
        assert (await store.clocks()).keys() == before.keys()
        assert abs(now - host_time()) < MINUTE
    finally:
        await store.close()
    own_server.restart()
    store = await open_postgres(url)
    try:
        (other,) = await store.clocks()
    finally:
        await store.close()
    assert other != run
