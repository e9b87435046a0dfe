"""What it takes to open a store is imported before it is opened."""

from __future__ import annotations

import subprocess
import sys

import pytest

REDIS, POSTGRES = "redis://127.0.0.1/0", "postgresql://127.0.0.1/tasks"

PREPARED = """
import sys
from fairlead.storage.open import prepare_store
prepare_store({url!r}, journal={journal!r})
assert {modules!r} <= sys.modules.keys()
"""


@pytest.mark.parametrize(
    ("url", "journal", "modules"),
    [
        ("memory://", None, {"memory"}),
        ("sqlite:///tasks.db", None, {"sqlite.store"}),
        (REDIS, None, {"redis.store"}),
        (POSTGRES, None, {"postgres.store"}),
        (REDIS, POSTGRES, {"redis.outbox", "journal.store"}),
    ],
)
def test_what_opens_a_store_is_imported_when_it_is_prepared(url: str, journal: str | None, modules: set[str]) -> None:
    program = PREPARED.format(url=url, journal=journal, modules={f"fairlead.storage.{each}" for each in modules})

    subprocess.run([sys.executable, "-c", program], check=True)
