"""The bare servers do what they are asked for, and say how quickly."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from bench.ceilings import Ceiling, postgresql, redis, sqlite
from tests.servers.postgres import started
from tests.servers.redis import started_single


def likes(ceilings: list[Ceiling]) -> set[str | None]:
    assert all(ceiling.rate > 0 for ceiling in ceilings)
    return {ceiling.like for ceiling in ceilings}


def test_what_fairlead_sends_to_redis_can_be_sent_again_without_it() -> None:
    """The same commands on an empty server have the same replies, or the bench raises."""
    with contextlib.contextmanager(started_single)() as server:
        ceilings = redis.scripts_alone(server.port, lambda: server.ask("FLUSHALL"), single=20, waiting=1_000)
    assert likes(ceilings) == {"submit one by one", "submit in bulk of 1,000", "run, 1 process"}


def test_another_course_than_the_recorded_one_is_noticed() -> None:
    another = pytest.raises(RuntimeError, match="went another way")
    with contextlib.contextmanager(started_single)() as server, another:
        # Not emptied: all of the tasks are there already.
        redis.scripts_alone(server.port, lambda: None, single=20, waiting=1_000)


@pytest.mark.slow
async def test_postgresql_alone() -> None:
    with contextlib.contextmanager(started)() as server:
        ceilings = await postgresql.measure(server.url(server.create_database()), single=20, waiting=1_000)
    assert "submit by 50 at once" in likes(ceilings)


def test_sqlite_alone(tmp_path: Path) -> None:
    ceilings = sqlite.measure(str(tmp_path / "tasks.db"), single=20, waiting=1_000)
    assert "submit one by one" in likes(ceilings)
