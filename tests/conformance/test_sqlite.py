"""The SQLite store keeps the storage contract, beside an event loop and without one."""

import itertools
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from hypothesis import settings

from fairlead.core.identity import TaskId
from fairlead.storage.lane_search import FEW
from fairlead.storage.protocol import Store
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.clauses.add import AddingClauses, KeyClauses
from fairlead.testing.clauses.change import ChangingClauses
from fairlead.testing.clauses.claim import ClaimingClauses
from fairlead.testing.clauses.feed import FeedClauses
from fairlead.testing.clauses.heartbeats import HeartbeatClauses
from fairlead.testing.clauses.limits import BoundClauses, RateLimitClauses, RunningLimitClauses
from fairlead.testing.clauses.order import OrderClauses
from fairlead.testing.clauses.read import FindingClauses, ListingClauses
from fairlead.testing.clauses.records import RecordClauses
from fairlead.testing.clauses.refusals import RefusingClauses, RemovingClauses
from fairlead.testing.contract import QuarantineContract, SharingContract, StoreContract
from fairlead.testing.leases import check_leases
from fairlead.testing.machine import compare_with_memory
from fairlead.testing.races import Crew, RaceContract, ThreadCrew
from fairlead.testing.steps import Opening
from fairlead.testing.strategies import STEADY
from fairlead.testing.vandalism import Change, Part, Vandal
from tests.storage.sqlite.surveying import survey


@asynccontextmanager
async def opened_file(path: Path, *, blocking: bool = False, few: int = FEW) -> AsyncIterator[Store]:
    # What these tests ask is what the store answers, not whether it outlives the power: tests/chaos asks that.
    store = SqliteStore(path, blocking=blocking, synchronous="NORMAL", few=few)
    try:
        yield store
    finally:
        await store.close()


class FileVandal:
    """Damages tasks in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __call__(self, task_id: TaskId, part: Part, change: Change, *, tidy: bool = False) -> None:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            (number, touched) = connection.execute(
                "SELECT task.number, status.number FROM task LEFT JOIN status USING (number) WHERE task.id = ?",
                (task_id,),
            ).fetchone()
            table, column = ("task", "spec") if part == "spec" else ("task", "added")
            if part == "status" and touched is not None:
                table, column = "status", "status"
            (packed,) = connection.execute(f"SELECT {column} FROM {table} WHERE number = ?", (number,)).fetchone()
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE number = ?", (change(packed), number))

    def mended(self, parts: dict[str, bytes], part: Part, change: Change) -> dict[str, bytes]:
        return {**parts, part: change(parts[part])}


class TestSqlite(StoreContract, SharingContract, QuarantineContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        async with opened_file(tmp_path / "tasks.db") as store:
            yield store
        survey(tmp_path / "tasks.db")

    @pytest.fixture
    def vandal(self, tmp_path: Path) -> Vandal:
        return FileVandal(tmp_path / "tasks.db")


class TestSqliteBlocking(
    AddingClauses,
    KeyClauses,
    BoundClauses,
    ClaimingClauses,
    OrderClauses,
    HeartbeatClauses,
    ChangingClauses,
    RefusingClauses,
    RemovingClauses,
    FindingClauses,
    ListingClauses,
    RecordClauses,
    FeedClauses,
    SharingContract,
):
    """All but the waiting: a call that blocks would keep its event loop from the one that wakes it."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        async with opened_file(tmp_path / "tasks.db", blocking=True) as store:
            yield store


class TestSqliteByIndex(ClaimingClauses, OrderClauses, RunningLimitClauses, RateLimitClauses, SharingContract):
    """Claims that go by the index of lane heads, however few lanes there are."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        async with opened_file(tmp_path / "tasks.db", few=0) as store:
            yield store
        survey(tmp_path / "tasks.db")


class TestSqliteRaces(RaceContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/tasks.db?synchronous=normal"


class TestSqliteBlockingRaces(RaceContract):
    """Threads with a store each, and threads that share one."""

    @pytest.fixture(params=["a store each", "one store"])
    def crew(self, request: pytest.FixtureRequest, tmp_path: Path) -> Crew:
        path = tmp_path / "tasks.db"
        if request.param == "a store each":
            return ThreadCrew(lambda: opened_file(path, blocking=True))
        store = SqliteStore(path, blocking=True, synchronous="NORMAL")

        @asynccontextmanager
        async def shared() -> AsyncIterator[Store]:
            yield store

        return ThreadCrew(shared)


@pytest.mark.slow
@pytest.mark.parametrize("check", [compare_with_memory, check_leases])
def test_sqlite_keeps_to_the_model(check: Callable[[Opening], None], tmp_path: Path) -> None:
    numbers = itertools.count()
    check(lambda: opened_file(tmp_path / f"{next(numbers)}.db"))


@pytest.mark.slow
@pytest.mark.parametrize("check", [compare_with_memory, check_leases])
def test_blocking_sqlite_keeps_to_the_model(check: Callable[..., None], tmp_path: Path) -> None:
    numbers = itertools.count()
    opening: Opening = lambda: opened_file(tmp_path / f"{next(numbers)}.db", blocking=True)  # noqa: E731
    # Fewer examples: only who runs an operation differs, not what it does.
    check(opening, settings=settings(STEADY, max_examples=15))


@pytest.mark.slow
def test_sqlite_by_its_index_keeps_to_the_model(tmp_path: Path) -> None:
    numbers = itertools.count()
    compare_with_memory(lambda: opened_file(tmp_path / f"{next(numbers)}.db", few=0))
