"""A worker and a circuit: what keeps failing waits until it is mended, and then all of it is done."""

from __future__ import annotations

import logging

import pytest

from fairlead.core.circuit import CircuitSettings, CircuitState
from fairlead.core.instant import MILLISECOND
from fairlead.core.task import State
from tests.worker.building import SOON, Crew, eventually

SETTINGS = CircuitSettings(min_outcomes=5, open_for=300 * MILLISECOND, probes=2)


async def test_tasks_wait_while_their_type_fails_and_are_all_done_when_it_is_mended(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    mended = False

    async def fetch() -> None:
        if not mended:
            raise ConnectionError("the service is down")

    crew.handle(fetch)
    await crew.engine.circuits.set("fetch", SETTINGS)
    tasks = [await crew.submit("fetch", max_retries=10_000, backoff=SOON) for _ in range(20)]
    with caplog.at_level(logging.INFO, "fairlead.circuits"):
        async with crew.working(concurrency=4):
            await eventually(lambda: "is open" in caplog.text, "an open circuit")
            mended = True
            for task in tasks:
                assert (await crew.until_ended(task)).state is State.COMPLETED
            await eventually(lambda: "is closed" in caplog.text, "a closed circuit")
    assert (await crew.engine.circuits.get("fetch")).state is CircuitState.CLOSED
    assert caplog.text.index("is open") < caplog.text.index("is half-open") < caplog.text.index("is closed")
