"""What holds for every run of the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.servers.postgres import PostgresServer, started
from tests.servers.watcher import watch

# A verdict depends on the code alone: not on how fast the machine is, nor on which examples come up today.
settings.register_profile(
    "steady", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
# To look for what the steady examples miss: ARGS='--hypothesis-profile=searching'.
settings.register_profile("searching", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


def pytest_configure() -> None:
    """Nothing that tests start outlives their run."""
    watch()


@pytest.fixture(scope="session")
def one_postgres() -> Iterator[PostgresServer]:
    """The server of all tests of this process that have databases of their own and leave the server as it is."""
    yield from started()
