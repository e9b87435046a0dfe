"""What is wrong with a request is said clearly: never a fault of the server, and nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from fairlead.core.settings import Settings
from fairlead.server.docs.pages import ENDPOINTS
from fairlead.server.http.validation_errors import Mistake, mistake_in
from fairlead.server.settings import ServerSettings
from fairlead.storage.memory import MemoryStore
from fairlead.wire.tasks import BatchRequest, SubmitRequest
from tests.server.serving import Service

TASKS = "/api/v1/tasks"

NOT_JSON: list[tuple[bytes, str | None]] = [
    (b"", None),
    (b"{", None),
    (b"not json", None),
    (b'{"task_type": "a"} {}', None),
    (b"\xef\xbb\xbf{}", None),
    (b'{"task_type": "\xff"}', None),
    (b'{"task_type": "a", "parameters": {"x": "\xff"}}', None),
    (b'{"task_type": "a", "parameters": {"x": "\\ud800"}}', None),
    (b'{"task_type": "a", "parameters": {"x": NaN}}', None),
    (b'{"task_type": "a", "delay_seconds": NaN}', None),
    (b'{"task_type": "a", "delay_seconds": Infinity}', None),
    (b'{"task_type": "a", "parameters": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", None),
    (b'{"task_type": "a", "parameters": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}", None),
    (b'{"task_type": "a", "task_type": "b"}', "task_type"),
    (b'{"task_type": "a", "parameters": {"x": 1, "x": 2}}', "x"),
    (b'{"task_type": "a", "parameters": {"x": "\\u003a", "y": 1, "y": 2}}', "y"),
    (b'{"task_type": "a", "parameters": {"x": 1, "\\u0078": 2}}', "x"),
]

WRONG_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"task_type": None}, "task_type"),
    ({"task_type": 5}, "task_type"),
    ({"task_type": ""}, "task_type"),
    ({"task_type": "a b"}, "task_type"),
    ({"task_type": "a\0"}, "task_type"),
    ({"task_type": "x" * 201}, "task_type"),
    ({"priority": "urgent"}, "priority"),
    ({"priority": 5}, "priority"),
    ({"parameters": []}, "parameters"),
    ({"parameters": "text"}, "parameters"),
    ({"parameters": None}, "parameters"),
    ({"required_capabilities": "gpu"}, "required_capabilities"),
    ({"required_capabilities": ["a b"]}, "required_capabilities"),
    ({"required_capabilities": [f"c{n}" for n in range(51)]}, "required_capabilities"),
    ({"tags": [1]}, "tags[0]"),
    ({"tags": [""]}, "tags"),
    ({"timeout_seconds": 0}, "timeout_seconds"),
    ({"timeout_seconds": -1}, "timeout_seconds"),
    ({"timeout_seconds": 1e300}, "timeout_seconds"),
    ({"timeout_seconds": 10**30}, "timeout_seconds"),
    ({"timeout_seconds": "5"}, "timeout_seconds"),
    ({"timeout_seconds": True}, "timeout_seconds"),
    ({"max_retries": -1}, "max_retries"),
    ({"max_retries": 1.5}, "max_retries"),
    ({"max_retries": 10**30}, "max_retries"),
    ({"delay_seconds": -0.1}, "delay_seconds"),
    ({"delay_seconds": 1e300}, "delay_seconds"),
    ({"delay_seconds": 9_007_199_254}, "delay_seconds"),
    ({"delay_seconds": 1, "run_at": "2100-01-01T00:00:00Z"}, "delay_seconds"),
    ({"run_at": "tomorrow"}, "run_at"),
    ({"run_at": "2100-01-01T00:00:00"}, "run_at"),
    ({"run_at": 5}, "run_at"),
    ({"run_at": "0001-01-01T00:00:00+14:00"}, "run_at"),
    ({"run_at": "9999-12-31T23:59:59-14:00"}, "run_at"),
    ({"retry_policy": {"initial_seconds": 1e300}}, "retry_policy.initial_seconds"),
    ({"retry_policy": {"max_seconds": -1}}, "retry_policy.max_seconds"),
    ({"retry_policy": {"factor": 0.5}}, "retry_policy.factor"),
    ({"retry_policy": {"factor": 1e308}}, "retry_policy.factor"),
    ({"retry_policy": {"jitter": 2}}, "retry_policy.jitter"),
    ({"retry_policy": {"speed": 2}}, "retry_policy.speed"),
    ({"retry_policy": []}, "retry_policy"),
    ({"queue": "a b"}, "queue"),
    ({"queue": None}, "queue"),
    ({"idempotency_key": ""}, "idempotency_key"),
    ({"idempotency_key": "x" * 501}, "idempotency_key"),
    ({"tenant": ""}, "tenant"),
    ({"trace_id": ""}, "trace_id"),
    ({"trace_id": "x" * 501}, "trace_id"),
    ({"taks_type": "a"}, "taks_type"),
]


@pytest.mark.parametrize(("body", "field"), NOT_JSON)
async def test_what_is_not_json_or_is_ambiguous_is_a_bad_request(
    in_memory: Service, body: bytes, field: str | None
) -> None:
    answer = await in_memory.client.post(TASKS, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    problem = answer.json()
    assert problem["type"] == "/docs#invalid-json" and problem["detail"]
    assert problem.get("field") == field
    assert await in_memory.engine.find() == []


@pytest.mark.parametrize(("wish", "field"), WRONG_VALUES)
async def test_a_wrong_value_is_named(in_memory: Service, wish: dict[str, Any], field: str) -> None:
    problem = await in_memory.submit(422, **wish)
    assert (problem["type"], problem["field"]) == ("/docs#invalid-value", field), problem
    assert await in_memory.engine.find() == []


@pytest.mark.parametrize("body", [b"[]", b"5", b"null", b'"text"', b"{}"])
async def test_a_body_of_another_kind_is_not_a_task(in_memory: Service, body: bytes) -> None:
    answer = await in_memory.client.post(TASKS, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422, answer.text


async def test_numbers_out_of_range_inside_of_parameters_are_refused(in_memory: Service) -> None:
    body = b'{"task_type": "a", "parameters": {"x": 1e999}}'
    answer = await in_memory.client.post(TASKS, content=body)
    assert answer.status_code == 422, answer.text


async def test_odd_texts_are_kept_on_every_store(service: Service) -> None:
    odd = "\0 \u2028 \U0001f6a2 '\"; -- %s"
    for field in ("idempotency_key", "tenant", "trace_id"):
        wish: dict[str, Any] = {field: odd}
        answer = await service.submit(**wish)
        assert (await service.show(answer["task_id"]))[field] == odd


@pytest.mark.parametrize(
    "media_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin-1",
        "x",
        "application/x-ndjson",
    ],
)
async def test_a_body_that_says_it_is_not_json_is_not_read(in_memory: Service, media_type: str) -> None:
    answer = await in_memory.client.post(TASKS, content=b'{"task_type": "a"}', headers={"content-type": media_type})
    assert answer.status_code == 415
    assert (answer.json()["field"], answer.json()["value"]) == ("content-type", media_type)


@pytest.mark.parametrize("media_type", ["application/json", "Application/JSON; charset=UTF-8", None])
async def test_json_may_be_called_json_or_nothing(in_memory: Service, media_type: str | None) -> None:
    headers = {} if media_type is None else {"content-type": media_type}
    answer = await in_memory.client.post(TASKS, content=b'{"task_type": "a"}', headers=headers)
    assert answer.status_code == 201


async def test_what_is_too_large_is_refused() -> None:
    async with Service(MemoryStore(), Settings(payload_limit=1_000)) as service:
        problem = await service.submit(413, parameters={"x": "y" * 1_000})
        assert problem["field"] == "parameters"
        assert (await service.submit(413, parameters={"x": "y" * 600_000}))["type"] == "/docs#too-large"


async def test_a_body_without_a_length_is_limited_too() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 10_000

    async with Service(MemoryStore(), server=ServerSettings(body_limit=50_000, rate_limit=0)) as service:
        answer = await service.client.post(TASKS, content=endless(), headers={"content-type": "application/json"})
        assert answer.status_code == 413


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def stalled() -> AsyncIterator[bytes]:
        yield b'{"task_'
        await asyncio.Event().wait()

    async with Service(MemoryStore(), server=ServerSettings(body_seconds=0.05, rate_limit=0)) as service:
        for path in (TASKS, f"{TASKS}/batch"):
            answer = await service.client.post(path, content=stalled(), headers={"content-type": "application/json"})
            assert answer.status_code == 408


@pytest.mark.parametrize(
    ("query", "field"),
    [("wait=-1", "wait"), ("wait=nan", "wait"), ("wait=long", "wait"), ("include_history=maybe", "include_history")],
)
async def test_a_wrong_parameter_is_named(in_memory: Service, query: str, field: str) -> None:
    task_id = (await in_memory.submit())["task_id"]
    answer = await in_memory.client.get(f"{TASKS}/{task_id}?{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_paths_and_methods_that_are_not_there_are_problems_too(in_memory: Service) -> None:
    assert (await in_memory.get("/api/v1/nothing", 404))["status"] == 404
    refused = await in_memory.client.put(TASKS, json={})
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST, GET, HEAD")


LITERAL = sorted({endpoint.path for endpoint in ENDPOINTS if "{" not in endpoint.path})


@pytest.mark.parametrize("path", LITERAL)
async def test_a_path_answers_for_itself_though_it_fits_another_with_a_parameter(in_memory: Service, path: str) -> None:
    own = {endpoint.method for endpoint in ENDPOINTS if endpoint.path == path}
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - own:
        refused = await in_memory.client.request(method, path)
        assert refused.status_code == 405, method
        assert set(refused.headers["allow"].split(", ")) - {"HEAD"} == own


@pytest.mark.parametrize(
    ("body", "mistake"),
    [
        (
            {"task_type": "a", "priority": "hgih"},
            Mistake("priority", "invalid enum value 'hgih'", "use one of critical, high, low, medium, normal", "hgih"),
        ),
        ({}, Mistake("task_type", "it is required and not there", "add it")),
        ({"task_type": "a", "taks": 1}, Mistake("taks", "there is no field 'taks'", "did you mean tags?")),
        (
            {"task_type": "a", "max_retries": 99_999},
            Mistake(
                *("max_retries", "expected `int` <= 10000"),
                *("use a whole number of at least 0 and of at most 10,000", 99_999),
            ),
        ),
        (
            {"task_type": "a", "run_at": "noon"},
            Mistake(
                *("run_at", "invalid RFC3339 encoded datetime"),
                *("use a moment with its zone, such as 2026-11-15T08:00:00Z", "noon"),
            ),
        ),
        (
            {"task_type": "a", "retry_policy": {"jitter": "x" * 200}},
            Mistake(
                *("retry_policy.jitter", "expected `float`, got `str`"),
                "use a number of at least 0 and of at most 1",
            ),
        ),
        ({"task_type": "a", "tags": [True]}, Mistake("tags[0]", "expected `str`, got `bool`", "use a text", True)),
        ([], Mistake("", "expected `object`, got `array`", "use an object")),
    ],
)
def test_a_mistake_names_the_field_the_value_and_the_remedy(body: Any, mistake: Mistake) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(msgspec.json.encode(body), type=SubmitRequest)
    assert mistake_in(caught.value, SubmitRequest, body) == mistake


def test_a_mistake_is_found_inside_of_lists() -> None:
    body = {"tasks": [{"task_type": "a"}, {"task_type": "b", "priority": 5}]}
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(msgspec.json.encode(body), type=BatchRequest)
    assert mistake_in(caught.value, BatchRequest, body).field == "tasks[1].priority"
