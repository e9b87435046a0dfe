"""Tasks that nobody here can run wait for somebody who can."""

from __future__ import annotations

import logging

import pytest

from fairlead.core.identity import WorkerId
from fairlead.core.task import Reason, State, Task
from fairlead.worker.keeper.keeper import ThreadKeeper
from fairlead.worker.source import EngineSource
from fairlead.worker.worker import Worker
from tests.worker.building import Crew, eventually, reasons


async def test_a_task_of_an_unknown_type_is_left_untouched_and_said_once(
    crew: Crew, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def known() -> None: ...

    monkeypatch.setattr("fairlead.worker.worker._UNSERVED_INTERVAL", 0.01)
    looks = 0
    tally = crew.engine.store.tally

    async def counted() -> object:
        nonlocal looks
        looks += 1
        return await tally()

    monkeypatch.setattr(crew.engine.store, "tally", counted)
    crew.handle(known)
    strangers = [await crew.submit("stranger") for _ in range(3)]
    with caplog.at_level(logging.WARNING, "fairlead.worker"):
        async with crew.working():
            # Strangers do not block the line.
            await crew.until(await crew.submit("known"), State.COMPLETED)
            await eventually(lambda: looks >= 5)
    assert [await crew.engine.get(stranger.id) for stranger in strangers] == strangers
    assert [record.getMessage() for record in caplog.records] == [
        "3 tasks of type 'stranger' wait in the queues of this worker, and no live worker can run them; "
        "start one that has a handler and all capabilities"
    ]


class CarelessSource(EngineSource):
    """A source that hands out tasks of any type."""

    async def claim(self, limit: int, types: frozenset[str] | None = None) -> list[Task]:
        return await self._engine.claim(self._worker, self._queues, limit=limit)


async def test_a_task_of_an_unknown_type_that_comes_anyway_is_handed_back(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    async def known() -> None: ...

    crew.handle(known)
    stranger = await crew.submit("stranger")
    source = CarelessSource(crew.engine, WorkerId("worker-1"), ["default"], [], crew.handlers.types)
    worker = Worker(source, crew.handlers, ThreadKeeper(crew.engine))

    assert await worker.once() == 1
    await worker.idle()

    stored = await crew.engine.get(stranger.id)
    assert (stored.state, stored.status.retries, stored.status.crashes) == (State.SCHEDULED, 0, 0)
    assert reasons(stored) == [Reason.HANDED_BACK]
    assert "has the unknown type 'stranger'; handing it back" in caplog.text
    # No slot was spent on it.
    await crew.submit("known")
    assert await worker.once() == 1
    await worker.idle()
