"""What a store with a journal finds out about both."""

from __future__ import annotations

from fairlead.core.health.diagnosis import JOURNAL, MEMORY, Level
from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.store import JournalStore
from fairlead.storage.journal.url import parse_journal
from tests.storage.journal.noting_memory import NotingMemoryStore


async def test_both_are_looked_at(hot: NotingMemoryStore, journal: Journal) -> None:
    examination = await JournalStore(hot, journal).examine()
    assert examination.tier is JOURNAL
    whats = [finding.what for finding in examination.findings]
    assert whats[0] == "durability"
    assert {"journal: PostgreSQL", "journal: vacuum", "journal lag"} <= set(whats)


async def test_a_journal_that_is_out_of_reach_is_found(hot: NotingMemoryStore) -> None:
    store = JournalStore(hot, Journal(parse_journal("postgresql://nobody@127.0.0.1:1/nowhere?connect_timeout=2")))
    examination = await store.examine()
    assert examination.tier is MEMORY
    assert (examination.findings[0].what, examination.findings[0].level) == ("journal", Level.RED)
    await store.close()
