"""Other names that bodies may use, priorities as numbers, and fields that a newer peer has and this server does not."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from fairlead.core.task import Priority
from fairlead.server.docs.pages import ENDPOINTS
from fairlead.wire import worker_protocol
from fairlead.wire.aliases import ALIASES, NUMBERS, WorkerBody
from fairlead.wire.endpoint import Endpoint
from tests.server.serving import Service
from tests.server.workers import Hand, held

SUBMIT = "/api/v1/tasks"
NAMES = [(shape, alias, name) for shape, each in ALIASES.items() for alias, name in each.items()]


def shapes() -> dict[str, type[msgspec.Struct]]:
    """The shapes of all bodies, and of what is inside of them, by name."""
    found: dict[str, type[msgspec.Struct]] = {}
    waiting = [msgspec.inspect.type_info(each.body) for each in ENDPOINTS if each.body is not None]
    while waiting:
        match waiting.pop():
            case msgspec.inspect.Metadata(type=inner):
                waiting.append(inner)
            case msgspec.inspect.UnionType(types=options):
                waiting += options
            case msgspec.inspect.CollectionType(item_type=item):
                waiting.append(item)
            case msgspec.inspect.StructType(cls=cls, fields=fields) if cls.__name__ not in found:
                found[cls.__name__] = cls
                waiting += [field.type for field in fields]
            case _:
                pass
    return found


@pytest.mark.parametrize(("shape", "alias", "name"), NAMES)
def test_an_alias_is_of_a_field_that_there_is_and_of_none_that_means_something_else(
    shape: str, alias: str, name: str
) -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(shapes()[shape])}
    assert name in fields
    assert alias not in fields


def test_whatever_a_worker_says_may_have_fields_that_are_not_known() -> None:
    bodies = [each.body for each in vars(worker_protocol).values() if isinstance(each, Endpoint)]
    assert all(body is None or issubclass(body, WorkerBody) for body in bodies)
    others = [each.body for each in ENDPOINTS if each.body is not None and not each.path.startswith("/internal/")]
    assert not any(issubclass(body, WorkerBody) for body in others)


def test_the_greater_number_is_the_more_urgent() -> None:
    assert [priority.word for _, priority in sorted(NUMBERS.items())] == ["low", "medium", "high", "critical"]
    assert len(NUMBERS) == len(Priority)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
async def test_a_priority_may_be_a_number(in_memory: Service, number: int) -> None:
    word = NUMBERS[str(number).encode()].word
    assert (await in_memory.submit(priority=number))["priority"] == word


@pytest.mark.parametrize("said", [0, 5, -1, 1.0, True, False, "1", "LOW", [1], {}, 10**30])
async def test_nothing_else_is_a_priority(in_memory: Service, said: Any) -> None:
    problem = await in_memory.submit(422, priority=said)
    assert problem["field"] == "priority"
    assert problem["remedy"]


async def test_a_number_is_a_priority_wherever_a_body_has_one(in_memory: Service) -> None:
    schedule = {"name": "nightly", "cron": "@daily", "task": {"type": "work", "payload": {"n": 1}, "priority": 3}}
    made = (await in_memory.post("/api/v1/schedules", schedule, 201))["task"]
    assert (made["task_type"], made["parameters"], made["priority"]) == ("work", {"n": 1}, "high")
    changed = await in_memory.client.patch("/api/v1/queues/default", json={"priority": 1})
    assert changed.json()["settings"]["priority"] == "low"
    said = {"action": "prioritize", "query": "state:queued", "new_priority": 4, "dry_run": True}
    await in_memory.post("/api/v1/operations", said)


async def test_a_number_in_a_query_string_is_no_priority(in_memory: Service) -> None:
    await in_memory.get(SUBMIT, 422, priority=1)


async def test_parameters_by_another_name_are_kept_to_the_digit(in_memory: Service) -> None:
    written = b'{"big": 123456789012345678901234567890, "n": 1.0, "b":{ "z":1,  "a":[ ]}}'
    made = await in_memory.client.post(
        SUBMIT, content=b'{"type":"work","payload": ' + written + b"}", headers={"content-type": "application/json"}
    )
    assert made.status_code == 201
    (task,) = await in_memory.engine.find()
    assert task.spec.parameters == written


async def test_a_batch_and_a_stream_of_lines_take_the_other_names_too(in_memory: Service) -> None:
    tasks = [{"type": "a", "priority": 4}, {"task_type": "b"}, {"type": "c", "user_id": "kim"}]
    answer = await in_memory.post("/api/v1/tasks/batch", {"tasks": tasks})
    assert [each["status"] for each in answer["results"]] == [201] * 3
    lines = b"\n".join(json.dumps(task).encode() for task in tasks)
    await in_memory.client.post("/api/v1/tasks/batch", content=lines, headers={"content-type": "application/x-ndjson"})
    found = sorted((task.spec.type, task.spec.tenant) for task in await in_memory.engine.find())
    assert found == [("a", None)] * 2 + [("b", None)] * 2 + [("c", "kim")] * 2


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"type": "work", "task_type": "work"}, ("type", "task_type")),
        ({"task_type": "work", "payload": {}, "parameters": {}}, ("payload", "parameters")),
        ({"task_type": "work", "tenant": "kim", "user_id": "kim"}, ("user_id", "tenant")),
    ],
)
async def test_both_names_in_one_body_are_an_error_that_names_both(
    in_memory: Service, body: dict[str, Any], names: tuple[str, str]
) -> None:
    problem = await in_memory.post(SUBMIT, body, 422)
    assert all(repr(name) in problem["detail"] for name in names)
    assert problem["field"] == names[1]
    assert await in_memory.engine.find() == []


@pytest.mark.parametrize(
    "body",
    [
        {"task_type": "work", "priorty": "low"},
        {"type": "work", "paylod": {}},
        {"payload": {}},
        {"type": 5},
        {"type": "work", "payload": [1]},
        [],
        "type",
    ],
)
async def test_what_is_misspelt_or_of_the_wrong_kind_in_a_submit_stays_an_error(in_memory: Service, body: Any) -> None:
    refused = await in_memory.client.post(SUBMIT, json=body)
    assert refused.status_code == 422, refused.text
    assert "warning" not in refused.headers


async def test_a_name_that_is_said_twice_is_refused_by_its_other_name_too(in_memory: Service) -> None:
    headers = {"content-type": "application/json"}
    twice = await in_memory.client.post(SUBMIT, content=b'{"type":"a","type":"b"}', headers=headers)
    assert (twice.status_code, twice.json()["field"]) == (400, "type")


async def test_what_a_newer_worker_says_is_passed_over_and_named(in_memory: Service) -> None:
    await in_memory.submit()
    registered = await in_memory.client.post("/internal/workers/register", json={"capacity": 1, "zone": "eu", "gpu": 1})
    assert registered.status_code == 201
    assert registered.headers["warning"] == '299 - "unknown fields were ignored: zone, gpu"'
    worker = Hand(in_memory, registered.json())
    task = await worker.take()
    running = [{**held(task), "since": 5}]
    answer = await in_memory.client.post(f"/internal/workers/{worker.id}/heartbeat", json={"running": running, "x": {}})
    assert answer.headers["warning"] == '299 - "unknown fields were ignored: running[0].since, x"'
    result = {**held(task), "status": "failed", "error": {"message": "m", "code": "E", "cause": 1}}
    answer = await in_memory.client.post(f"/internal/workers/{worker.id}/result", json=result)
    assert answer.headers["warning"] == '299 - "unknown fields were ignored: error.cause"'
    plain = await in_memory.client.post(f"/internal/workers/{worker.id}/heartbeat", json={"running": [], "health": 1})
    assert "warning" not in plain.headers


async def test_a_warning_says_nothing_that_a_header_cannot(in_memory: Service) -> None:
    odd = {f'x{number}\r\nset-cookie: a=b"\\é': 1 for number in range(2_000)}
    answer = await in_memory.client.post("/internal/workers/register", json=odd)
    assert answer.status_code == 201
    warning = answer.headers["warning"]
    assert warning.isascii()
    assert len(warning) < 1_000
    assert warning.endswith('and 1,990 more"')
    assert "set-cookie" not in answer.headers


async def test_a_known_field_of_a_worker_call_that_is_wrong_is_an_error_all_the_same(in_memory: Service) -> None:
    problem = await in_memory.post("/internal/workers/register", {"capacity": "many", "zone": "eu"}, 422)
    assert problem["field"] == "capacity"
    worker = await Hand.hired(in_memory)
    said = {"percent": 5, "progress_percent": 6, "task_id": "0" * 32}
    problem = await worker.call("progress", said, 422)
    assert "'percent'" in problem["detail"]
    assert "'progress_percent'" in problem["detail"]
