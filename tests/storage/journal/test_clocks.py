"""A journal whose clock goes back keeps up its duties."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

from fairlead.core.events import Completed
from fairlead.core.instant import HOUR, SECOND, Span
from fairlead.storage.journal.duties import Flusher, Leaver, Reconciler
from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.outbox import HIDDEN
from fairlead.storage.journal.url import JournalAddress
from fairlead.testing.builders import a_task, some_tasks
from fairlead.testing.steps import add, claim_one, ids, settle
from tests.storage.journal.current import CurrentStore
from tests.storage.journal.noting_memory import NotingMemoryStore

_NOW = """
CREATE OR REPLACE FUNCTION "{schema}".now() RETURNS bigint LANGUAGE sql VOLATILE
AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + ({step})'
"""


@pytest.fixture
def set_clock(address: JournalAddress) -> Iterator[Callable[[Span], None]]:
    """Set the journal's clock, which is right before and after."""

    def set_by(step: Span) -> None:
        with psycopg.connect(address.database.conninfo, autocommit=True) as connection:
            connection.execute(_NOW.format(schema=address.database.schema, step=step).encode())

    with ExitStack() as closing:
        closing.callback(set_by, 0)
        yield set_by


async def test_what_is_accepted_after_a_step_back_gets_there_by_itself(
    hot: NotingMemoryStore, journal: Journal, set_clock: Callable[[Span], None]
) -> None:
    await add(CurrentStore(hot, journal), *some_tasks(3))
    reconciler = Reconciler(hot, journal, age=0)
    assert await reconciler.once() == 0
    set_clock(-HOUR)
    lost = a_task()
    await journal.add([lost], accepted=True)
    assert await reconciler.once() == 1
    assert await hot.get([lost.id]) == [lost]


async def test_what_ends_after_a_step_back_leaves_the_hot_store(
    hot: NotingMemoryStore, store: CurrentStore, journal: Journal, set_clock: Callable[[Span], None]
) -> None:
    await add(store, *some_tasks(2))
    first = await settle(store, await claim_one(store), Completed())
    await Flusher(hot, journal).all()
    assert await Leaver(hot, journal).once() == 1
    set_clock(-HOUR)
    second = await settle(store, await claim_one(store), Completed())
    await Flusher(hot, journal).all()
    # Hidden or not, and once more from the beginning: both pages that there may be.
    await Leaver(hot, journal).once()
    await Leaver(hot, journal).once()
    assert await hot.get(ids([first, second])) == [None, None]


@pytest.mark.parametrize("duty", ["reconcile", "leave", "prune", "rebuild"])
async def test_a_duty_is_nobodys_for_longer_than_it_takes(
    journal: Journal, set_clock: Callable[[Span], None], duty: str
) -> None:
    """Whoever had it may have died before the clock went back."""
    assert await journal.take_duty(duty, 15 * SECOND) is not None
    assert await journal.take_duty(duty, 15 * SECOND) is None
    set_clock(-HOUR)
    assert await journal.take_duty(duty, 15 * SECOND) is not None
    assert await journal.take_duty(duty, 15 * SECOND) is None


async def test_what_a_clock_hid_that_has_gone_back_is_read_at_once(hot: NotingMemoryStore) -> None:
    """O2."""
    first, second = some_tasks(2)
    await hot.note([first.id], after=HOUR)
    await hot.note([second.id], after=HIDDEN)
    assert [note.id for note in await hot.read(10)] == [first.id]
