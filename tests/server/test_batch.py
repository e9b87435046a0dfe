"""Submitting many tasks over HTTP: as one document, and as a stream of lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.core.settings import Settings
from fairlead.server.routes.batch import Splitter
from fairlead.server.settings import ServerSettings
from fairlead.storage.memory import MemoryStore
from tests.server.serving import Service

BATCH = "/api/v1/tasks/batch"
LINES = {"content-type": "application/x-ndjson"}


def a_task(**wish: Any) -> dict[str, Any]:
    return {"task_type": "send_mail", **wish}


def results(response: httpx.Response) -> list[Any]:
    assert (response.status_code, response.headers["content-type"]) == (200, LINES["content-type"]), response.text
    return [json.loads(line) for line in response.text.splitlines()]


@pytest.mark.parametrize("bare", [False, True])
async def test_a_batch_is_stored(service: Service, bare: bool) -> None:
    tasks = [a_task(parameters={"n": n}, idempotency_key=f"k{n}") for n in range(3)]
    answer = await service.post(BATCH, tasks if bare else {"tasks": tasks})
    assert (answer["accepted"], answer["rejected"]) == (3, 0)
    assert [(each["index"], each["status"]) for each in answer["results"]] == [(0, 201), (1, 201), (2, 201)]
    assert [each["task"]["queue_position"] for each in answer["results"]] == [1, 2, 3]
    for n, each in enumerate(answer["results"]):
        assert (await service.show(each["task"]["task_id"]))["parameters"] == {"n": n}
    again = await service.post(BATCH, tasks)
    assert [each["status"] for each in again["results"]] == [200, 200, 200]
    assert [each["task"]["task_id"] for each in again["results"]] == [
        each["task"]["task_id"] for each in answer["results"]
    ]


async def test_each_task_of_a_batch_succeeds_or_fails_by_itself(service: Service) -> None:
    body = (
        b'{"tasks": [{"task_type": "a"}, {"task_type": 5}, {"priority": "low"}, {"task_type": "b", "colour": "red"}, 7,'
        b'{"task_type": "c", "task_type": "d"}, {"task_type": "e", "parameters": [1]}, {"task_type": "no good"},'
        b'{"task_type": "f", "timeout_seconds": 1e300}, {"task_type": "g", "parameters": {"x": {"y": 1, "y": 2}}},'
        b'{"task_type": "h", "delay_seconds": 1, "run_at": "2100-01-01T00:00:00Z"}, {"task_type": "i"},'
        b'{"task_type": "\xff"}]}'
    )
    response = await service.client.post(BATCH, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 207, response.text
    answer = response.json()
    assert (answer["accepted"], answer["rejected"]) == (2, 11)
    assert [each["index"] for each in answer["results"]] == list(range(13))
    statuses = [each["status"] for each in answer["results"]]
    assert statuses == [201, 422, 422, 422, 422, 400, 422, 422, 422, 400, 422, 201, 400]
    fields = [each["problem"].get("field") for each in answer["results"] if "problem" in each]
    assert fields == [
        *("task_type", "task_type", "colour", None, "task_type", "parameters", "task_type", "timeout_seconds"),
        *("y", "delay_seconds", None),
    ]
    stored = await service.engine.find()
    assert sorted(task.spec.type for task in stored) == ["a", "i"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'[{"task_type": "a"}', 400),
        (b'{"tasks": []}{}', 400),
        (b'{"tasks": [], "tasks": []}', 400),
        (b'{"tasks": [5], "\\u0074asks": []}', 400),
        (b"[" * 100_000, 400),
        (b"{}", 422),
        (b'{"tasks": {}}', 422),
        (b'{"tasks": [], "more": 1}', 422),
        (b'"text"', 422),
        (json.dumps([a_task()] * 1_001).encode(), 413),
        (json.dumps([{"wrong": 1}] * 1_001).encode(), 413),
        (b"[" + b" " * 11_000_000 + b"]", 413),
    ],
)
async def test_what_is_no_batch_is_refused_as_a_whole(in_memory: Service, body: bytes, status: int) -> None:
    response = await in_memory.client.post(BATCH, content=body, headers={"content-type": "application/json"})
    assert response.status_code == status, response.text
    assert response.json()["detail"] and await in_memory.engine.find() == []


async def test_an_empty_batch_is_answered_with_nothing(in_memory: Service) -> None:
    assert await in_memory.post(BATCH, []) == {"results": [], "accepted": 0, "rejected": 0}


async def test_a_large_batch_is_no_other(service: Service) -> None:
    answer = await service.post(BATCH, [a_task(parameters={"text": "a:b" * 100}) for _ in range(1_000)])
    assert answer["accepted"] == 1_000
    assert len({each["task"]["task_id"] for each in answer["results"]}) == 1_000


async def test_a_full_queue_takes_what_it_can() -> None:
    async with Service(MemoryStore(), Settings(queue_bound=2)) as service:
        answer = await service.post(BATCH, [a_task()] * 3, 207)
        assert [each["status"] for each in answer["results"]] == [201, 201, 429]
        assert answer["results"][2]["problem"]["field"] == "queue"


async def test_lines_are_stored_and_answered_in_order(service: Service) -> None:
    lines = [
        b'{"task_type": "a"}',
        b"",
        b"not json",
        b'  {"task_type": "b"}\r',
        b'{"task_type": 5}',
        b'{"task_type": "c"}',
    ]
    response = await service.client.post(BATCH, content=b"\n".join(lines), headers=LINES)
    answers = results(response)
    assert [(each["index"], each["status"]) for each in answers] == [(0, 201), (2, 400), (3, 201), (4, 422), (5, 201)]
    assert answers[3]["problem"]["field"] == "task_type"
    assert sorted(task.spec.type for task in await service.engine.find()) == ["a", "b", "c"]


async def test_lines_may_come_in_any_pieces(service: Service) -> None:
    text = b"".join(json.dumps(a_task(parameters={"n": n})).encode() + b"\n" for n in range(50))

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(text), 37):
            yield text[start : start + 37]

    answers = results(await service.client.post(BATCH, content=pieces(), headers=LINES))
    assert [(each["index"], each["status"]) for each in answers] == [(n, 201) for n in range(50)]


async def test_a_line_that_is_too_long_fails_alone() -> None:
    async with Service(MemoryStore(), server=ServerSettings(body_limit=100, rate_limit=0)) as service:
        text = b'{"task_type": "a"}\n{"task_type": "' + b"x" * 500 + b'"}\n{"task_type": "b"}'
        answers = results(await service.client.post(BATCH, content=text, headers=LINES))
        assert [each["status"] for each in answers] == [201, 413, 201]


async def test_lines_that_do_not_come_are_not_waited_for() -> None:
    async def stalled() -> AsyncIterator[bytes]:
        yield b'{"task_type": "a"}\n{"task_'
        await asyncio.Event().wait()

    async with Service(MemoryStore(), server=ServerSettings(body_seconds=0.05, rate_limit=0)) as service:
        answers = results(await service.client.post(BATCH, content=stalled(), headers=LINES))
        assert [(each["index"], each["status"]) for each in answers] == [(0, 201), (1, 408)]


async def test_a_server_that_stops_says_where_to_go_on() -> None:
    async with Service(MemoryStore()) as service:

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b'{"task_type": "a"}\n'
                service.state.stopping.set()

        answers = results(await service.client.post(BATCH, content=endless(), headers=LINES))
        assert [each["status"] for each in answers][-1] == 503
        assert len(await service.engine.find()) == len(answers) - 1 == answers[-1]["index"]


async def test_lines_go_on_when_the_store_failed() -> None:
    class Failing(MemoryStore):
        adds = 0

        async def add(self, *arguments: Any, **options: Any) -> Any:
            self.adds += 1
            if self.adds == 1:
                raise StoreUnavailable("the store is away; try again")
            return await super().add(*arguments, **options)

    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"task_type": "a"}\n'
        yield b'{"task_type": "b"}\n'

    async with Service(Failing()) as service:
        answers = results(await service.client.post(BATCH, content=pieces(), headers=LINES))
        assert [each["status"] for each in answers] == [503, 201]


def test_a_splitter_keeps_no_more_than_the_limit() -> None:
    splitter = Splitter(4)
    assert splitter.feed(b"ab") == []
    assert splitter.feed(b"cd\nabcde") == [b"abcd"]
    assert splitter.feed(b"fgh" * 1_000) == []
    assert splitter.feed(b"i\n\nx") == [None, b""]
    assert splitter.rest() == [b"x"]
    assert splitter.rest() == []


async def test_the_trace_of_the_request_is_that_of_its_tasks(in_memory: Service) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    traceparent = f"00-{trace}-00f067aa0ba902b7-01"
    body = [{"task_type": "a"}, {"task_type": "b", "trace_id": "order-17"}]
    lines = "\n".join(json.dumps(each) for each in body)
    for header, shown in ((traceparent, (trace, traceparent)), ("00-nonsense", (None, None))):
        headers = {"traceparent": header}
        batch = await in_memory.client.post("/api/v1/tasks/batch", json=body, headers=headers)
        stream = await in_memory.client.post(
            "/api/v1/tasks/batch", content=lines, headers=headers | {"content-type": "application/x-ndjson"}
        )
        streamed = [json.loads(line) for line in stream.text.splitlines()]
        for results in (batch.json()["results"], streamed):
            first, second = [await in_memory.show(result["task"]["task_id"]) for result in results]
            assert (first["trace_id"], first["traceparent"]) == (shown[0] or first["task_id"], shown[1])
            assert (second["trace_id"], second["traceparent"]) == ("order-17", None)
