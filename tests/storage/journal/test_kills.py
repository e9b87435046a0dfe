"""Processes on Redis with a journal, one of which is killed or stopped now and then: nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from fairlead.core.identity import TaskId
from fairlead.core.task import State
from fairlead.storage.journal.duties import Flusher, Reconciler
from fairlead.storage.journal.store import JournalStore
from fairlead.storage.journal.url import parse_journal
from fairlead.storage.open import open_store
from fairlead.storage.postgres.rows import CODES
from fairlead.storage.values import Filter
from tests.chaos.children import Child
from tests.chaos.ledger import read_ledger
from tests.servers.redis import RedisServer
from tests.storage.journal.waiting import until

_HANDS = 3
_STOPPED_FOR = 3.0
"""Longer than the lease of a deckhand's task: when it goes on, its tasks are another's."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("total", "kills"), [(15_000, 5), pytest.param(40_000, 60, marks=[pytest.mark.soak, pytest.mark.timeout(900)])]
)
async def test_nothing_is_lost_or_done_twice(
    total: int, kills: int, tmp_path: Path, redis: RedisServer, prefix: str, url: str
) -> None:
    crew = Crew(tmp_path, total, redis.url(prefix=prefix), f"{url}?hot_retention=1")
    await asyncio.to_thread(crew.work, kills)
    await crew.assert_all_done_once()


class Crew:
    """Processes that share a store; whoever is killed is replaced, and now and then one is a zombie for a while."""

    def __init__(self, folder: Path, total: int, redis: str, journal: str) -> None:
        self._folder = folder
        self._total = total
        self._redis = redis
        self._journal = journal
        self._ledgers: list[Path] = []
        self._chance = random.Random(total)

    def work(self, kills: int) -> None:
        start = time.monotonic()
        hands = [self._hire(number) for number in range(_HANDS)]
        done = 0
        try:
            while done < kills or self._completed() < self._total:
                assert time.monotonic() < start + 100 + 10 * kills, f"only {self._completed()} are done"
                time.sleep(0.2)
                if done < kills and time.monotonic() > start + 1.5 + done:
                    self._hit(hands, self._chance.randrange(_HANDS), zombie=done % 2 == 1)
                    done += 1
            for hand in hands:
                hand.stop()
        finally:
            for hand in hands:
                if hand.running:
                    hand.kill()
        refused = len(self._lines("refused"))
        print(f"{self._total} tasks, {kills} hits in {time.monotonic() - start:.1f} s, {refused} settles refused")

    async def assert_all_done_once(self) -> None:
        store = await open_store(self._redis, journal=self._journal)
        assert isinstance(store, JournalStore)

        async def is_level() -> bool:
            await Flusher(store.hot, store.journal).all()
            return await store.behind() == 0

        await until(is_level)
        await Reconciler(store.hot, store.journal, age=0).once()
        tasks = {task.id: task for task in await store.find(Filter(), limit=2 * self._total)}
        await store.close()
        assert Counter(task.state for task in tasks.values()) == {State.COMPLETED: self._total}
        assert len({task.spec.idempotency_key for task in tasks.values()}) == self._total
        for number, task_id in self._lines("submitted"):
            assert tasks[TaskId(task_id)].spec.idempotency_key == f"number-{number}"
        accepted = Counter(task_id for task_id, *_ in self._lines("accepted"))
        assert all(times == 1 for times in accepted.values())
        for task_id, attempt, name in self._lines("accepted"):
            status = tasks[TaskId(task_id)].status
            assert (status.attempts, status.result) == (int(attempt), f'"{name}"'.encode())
        print(f"{sum(task.status.crashes for task in tasks.values())} attempts were recovered from the killed")
        for task in tasks.values():
            assert [entry.state for entry in task.status.history].count(State.COMPLETED) == 1

    def _hit(self, hands: list[Child], number: int, *, zombie: bool) -> None:
        if not zombie:
            hands[number].kill()
            hands[number] = self._hire(number)
            return
        pid = hands[number]._process.pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(_STOPPED_FOR)
        os.kill(pid, signal.SIGCONT)

    def _hire(self, number: int) -> Child:
        ledger = self._folder / f"ledger-{len(self._ledgers)}"
        self._ledgers.append(ledger)
        name = f"hand-{len(self._ledgers)}"
        return Child(
            "tests.storage.journal.hand", self._redis, self._journal, ledger, name, number, _HANDS, self._total
        )

    def _completed(self) -> int:
        database = parse_journal(self._journal).database
        with psycopg.connect(database.conninfo) as connection:
            count = f'SELECT count(*) FROM "{database.schema}".status WHERE state = {CODES[State.COMPLETED]}'
            row = connection.execute(count.encode()).fetchone()
            return int(row[0]) if row else 0

    def _lines(self, word: str) -> list[list[str]]:
        return [line for ledger in self._ledgers for line in read_ledger(ledger, word)]
