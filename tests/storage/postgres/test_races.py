"""Threads and processes upon one PostgreSQL store."""

from __future__ import annotations

import psycopg
import pytest

from fairlead.testing.durability import DurabilityContract
from fairlead.testing.races import RaceContract
from tests.servers.postgres import PostgresServer


@pytest.mark.slow
class TestPostgresRaces(RaceContract):
    """Every law of the races."""


@pytest.mark.slow
class TestPostgresSerializableRaces(RaceContract):
    """In a database that runs everything serializable and a session we cannot set up: failures are retried inside."""

    @pytest.fixture
    def url(self, server: PostgresServer, own_url: str) -> str:
        url = own_url
        database = url.rpartition("/")[2]
        with server.admin() as connection:
            connection.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'".encode())
        with psycopg.connect(url) as connection:
            assert connection.execute("SHOW transaction_isolation").fetchone() == ("serializable",)
        return f"{url}?prepare=off"


@pytest.mark.slow
class TestPostgresDurability(DurabilityContract):
    """What survives the death of a process."""
