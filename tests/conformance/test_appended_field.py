"""A field can be appended to `Status`: every store keeps it, and builds with and without it share a store."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conformance.mixed_builds import ROOT, TURNS, take, take_with_field
from tests.servers.stores import Place, database, place, postgres, redis

__all__ = ["database", "place", "postgres", "redis"]

CONTRACTS = {
    "memory": "tests/conformance/test_memory.py::TestMemory",
    "sqlite": "tests/conformance/test_sqlite.py::TestSqlite",
    "redis": "tests/storage/redis/test_contract.py::TestRedis",
    "postgresql": "tests/storage/postgres/test_conformance.py::TestPostgres",
    "journal": "tests/storage/journal/test_redis.py::TestJournalOverRedis",
}


@pytest.mark.slow
@pytest.mark.parametrize("contract", CONTRACTS.values(), ids=CONTRACTS)
def test_a_store_keeps_a_field_that_was_appended(contract: str) -> None:
    plugin = ("-p", "tests.conformance.appended_field")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *plugin, contract]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("place", ["sqlite", "redis", "postgresql", "journal"], indirect=True)
async def test_builds_with_and_without_the_field_share_a_store(place: Place) -> None:
    for turn in range(len(TURNS)):
        if turn % 2 == 0:
            await take(turn, place.url, place.journal)
        else:
            take_with_field(turn, place.url, place.journal)
