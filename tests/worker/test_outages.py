"""A store that fails for a while costs time, never an outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.core.instant import SECOND
from fairlead.core.settings import Settings
from fairlead.core.task import Reason, State
from fairlead.storage.values import Change, Verdict
from tests.worker.building import SETTINGS, SOON, Crew, eventually, reasons
from tests.worker.faults import FaultyStore

LONG = Settings(defaults=SETTINGS.defaults, lease=60 * SECOND, heartbeat=SECOND // 5, sweep_interval=SECOND // 20)


async def test_outcomes_are_delivered_when_the_store_is_back(caplog: pytest.LogCaptureFixture) -> None:
    store = FaultyStore()
    crew = Crew(LONG, store)

    async def work() -> str:
        return "precious"

    crew.handle(work)
    tasks = [await crew.submit("work") for _ in range(10)]
    store.after_claim = lambda: setattr(store, "error", StoreUnavailable("the cable was cut"))
    with caplog.at_level(logging.WARNING, "fairlead.worker"):
        async with crew.working():
            await eventually(lambda: store.refused >= 3)
            claims: list[None] = []
            store.after_claim = lambda: claims.append(None)
            store.error = None
            ends = [await crew.until_ended(task) for task in tasks]
            # Who leaves after a claim that failed cannot know what it was granted, and says so.
            await eventually(lambda: bool(claims))
    assert [(end.state, end.status.attempts, end.status.result) for end in ends] == [
        (State.COMPLETED, 1, b'"precious"')
    ] * 10
    said = [record.getMessage() for record in caplog.records if "settle tasks" in record.getMessage()]
    assert said[0] == "cannot settle tasks, retrying until it works: the cable was cut"
    assert said[1].startswith("can settle tasks again after ")
    assert len(said) == 2


async def test_a_worker_that_cannot_claim_goes_on_trying(caplog: pytest.LogCaptureFixture) -> None:
    store = FaultyStore()
    crew = Crew(LONG, store)

    async def work() -> None: ...

    crew.handle(work)
    task = await crew.submit("work")
    store.error, tries = StoreUnavailable("the cable was cut"), 0

    def count() -> None:
        nonlocal tries
        tries += 1

    store.before_claim = count
    with caplog.at_level(logging.WARNING, "fairlead.worker"):
        async with crew.working():
            await eventually(lambda: tries >= 3)
            store.error = None
            assert (await crew.until_ended(task)).state is State.COMPLETED
    said = [record.getMessage() for record in caplog.records if "claim tasks" in record.getMessage()]
    assert len(said) == 2


async def test_an_outcome_that_cannot_be_stored_does_not_take_others_with_it(caplog: pytest.LogCaptureFixture) -> None:
    store = FaultyStore()
    short = Settings(defaults=SETTINGS.defaults, lease=SECOND, heartbeat=SECOND // 5, sweep_interval=SECOND // 20)
    crew = Crew(short, store)
    together = asyncio.Event()

    async def work() -> None:
        await together.wait()

    crew.handle(work)
    tasks = [await crew.submit("work") for _ in range(10)]
    cursed = tasks[4]
    async with crew.working():
        for task in tasks:
            await crew.until(task, State.EXECUTING)
        store.cursed[cursed.id] = ZeroDivisionError("a bug of the store")
        together.set()
        for task in tasks:
            if task is not cursed:
                assert (await crew.until_ended(task)).state is State.COMPLETED
        await eventually(lambda: f"task {cursed.id}: cannot store its outcome" in caplog.text)
        store.cursed.clear()
        # Nobody renews its lease for the ten minutes of its timeout: it ends soon, and the task is tried again.
        end = await crew.until_ended(cursed)
    assert (end.state, reasons(end)[0]) == (State.COMPLETED, Reason.WORKER_LOST)


async def test_an_outcome_that_comes_too_late_leaves_the_next_attempt_alone(caplog: pytest.LogCaptureFixture) -> None:
    """An attempt's outcome waits out an outage; meanwhile its lease is lost and the same worker has the task again."""
    store = FaultyStore()
    short = Settings(defaults=SETTINGS.defaults, lease=SECOND, heartbeat=SECOND // 5, sweep_interval=SECOND // 20)
    crew = Crew(short, store)
    attempts: list[int] = []
    release = asyncio.Event()

    async def work() -> str:
        attempts.append(1)
        if len(attempts) > 1:
            await release.wait()
        return f"attempt {len(attempts)}"

    crew.handle(work)
    async with crew.working():
        task = await crew.submit("work", backoff=SOON)
        store.cursed[task.id] = StoreUnavailable("the cable was cut")
        await eventually(lambda: store.refused >= 1)
        await crew.lose_lease(task)
        await crew.until(task, lambda stored: stored.status.attempts == 2)
        store.cursed.clear()
        await eventually(lambda: "lease lost before its outcome was stored" in caplog.text)
        # The second attempt is held for several leases.
        held = await crew.engine.get(task.id)
        await crew.until(task, lambda stored: stored.status.beats >= held.status.beats + 12)
        release.set()
        end = await crew.until_ended(task)
    assert (end.state, end.status.attempts, end.status.result) == (State.COMPLETED, 2, b'"attempt 2"')


async def test_an_outcome_that_cannot_be_stored_is_told_by_another_one() -> None:
    class Picky(FaultyStore):
        async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
            if any(change.status is not None and change.status.result for change in changes):
                raise ZeroDivisionError("a bug of the store")
            return await super().apply(changes)

    crew = Crew(SETTINGS, Picky())

    async def work() -> int:
        return 1

    crew.handle(work)
    async with crew.working():
        end = await crew.until_ended(await crew.submit("work"))
    assert (end.state, end.status.reason, end.status.attempts) == (State.FAILED, Reason.REJECTED, 1)
    assert end.status.failure is not None
    assert end.status.failure.type == "OutcomeNotStorable"
    assert "how (complete) cannot be stored: ZeroDivisionError: a bug of the store" in end.status.failure.message
