"""Explaining a task over HTTP, and the warnings that a submit is answered with, on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.client.engine import RemoteEngine
from fairlead.client.http.open import open_transport
from fairlead.client.http.transport import Address
from fairlead.core.events import Completed
from fairlead.core.explain.explanation import CauseCode
from fairlead.core.identity import WorkerId
from fairlead.core.instant import SECOND
from fairlead.core.submission import Submission
from fairlead.engine import submit
from fairlead.storage.open import open_store
from tests.client.serving import Port
from tests.server.serving import NOBODY, Service


async def explained(service: Service, task_id: str) -> Any:
    return await service.get(f"/api/v1/tasks/{task_id}/explain")


async def join(service: Service, **what: Any) -> None:
    about: dict[str, Any] = {"queues": ["default"], "capacity": 4} | what
    await service.engine.worker_records.register(WorkerId("one"), **about)
    service.advance(submit.FRESH / SECOND)


async def test_a_queued_task_is_told_its_place_and_its_prospects(service: Service) -> None:
    await join(service)
    await service.submit(priority="high")
    answer = await service.submit(priority="low")
    told = await explained(service, answer["task_id"])
    assert (told["status"], told["priority"], told["effective_priority"]) == ("queued", "low", "low")
    line = told["line"]
    assert (line["position"], line["ahead"], line["exact"]) == (2, 1, True)
    assert line["ahead_by_effective_priority"] == {"critical": 0, "high": 1, "medium": 0, "low": 0}
    assert line["next_promotion"] == {"at": "2027-01-15T08:10:05.000000Z", "to": "medium"}
    assert (line["unpassable_from"], line["turns_from"]) == (None, "2027-01-15T09:00:05.000000Z")
    assert line["unreached"] is None
    assert told["forecast"]["worker_ids"] == ["one"] and told["forecast"]["free_slots"] == 4
    assert told["forecast"]["estimated_start"] == told["at"]
    assert told["summary"] == "it is queued: 1 task is ahead of it, as they are treated: 1 high"


async def test_an_ended_task_is_told_its_attempts(service: Service) -> None:
    task_id = await service.ended(Completed(b"1"))
    told = await explained(service, task_id)
    assert [cause["code"] for cause in told["causes"]] == ["attempt_began", "ended"]
    assert (told["line"], told["forecast"], told["due_at"]) == (None, None, None)


async def test_no_task_is_not_found(service: Service) -> None:
    for unknown in (NOBODY, "no-id"):
        problem = await service.get(f"/api/v1/tasks/{unknown}/explain", 404)
        assert problem["type"].endswith("not-found")


async def test_a_submit_that_no_live_worker_could_run_is_answered_with_a_warning(service: Service) -> None:
    (warning,) = (await service.submit())["warnings"]
    assert (warning["code"], warning["blocks"]) == ("no_workers", True)
    await join(service, types=["other"])
    (warning,) = (await service.submit())["warnings"]
    assert warning["code"] == "type_unknown"
    assert warning["data"] == {"type": "send_mail", "queue": "default", "workers": 1}
    batch = await service.post("/api/v1/tasks/batch", {"tasks": [{"task_type": "other"}, {"task_type": "send_mail"}]})
    assert ["warnings" in result["task"] for result in batch["results"]] == [False, True]


async def test_a_submit_that_a_worker_could_run_is_answered_without(service: Service) -> None:
    await join(service)
    assert "warnings" not in await service.submit()


@pytest.fixture
async def remote() -> AsyncIterator[RemoteEngine]:
    port = Port(await open_store("memory://"))
    await port.open()
    engine = RemoteEngine(open_transport(Address(port.url), blocking=False))
    try:
        yield engine
    finally:
        await engine.close()
        await port.end()


async def test_a_client_gets_the_same_values_as_on_the_store(remote: RemoteEngine) -> None:
    submitted = await remote.submit(Submission(type="send_mail", parameters=b"{}"))
    (doubt,) = await remote.doubts(submitted)
    assert doubt.code == CauseCode.NO_WORKERS and doubt.blocks
    told = await remote.explain(submitted.task.id)
    assert told.task_id == submitted.task.id and told.causes == (doubt,)
    assert told.line is not None and told.line.position is None and told.line.unreached == doubt.text
    assert told.line.next_promotion is not None
    assert told.forecast is not None and told.forecast.workers == 0
    later = await remote.submit(Submission(type="send_mail", parameters=b"{}", delay=60 * SECOND))
    assert (await remote.explain(later.task.id)).due_at == later.task.status.ready_at
