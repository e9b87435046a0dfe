"""What answers tell beside the bare fact, on every store, with and without a journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.core.events import CancelConfirmed, Completed, Failed
from fairlead.storage.open import open_store
from fairlead.storage.values import Beat, Pulse
from tests.server.serving import BOOM, Service
from tests.servers.stores import Place, place

__all__ = ["place"]

NOON = "2027-01-15T08:00:00.000000Z"
"""What the manual clock says at first."""


@pytest.fixture
async def any_service(place: Place) -> AsyncIterator[Service]:
    """A server on an empty store of each kind."""
    async with Service(await open_store(place.url, journal=place.journal)) as service:
        yield service


# Cancel


async def test_cancelling_a_task_that_waits_tells_when_and_that_no_worker_had_to_hear_of_it(
    any_service: Service,
) -> None:
    task_id = (await any_service.submit())["task_id"]
    any_service.advance(5)
    assert await any_service.delete(f"/api/v1/tasks/{task_id}") == {
        "task_id": task_id,
        "status": "cancelled",
        "was_executing": False,
        "worker_notified": False,
        "cancellation_time": "2027-01-15T08:00:05.000000Z",
    }


async def test_a_worker_is_notified_once_its_heartbeat_was_answered_with_the_cancel(any_service: Service) -> None:
    task_id = (await any_service.submit())["task_id"]
    (task,) = await any_service.claim()
    assert task.status.lease is not None
    beat = Beat(task.id, task.status.lease.token)
    assert await any_service.engine.heartbeat([beat]) == [Pulse.HELD]
    asked = await any_service.delete(f"/api/v1/tasks/{task_id}", 202, wait=0)
    assert (asked["worker_notified"], asked["cancellation_time"]) == (False, NOON)

    any_service.advance(3)
    cancelling = asyncio.create_task(any_service.delete(f"/api/v1/tasks/{task_id}", 202, wait=1))
    while not any_service.hub.endings._waiting:  # noqa: ASYNC110 - nothing tells that somebody waits
        await asyncio.sleep(0)
    assert await any_service.engine.heartbeat([beat]) == [Pulse.CANCEL]
    assert await cancelling == {
        "task_id": task_id,
        "status": "cancel_requested",
        "was_executing": True,
        "worker_notified": True,
        "cancellation_time": NOON,
    }


async def test_a_worker_that_stops_a_task_has_been_notified_and_one_that_completes_it_may_not(
    any_service: Service,
) -> None:
    for outcome, status, notified in ((CancelConfirmed(), "cancelled", True), (Completed(), "completed", False)):
        task_id = (await any_service.submit())["task_id"]
        (task,) = await any_service.claim()
        cancelling = asyncio.create_task(any_service.delete(f"/api/v1/tasks/{task_id}", wait=60))
        while not any_service.hub.endings._waiting:  # noqa: ASYNC110 - nothing tells that somebody waits
            await asyncio.sleep(0)
        await any_service.settle(task, outcome)
        answer = await cancelling
        assert (answer["status"], answer["worker_notified"]) == (status, notified)


# A task


async def test_an_error_says_whether_it_is_retried(any_service: Service) -> None:
    rejected = await any_service.ended(Failed(failure=BOOM, retriable=False))
    used_up = await any_service.ended(Failed(failure=BOOM), max_retries=0)
    again = await any_service.ended(Failed(failure=BOOM, after=0), max_retries=1)
    for task_id, status, retriable in (
        (rejected, "failed", False),
        (used_up, "dead_letter", True),
        (again, "queued", True),
    ):
        shown = await any_service.show(task_id)
        assert (shown["status"], shown["error"]["retriable"]) == (status, retriable)
    assert (await any_service.show((await any_service.submit())["task_id"]))["error"] is None


async def test_a_task_without_a_trace_belongs_to_one_by_its_own_id_and_stores_none(any_service: Service) -> None:
    own, given = [(await any_service.submit(**wish))["task_id"] for wish in ({}, {"trace_id": "order-17"})]
    assert (await any_service.show(own))["trace_id"] == own
    assert (await any_service.show(given))["trace_id"] == "order-17"
    assert (await any_service.engine.get(own)).spec.trace is None
    worker = (await any_service.post("/internal/workers/register", {"capacity": 5}, 201))["worker_id"]
    polled = await any_service.post(f"/internal/workers/{worker}/poll", {"available_capacity": 5})
    assert {each["task_id"]: each["trace_id"] for each in polled["tasks"]} == {own: own, given: "order-17"}
