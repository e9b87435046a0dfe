"""What holds for every run of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress, groupby
from operator import not_

import pytest
from hypothesis import HealthCheck, settings

from tests.order import in_turn
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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files begin in an order that keeps the processors busy, where several processes share them."""
    if hasattr(config, "workerinput"):
        files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
        slow = [any(test.get_closest_marker("slow") for test in tests) for tests in files]
        items[:] = in_turn(compress(files, slow), compress(files, map(not_, slow)))


@pytest.fixture(scope="session")
def one_postgres() -> Iterator[PostgresServer]:
    """The server of all tests of this process that have databases of their own and leave the server as it is."""
    yield from started()
