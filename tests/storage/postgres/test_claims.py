"""How far a claim looks when others are taking the same tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from fairlead.storage.postgres.connection.pool import Connections
from fairlead.storage.postgres.connection.session import Row
from fairlead.storage.postgres.statements import Statement
from fairlead.storage.postgres.store import PostgresStore
from fairlead.testing.builders import a_claim, some_tasks
from fairlead.testing.steps import add

_HOLD = "SELECT id FROM fairlead.task WHERE state = 1 ORDER BY ready_at, id LIMIT 30 FOR UPDATE"


class Counting:
    """Counts the statements that pass."""

    def __init__(self, inner: Connections) -> None:
        self._inner = inner
        self.statements = 0

    async def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        self.statements += 1
        return await self._inner.fetch(statement, parameters)


async def test_a_claim_that_met_others_looks_further_at_once_the_next_time(store: PostgresStore, url: str) -> None:
    await add(store, *some_tasks(300))
    counting: Any = Counting(store._claimer._connections)
    store._claimer._connections = counting
    with psycopg.connect(url) as other:
        other.execute(_HOLD)
        assert len(await store.claim(a_claim(limit=20))) == 20
        assert counting.statements == 2
        assert len(await store.claim(a_claim(limit=20))) == 20
        assert counting.statements == 3


async def test_a_claim_looks_no_further_than_it_must_when_it_is_alone(store: PostgresStore) -> None:
    await add(store, *some_tasks(100))
    store._claimer._spare = 1_000
    for _ in range(100):
        await store.claim(a_claim(limit=1))
    assert store._claimer._spare == 8
