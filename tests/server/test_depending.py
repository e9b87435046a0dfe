"""Tasks that wait for others, over HTTP."""

from __future__ import annotations

from typing import Any

from fairlead.core.events import Completed
from tests.server.serving import Service

BATCH = "/api/v1/tasks/batch"


def a_task(**wish: Any) -> dict[str, Any]:
    return {"task_type": "send_mail", **wish}


async def test_a_task_shows_what_it_waits_for(service: Service) -> None:
    first = (await service.submit())["task_id"]
    last = await service.submit(after=[first], on_failure="run_anyway")
    assert (last["status"], last["queue_position"]) == ("scheduled", None)
    shown = await service.show(last["task_id"])
    assert shown["reason"] == "dependent"
    assert (shown["after"], shown["pending"], shown["unmet"], shown["on_failure"]) == ([first], 1, 0, "run_anyway")
    plain = await service.show(first)
    assert (plain["after"], plain["pending"], plain["on_failure"]) == ([], 0, None)


async def test_what_ended_before_is_not_waited_for(service: Service) -> None:
    ended = await service.ended(Completed())
    assert (await service.submit(after=[ended]))["status"] == "queued"


async def test_tasks_of_a_batch_name_earlier_ones_by_position(service: Service) -> None:
    tasks = [a_task(), a_task(priority=5), a_task(), a_task(after=[0, 2]), a_task(after=[1]), a_task(after=[4])]
    answer = await service.post(BATCH, tasks, 207)
    assert [each["status"] for each in answer["results"]] == [201, 422, 201, 201, 422, 422]
    stored = {each["index"]: each["task"]["task_id"] for each in answer["results"] if "task" in each}
    assert (await service.show(stored[3]))["after"] == [stored[0], stored[2]]
    details = [each["problem"]["detail"] for each in answer["results"] if "problem" in each]
    assert details[1:] == [
        "after names task 1 of the same batch, which was refused",
        "after names task 4 of the same batch, which was refused",
    ]


async def test_an_id_that_is_unknown_or_none_is_refused(service: Service) -> None:
    unknown = "019a85f3c2d08000a3d25f1e9c7b4a60"
    problem = await service.submit(422, after=[unknown])
    assert problem["field"] == "after"
    assert problem["detail"].startswith(f"after names task {unknown}, which is not stored")
    assert (await service.submit(422, after=["nonsense"]))["field"] == "after"
    assert (await service.submit(422, after=[0]))["field"] == "after"
    assert (await service.submit(422, after=[True]))["field"].startswith("after")
    assert (await service.submit(422, after=[], on_failure="explode"))["field"] == "on_failure"


async def test_a_stream_of_lines_has_no_positions(service: Service) -> None:
    body = b'{"task_type": "a"}\n{"task_type": "b", "after": [0]}\n'
    headers = {"content-type": "application/x-ndjson"}
    response = await service.client.post(BATCH, content=body, headers=headers)
    _, refused = response.text.splitlines()
    assert "which a stream of lines does not support; name tasks by their ids" in refused
