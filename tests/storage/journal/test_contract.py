"""A journal store keeps the storage contract, over memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import settings

from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.url import parse_journal
from fairlead.storage.protocol import Store
from fairlead.testing.contract import SharingContract, StoreContract
from fairlead.testing.machine import compare_with_memory
from fairlead.testing.strategies import STEADY
from tests.storage.journal.current import CurrentStore
from tests.storage.journal.noting_memory import NotingMemoryStore
from tests.storage.postgres.emptying import empty_journal


class TestJournalOverMemory(StoreContract, SharingContract):
    pass


@pytest.mark.slow
def test_a_journal_over_memory_agrees_with_memory(url: str) -> None:
    @asynccontextmanager
    async def opened_empty() -> AsyncIterator[Store]:
        empty_journal(url)
        store = CurrentStore(NotingMemoryStore(), Journal(parse_journal(url)))
        try:
            yield store
        finally:
            await store.close()

    # Fewer examples: the hot store answers for itself elsewhere.
    compare_with_memory(opened_empty, settings=settings(STEADY, max_examples=15))
