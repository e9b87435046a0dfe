"""The journal finds what it is asked for; the contract asks for the rest."""

from __future__ import annotations

import pytest

from fairlead.core.events import Completed, Failed
from fairlead.core.identity import WorkerId
from fairlead.core.instant import SECOND
from fairlead.core.task import Failure, Reason, State, Task
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.journal.duties import Flusher, Leaver
from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.rows import Search
from fairlead.storage.journal.store import JournalStore
from fairlead.storage.journal.url import JournalAddress
from fairlead.storage.values import Filter
from fairlead.testing.builders import NOW, a_claim, a_removal, a_task
from fairlead.testing.steps import add, claim_one, ids, settle
from tests.storage.journal.current import CurrentStore
from tests.storage.journal.noting_memory import NotingMemoryStore


async def found(store: CurrentStore, search: Search) -> set[str]:
    return set(ids(await store.search(search, limit=50)))


class TestSearch:
    async def test_by_what_the_parameters_contain(self, store: CurrentStore) -> None:
        one = a_task(parameters=b'{"customer": 7, "lines": [{"sku": "a"}, {"sku": "b"}]}')
        other = a_task(parameters=b'{"customer": 8, "lines": []}')
        await add(store, one, other)
        assert await found(store, Search(parameters=b'{"customer": 7}')) == {one.id}
        assert await found(store, Search(parameters=b'{"lines": [{"sku": "b"}]}')) == {one.id}
        assert await found(store, Search(parameters=b"{}")) == {one.id, other.id}
        assert await found(store, Search(parameters=b'{"customer": "7"}')) == set()

    @pytest.mark.parametrize(
        "parameters", [b'{"a": "\\u0000"}', b'{"a": 1e999999}', b'{"a": "\\ud800"}', b'{"a": "' + b"x" * 20_000 + b'"}']
    )
    async def test_what_cannot_be_searched_is_kept_and_hinders_no_one(
        self, store: CurrentStore, parameters: bytes
    ) -> None:
        odd, plain = a_task(parameters=parameters), a_task(parameters=b'{"b": 1}')
        await add(store, odd, plain)
        assert await found(store, Search()) == {odd.id, plain.id}
        assert await found(store, Search(parameters=b'{"b": 1}')) == {plain.id}

    async def test_by_the_words_of_an_error(self, store: CurrentStore) -> None:
        refused = await _failed(store, Failure(type="ConnectionError", message="refused by db-3: it's full\0"))
        await _failed(store, Failure(type="KeyError", message="no such customer"))
        assert await found(store, Search(error="connectionerror REFUSED")) == {refused.id}
        assert await found(store, Search(error="it's")) == {refused.id}
        assert await found(store, Search(error="refused customer")) == set()
        assert await found(store, Search(error="'; DROP TABLE task --")) == set()

    async def test_by_the_worker_that_ran_it(self, store: CurrentStore) -> None:
        await add(store, a_task(), a_task())
        ran = await settle(store, await claim_one(store, a_claim(worker=WorkerId("anna"))), Completed())
        runs = await claim_one(store, a_claim(worker=WorkerId("anna")))
        assert await found(store, Search(ran_by="anna")) == {ran.id, runs.id}
        assert await found(store, Search(matching=Filter(worker=WorkerId("anna")))) == {runs.id}

    async def test_by_when_it_ended(self, store: CurrentStore) -> None:
        await add(store, a_task(), a_task())
        early = await settle(store, await claim_one(store), Completed(), NOW)
        late = await settle(store, await claim_one(store), Completed(), NOW + SECOND)
        assert await found(store, Search(ended_from=NOW + 1)) == {late.id}
        assert await found(store, Search(ended_before=NOW + 1)) == {early.id}

    async def test_all_at_once_in_pages(self, store: CurrentStore) -> None:
        wanted = [
            a_task(queue="mail", type="send", tags=("a", "b"), parameters=b'{"n": 1}', state=State.SCHEDULED)
            for _ in range(25)
        ]
        await add(store, *wanted, *(a_task(queue="mail", type="send", tags=("b",)) for _ in range(5)))
        matching = Filter(states=frozenset({State.SCHEDULED}), queue="mail", type="send", tag="a", created_from=NOW)
        search = Search(matching=matching, parameters=b'{"n": 1}')
        seen: list[Task] = []
        while page := await store.search(search, limit=10, after=seen[-1].id if seen else None):
            seen += page
        assert ids(seen) == ids(wanted)[::-1]


async def test_history_tells_each_attempt(store: CurrentStore) -> None:
    task = await _failed(store, Failure(type="ValueError", message="no"))
    (entry,) = await store.history(task.id)
    assert (entry.attempt, entry.worker, entry.started_at, entry.at) == (1, "worker-1", NOW, NOW)
    assert (entry.reason, entry.failure) == (Reason.REJECTED, Failure(type="ValueError", message="no"))


def test_synchronous_code_can_drive_it(address: JournalAddress) -> None:
    async def live() -> None:
        hot = NotingMemoryStore()
        store = JournalStore(hot, Journal(address, blocking=True))
        await add(store, a_task(), a_task())
        ended = await settle(store, await claim_one(store), Completed())
        await Flusher(hot, store.journal).all()
        await Leaver(hot, store.journal).once()
        assert await hot.get([ended.id]) == [None]
        assert len(await store.find(Filter(), limit=5)) == 2
        await store.apply([a_removal(ended)])
        assert await store.get([ended.id]) == [None]
        await store.close()

    run_inline(live())


async def _failed(store: CurrentStore, failure: Failure) -> Task:
    await add(store, a_task())
    return await settle(store, await claim_one(store), Failed(failure=failure, retriable=False))
