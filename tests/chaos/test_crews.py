"""Four processes on one file, one of which is killed every second: nothing is lost and nothing is done twice."""

from __future__ import annotations

import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.core.task import State, Task
from fairlead.storage.sqlite.database import connect
from fairlead.testing.steps import contents, opened
from tests.chaos.children import Child
from tests.chaos.ledger import read_ledger
from tests.storage.sqlite.surveying import completed, log_size, survey

_HANDS = 4


@pytest.mark.slow
async def test_four_processes_lose_nothing_when_one_is_killed_now_and_then(tmp_path: Path) -> None:
    crew = Crew(tmp_path, total=4_000)
    crew.work(until_next_kill=lambda kills: crew.done() >= (kills + 1) * 700)
    assert crew.kills >= 4
    await crew.assert_all_done_once()


@pytest.mark.slow
async def test_four_processes_lose_nothing_when_one_is_killed_every_second(tmp_path: Path) -> None:
    crew = Crew(tmp_path, total=20_000)
    start = time.monotonic()
    # A quick machine is done within seconds.
    crew.work(until_next_kill=lambda kills: time.monotonic() >= start + kills + 1 or crew.done() >= (kills + 1) * 4_000)
    assert crew.kills >= 4
    await crew.assert_all_done_once()


@pytest.mark.soak
async def test_four_processes_lose_nothing_in_many_kills(tmp_path: Path) -> None:
    crew = Crew(tmp_path, total=200_000, patience=6_000.0)
    start = time.monotonic()
    crew.work(until_next_kill=lambda kills: time.monotonic() >= start + kills + 1)
    await crew.assert_all_done_once()


class Crew:
    """Four processes that share a file; whoever is killed is replaced."""

    def __init__(self, folder: Path, total: int, patience: float = 280.0) -> None:
        self.path = folder / "tasks.db"
        self.kills = 0
        connect(self.path, synchronous="FULL").close()
        self._watch = sqlite3.connect(self.path, timeout=patience)
        self._folder = folder
        self._patience = patience
        self._total = total
        self._ledgers: list[Path] = []
        self._chance = random.Random(total)

    def work(self, until_next_kill: Callable[[int], bool]) -> None:
        """Let them work until every task is done, and kill one whenever it is time."""
        start = time.monotonic()
        hands = [self._hire(number) for number in range(_HANDS)]
        longest_log = 0
        try:
            while self.done() < self._total:
                assert time.monotonic() < start + self._patience, (
                    f"not done after {self._patience:g} s: {survey(self.path)}"
                )
                for hand in hands:
                    assert hand.running, "a process ended by itself"
                if until_next_kill(self.kills):
                    number = self._chance.randrange(_HANDS)
                    hands[number].kill()
                    hands[number] = self._hire(number)
                    self.kills += 1
                longest_log = max(longest_log, log_size(self.path))
                time.sleep(0.01)
            seconds = time.monotonic() - start
            for hand in hands:
                hand.stop()
        finally:
            for hand in hands:
                if hand.running:
                    hand.kill()
        waits = [float(wait) for (wait,) in self._lines("waited")]
        print(
            f"{self._total} tasks, {self.kills} kills in {seconds:.1f} s; longest wait {max(waits):.2f} s; "
            f"{len(self._lines('unavailable'))} unavailable, {len(self._lines('refused'))} settles refused; "
            f"log at most {longest_log / 1e6:.1f} MB"
        )

    def done(self) -> int:
        return completed(self._watch)

    async def assert_all_done_once(self) -> None:
        assert survey(self.path) == {State.COMPLETED.value: self._total}
        async with opened(f"sqlite:///{self.path}") as store:
            tasks: dict[str, Task] = {task.id: task for task in await contents(store)}
        assert Counter(task.spec.idempotency_key for task in tasks.values()) == Counter(
            f"number-{number}" for number in range(self._total)
        )
        for number, task_id in self._lines("submitted"):
            assert tasks[task_id].spec.idempotency_key == f"number-{number}"
        accepted = Counter(task_id for task_id, *_ in self._lines("accepted"))
        assert all(times == 1 for times in accepted.values())
        for task_id, attempt, name in self._lines("accepted"):
            assert tasks[task_id].status.attempts == int(attempt)
            assert tasks[task_id].status.result == f'"{name}"'.encode()
        for task in tasks.values():
            assert [entry.state for entry in task.status.history].count(State.COMPLETED) == 1
            assert task.status.attempts == task.status.crashes + 1
        print(f"{sum(task.status.crashes for task in tasks.values())} attempts were recovered from the killed")

    def _hire(self, number: int) -> Child:
        ledger = self._folder / f"ledger-{len(self._ledgers)}"
        self._ledgers.append(ledger)
        name, url = f"hand-{len(self._ledgers)}", f"sqlite:///{self.path}"
        return Child("tests.chaos.deckhand", url, ledger, name, number, _HANDS, self._total)

    def _lines(self, word: str) -> list[list[str]]:
        return [line for ledger in self._ledgers for line in read_ledger(ledger, word)]
