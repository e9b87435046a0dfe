"""What was decided is kept in the journal, what is only said for now in the hot store."""

from __future__ import annotations

import pytest

from fairlead.admin.keys import service as keys
from fairlead.engine import queue_cache, scheduler, worker_records, worker_tasks
from fairlead.engine.events import feed
from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.records import PASSING
from fairlead.storage.values import Record
from tests.storage.journal.current import CurrentStore
from tests.storage.journal.noting_memory import NotingMemoryStore


async def test_a_record_outlives_the_hot_store(store: CurrentStore, journal: Journal) -> None:
    assert await store.put("schedule", "nightly", b"0 3 * * *", expected=0) == 1
    assert await store.put("schedule", "nightly", b"0 4 * * *", expected=1) == 2
    assert await store.hot.scan("schedule") == []
    over = CurrentStore(NotingMemoryStore(), journal)
    assert await over.scan("schedule") == [Record(kind="schedule", name="nightly", value=b"0 4 * * *", version=2)]
    assert await over.put("schedule", "nightly", b"never", expected=1) is None
    assert await over.drop("schedule", "nightly", expected=2)
    assert await store.scan("schedule") == []


@pytest.mark.parametrize("kind", sorted(PASSING))
async def test_what_is_of_passing_interest_does_not_trouble_the_journal(
    store: CurrentStore, journal: Journal, kind: str
) -> None:
    await store.put(kind, "some", b"thing")
    assert [record.name for record in await store.hot.scan(kind)] == ["some"]
    assert await store.scan(kind) == await store.hot.scan(kind)
    assert await journal.records.scan(kind) == []
    assert await store.drop(kind, "some")
    assert await store.hot.scan(kind) == []


def test_what_processes_say_of_themselves_is_of_passing_interest() -> None:
    said = {
        worker_records._WORKER,
        worker_records._DRAIN,
        worker_records._THROUGHPUT,
        feed.KIND,
        scheduler.BELL,
        queue_cache.BELL,
        worker_tasks.LOST,
    }
    assert said <= PASSING


def test_what_someone_wanted_is_not() -> None:
    assert {scheduler.KIND, queue_cache.KIND, queue_cache.TYPE_KIND, keys._KIND}.isdisjoint(PASSING)
