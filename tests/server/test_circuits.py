"""Circuits over HTTP, on every store: set, shown, turned by failures and by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.core.instant import SECOND
from tests.server.serving import Service
from tests.server.workers import Hand

LIMITS = {"failure_ratio": 0.75, "window_seconds": 20.0, "min_outcomes": 3, "open_seconds": 10.0, "probes": 1}
PATH = "/api/v1/task-types/flaky/circuit"


async def put(service: Service, body: Any, status: int = 200) -> Any:
    answer = await service.client.put(PATH, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_a_circuit_is_set_shown_changed_and_removed(service: Service) -> None:
    assert await put(service, LIMITS) == {
        "task_type": "flaky",
        "state": "closed",
        "since": None,
        "half_opens_at": None,
        "outcomes": 0,
        "failures": 0,
        "probes_passed": 0,
        "settings": LIMITS,
        "declared": False,
    }
    changed = await put(service, {"probes": 7})
    assert (changed["settings"]["probes"], changed["settings"]["min_outcomes"]) == (7, 20)
    kept = await put(service, {"probes": 9, "declared": True})
    assert (kept["settings"]["probes"], kept["declared"]) == (7, False)
    assert await service.get(PATH) == kept
    assert await service.get("/api/v1/circuits") == {"circuits": [kept]}
    assert (await service.client.delete(PATH)).json() == kept
    problem = (await service.client.get(PATH)).json()
    assert problem["status"] == 404 and "'flaky' has no circuit breaker" in problem["detail"]


async def test_what_workers_report_opens_it_and_stats_say_so(service: Service) -> None:
    await put(service, LIMITS)
    for _ in range(5):
        await service.submit(task_type="flaky", retry_policy={"initial_seconds": 0})
    hand = await Hand.hired(service)
    for task in await hand.poll(3):
        await hand.result(task, "failed", error={"message": "down"})
    service.clock.advance(SECOND)
    assert await hand.poll(5) == []
    (circuit,) = (await service.get("/api/v1/queue/stats"))["circuits"]
    assert (circuit["state"], circuit["outcomes"], circuit["failures"]) == ("open", 3, 3)
    assert circuit["half_opens_at"] is not None

    service.clock.advance(10 * SECOND)
    (probe,) = await hand.poll(5)
    assert (await service.get(PATH))["state"] == "half_open"
    await hand.result(probe)
    assert (await service.get(PATH))["state"] == "closed"
    service.clock.advance(SECOND)
    assert len(await hand.poll(9)) == 4


async def test_it_is_opened_and_closed_by_hand(service: Service) -> None:
    await put(service, LIMITS)
    await service.submit(task_type="flaky")
    hand = await Hand.hired(service)
    assert (await service.post(f"{PATH}/open", None, 200))["state"] == "open"
    assert await hand.poll(1) == []
    assert (await service.post(f"{PATH}/close", None, 200))["state"] == "closed"
    assert len(await hand.poll(1)) == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"failure_ratio": 0}, "failure_ratio"),
        ({"failure_ratio": 1.5}, "failure_ratio"),
        ({"window_seconds": 0}, "window_seconds"),
        ({"min_outcomes": 0}, "min_outcomes"),
        ({"open_seconds": -1}, "open_seconds"),
        ({"probes": 0}, "probes"),
        ({"probe": 1}, "probe"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(service: Service, body: Any, field: str) -> None:
    assert (await put(service, body, 422))["field"] == field
