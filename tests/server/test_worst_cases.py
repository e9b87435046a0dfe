"""The worst that each parser and each query can be sent, at its limit of size, does not hold up the event loop."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final
from urllib.parse import quote

import pytest
from msgspec import Struct
from starlette.types import ASGIApp, Message

from fairlead.admin.engine import AdminEngine
from fairlead.core.events import Failed
from fairlead.core.identity import WorkerId
from fairlead.core.submission import Submission
from fairlead.core.task import Failure
from fairlead.engine.engine import Settlement
from fairlead.engine.metrics.collector import Metrics
from fairlead.server.app import build
from fairlead.server.settings import ServerSettings
from fairlead.server.state import ServerState
from fairlead.storage.open import open_store
from fairlead.storage.url import with_option
from tests.server.loop_time import slowest_callback

# Dozens of requests at their limits of size, each tried several times: minutes where others work beside it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]

MOST: Final = 0.010
"""Seconds of processor time that a callback of the event loop may take."""
TRIES: Final = 8
"""Of which the best counts: what a machine does beside only adds."""
SINGLE: Final = ServerSettings().body_limit
LETTERS: Final = 4_000
"""Of a query."""


class Case(Struct, frozen=True, kw_only=True):
    """A request."""

    method: str = "GET"
    path: str = "/api/v1/tasks"
    query: bytes = b""
    body: bytes = b""
    statuses: frozenset[int] = frozenset({200})


def sought(query: str, *statuses: int) -> Case:
    assert len(query) <= LETTERS
    return Case(query=b"q=" + quote(query).encode(), statuses=frozenset(statuses or {200}))


def submitted(body: bytes, *statuses: int) -> Case:
    return Case(method="POST", body=body, statuses=frozenset(statuses))


def batch(tasks: Any, *statuses: int) -> Case:
    body = tasks if isinstance(tasks, bytes) else json.dumps(tasks).encode()
    assert len(body) <= ServerSettings().batch_limit
    return Case(method="POST", path="/api/v1/tasks/batch", body=body, statuses=frozenset(statuses or {200}))


def schedule(cron: str, *statuses: int) -> Case:
    body = {"cron": cron, "task": {"task_type": "a"}}
    return Case(
        method="PUT",
        path="/api/v1/schedules/nightly",
        body=json.dumps(body).encode(),
        statuses=frozenset(statuses or {200, 201}),
    )


def members(count: int, more: str = "") -> bytes:
    """The body of a submit with so many parameters."""
    return b'{"task_type":"a","parameters":{%s%s}}' % (b",".join(b'"%d":1' % n for n in range(count)), more.encode())


def repeated(words: str, between: str = " ") -> str:
    """Words again and again, until a query is full."""
    return between.join([words] * (LETTERS // (len(words) + len(between))))


_IDS: Final = [f"{number:032x}" for number in range(10_000)]

CASES: Final[dict[str, Case]] = {
    "keys, the last of them twice, in a body that is read at once": submitted(
        members(5_500, ',"1":1')[: 64 * 1024], 400
    ),
    "keys, the last of them twice, in a large body": submitted(members(40_000, ',"1":1'), 400),
    "many keys": submitted(members(5_500), 201),
    "as many keys as fit": submitted(members(20_000), 201),
    "objects in objects": submitted(
        b'{"task_type":"a","parameters":' + b'{"a":' * 12_000 + b"1" + b"}" * 12_001, 400, 422
    ),
    "lists in lists": submitted(b'{"task_type":"a","parameters":{"a":' + b"[" * 30_000 + b"]" * 30_000 + b"}}", 400),
    "a number of many digits": submitted(b'{"task_type":"a","parameters":{"a":' + b"9" * 60_000 + b"}}", 201, 400, 422),
    "a body that does not end": submitted(b'{"task_type":"a","parameters":{"a":[' + b"1," * 30_000, 400),
    "escapes": submitted(b'{"task_type":"a","parameters":{"a":"' + b"\\u003a" * 10_000 + b'"}}', 201),
    "an option that there is not": submitted(json.dumps({"task_type": "a", "x" * 60_000: 1}).encode(), 422),
    "a list of what is no name": submitted(json.dumps({"task_type": "a", "tags": ["?" * 200] * 300}).encode(), 422),
    "many to wait for": submitted(json.dumps({"task_type": "a", "after": _IDS}).encode(), 422),
    "a thousand tasks": batch([{"task_type": "a"}] * 1_000),
    "a thousand large tasks": batch([{"task_type": "large", "parameters": {"m": "a" * 9_000}}] * 1_000),
    "a thousand tasks with all that they can have": batch(
        [
            {
                "task_type": "a",
                "required_capabilities": [f"c{n}" for n in range(50)],
                "tags": [f"t{n}" for n in range(50)],
                "concurrency_key": str(number),
                "retry_rules": [{"errors": [f"E{n}"], "retry": False} for n in range(10)],
            }
            for number in range(1_000)
        ],
        200,
        207,
    ),
    "a thousand tasks that are wrong": batch([{"task_type": ""}] * 1_000, 207),
    "a thousand tasks that cannot be read": batch(b"[" + b",".join([b'{"a":1,"a":2}'] * 1_000) + b"]", 207),
    "millions of tasks": batch(b"[" + b",".join([b"{}"] * 3_000_000) + b"]", 413),
    "tasks that wait for thousands": batch([{"task_type": "a", "after": _IDS}] * 28, 207),
    "tasks that wait for each other": batch([{"task_type": "a", "after": list(range(n))} for n in range(1_000)], 207),
    "stars in a parameter": sought("params.m:" + "*a" * 1_900 + "b"),
    "stars in a text": sought("error:" + "*a" * 1_900 + "b"),
    "texts": sought(" ".join(f"b{n}" for n in range(50))),
    "texts that must not be": sought(" ".join(f"-b{n}" for n in range(50))),
    "more texts than are allowed": sought(repeated("b"), 400),
    "errors": sought("error:" + ",".join(f"b{n}" for n in range(490))),
    "stars in many values": sought("params.m:" + ",".join(f"*b{n}*" for n in range(50))),
    "values of a parameter": sought("params.m:" + ",".join(f"b{n}" for n in range(490))),
    "ranges of a parameter": sought("params.m:" + ",".join(f"{n}..{n + 1}" for n in range(50))),
    "a long path": sought("params." + ".".join("a" * 1_900) + ":1"),
    "a step of a path that is a long number": sought("params.m." + "9" * 3_900 + ":1"),
    "escapes in quotes": sought('"' + '\\"' * 1_990, 400),
    "quotes": sought(repeated('""', ""), 400),
    "a field that there is not": sought("x" * 3_900 + ":1", 400),
    "a state that there is not": sought("state:" + "dead_lette" * 390, 400),
    "ids": sought("id:" + ",".join(f"{n:032x}" for n in range(110))),
    "signs": sought(repeated("created:>-1h")[:LETTERS], 400),
    "a long number": sought("attempts:" + "9" * 299),
    "a preview of an operation": Case(
        method="POST",
        path="/api/v1/operations",
        body=json.dumps({"action": "cancel", "query": "b0 params.m:*b*", "dry_run": True}).encode(),
        statuses=frozenset({200}),
    ),
    "a list of a thousand": Case(query=b"limit=1000"),
    "a list of a thousand large ones": Case(query=b"limit=1000&task_type=large"),
    "dead letters by error": Case(path="/api/v1/dlq/groups"),
    "parameters of a query string": Case(
        query=b"&".join(b"a%d=1" % n for n in range(9_000)), statuses=frozenset({400})
    ),
    "a query string of escapes": Case(query=b"q=" + b"%e2%82%ac" * 7_000, statuses=frozenset({400})),
    "how the queues stand": Case(path="/api/v1/queue/stats"),
    "metrics": Case(path="/metrics"),
    "a fire time that never comes": schedule("0 0 30 2 *", 422),
    "a fire time that hardly ever comes": schedule("0 0 0 29 2 1#5", 201, 200, 422),
    "a long list of minutes": schedule(",".join(["0-59"] * 98) + " * * * *", 200, 201, 422),
    "a poll for large tasks": Case(
        method="POST",
        path="/internal/workers/{worker}/poll",
        body=json.dumps({"available_capacity": 1_000, "wait_seconds": 0}).encode(),
    ),
    "a heartbeat for a thousand tasks": Case(
        method="POST",
        path="/internal/workers/{worker}/heartbeat",
        body=json.dumps({"running": [{"task_id": each, "lease": "x" * 60} for each in _IDS[:1_000]]}).encode(),
    ),
}


async def answer_to(app: ASGIApp, case: Case) -> tuple[int, bytes]:
    """The status and the body of the answer; none of what the caller does is done in the same callbacks."""
    sent: list[Message] = []
    asked = False

    async def receive() -> Message:
        nonlocal asked
        if asked:
            await asyncio.Event().wait()
        asked = True
        return {"type": "http.request", "body": case.body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": case.method,
        "path": case.path,
        "raw_path": case.path.encode(),
        "query_string": case.query,
        "root_path": "",
        "scheme": "http",
        "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 1),
        "headers": [
            (b"host", b"127.0.0.1:8080"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(case.body)),
        ],
        "state": {},
    }
    await asyncio.create_task(app(scope, receive, send))  # type: ignore[arg-type]
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[AdminEngine]:
    # What the store takes for it is no matter here, and on a busy machine it takes its time.
    shared = store_url.startswith(("redis", "postgresql"))
    patient = with_option(store_url, "timeout", "60") if shared else store_url
    engine = AdminEngine(await open_store(patient))
    yield engine
    await engine.close()


async def furnish(engine: AdminEngine, app: ASGIApp) -> str:
    """Put tasks there that are worth looking for; the id of a worker."""
    for _ in range(2):
        await answer_to(app, CASES["a thousand large tasks"])
    await engine.submit_many([Submission(type="fails", parameters=b'{"m":"%d"}' % n) for n in range(1_000)])
    tasks = await engine.claim(WorkerId("other"), ["default"], limit=1_000, types=["fails"])
    message = "a" * 900 + "@" + "a-" * 500
    await engine.settle(
        [
            Settlement(task, Failed(failure=Failure(type="Boom", message=f"{number} {message}"), retriable=True))
            for number, task in enumerate(tasks)
        ]
    )
    body = json.dumps(
        {"capacity": 1_000, "task_types": ["large"], "queues": [f"q{n}" for n in range(99)] + ["default"]}
    )
    _, answer = await answer_to(
        app, Case(method="POST", path="/internal/workers/register", body=body.encode(), statuses=frozenset({201}))
    )
    return str(json.loads(answer)["worker_id"])


@pytest.fixture
def rested() -> Iterator[None]:
    """What a test run has made so far is not looked at again before each try: that takes longer than the tries."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("rested")
async def test_nothing_that_is_sent_holds_up_the_event_loop(engine: AdminEngine) -> None:
    app = build(ServerState(engine, ServerSettings(rate_limit=0), metrics=Metrics()))
    worker = await furnish(engine, app)
    slow: dict[str, str] = {}
    for name, case in CASES.items():
        asked = Case(**{**_fields(case), "path": case.path.replace("{worker}", worker)})
        best = None
        for _ in range(TRIES):
            with slowest_callback() as slowest:
                status, body = await answer_to(app, asked)
            assert status in case.statuses, (name, status, body[:300])
            best = slowest if best is None or slowest.seconds < best.seconds else best
            if best.seconds < MOST:
                break
        assert best is not None
        if best.seconds >= MOST:
            slow[name] = f"{best.seconds * 1_000:.1f} ms in {best.what}"
    assert slow == {}


def _fields(case: Case) -> dict[str, Any]:
    return {name: getattr(case, name) for name in case.__struct_fields__}
