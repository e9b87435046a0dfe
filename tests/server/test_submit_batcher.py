"""Submits that arrive together are answered together, and exactly as if they had come alone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.core.errors import FairleadError, StoreUnavailable
from fairlead.core.instant import Instant
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Task
from fairlead.core.tenancy import Role
from fairlead.engine.engine import Submitted
from fairlead.engine.runtime.clock import ManualClock
from fairlead.server.app import build
from fairlead.server.http.bodies import LARGE
from fairlead.server.http.connection import Connection
from fairlead.server.server import Binding, Server, open_server
from fairlead.server.settings import ServerSettings
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Receipt
from tests.server.test_fast_response import HEAD, LAST, TASK, answers_in
from tests.server.test_server import said_to
from tests.worker.building import eventually

ROOT: Final = Path(__file__).parents[2]
PATH: Final = "/api/v1/tasks"
JSON: Final = {"content-type": "application/json"}
ABSENT: Final = "0" * 12 + "8" + "0" * 3 + "8" + "0" * 15


class Noting(AdminEngine):
    """An engine that notes how many submits come with each call for many; None is a call for one."""

    def __init__(self, store: MemoryStore | None = None, **settings: Any) -> None:
        # The clock stands still, so what was read of keys and queues stays fresh.
        super().__init__(store or MemoryStore(), Settings(**settings), clock=ManualClock())
        self.calls: list[int | None] = []

    def submit(self, submission: Submission) -> Coroutine[Any, Any, Submitted]:
        self.calls.append(None)
        return super().submit(submission)

    def submit_many(self, submissions: Sequence[Submission]) -> Coroutine[Any, Any, list[Submitted | FairleadError]]:
        self.calls.append(len(submissions))
        return super().submit_many(submissions)


class Held(MemoryStore):
    """A store that answers when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.free = asyncio.Event()
        self.broken: Exception | None = None

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        self.asked.set()
        await self.free.wait()
        if self.broken is not None:
            raise self.broken
        return await super().add(tasks, now=now, bounds=bounds)


@contextlib.asynccontextmanager
async def serving(
    engine: AdminEngine, settings: ServerSettings | None = None, **binding: Any
) -> AsyncIterator[tuple[Server, httpx.AsyncClient]]:
    """A server that has read its keys, and a client of it."""
    limits = settings or ServerSettings(rate_limit=0)
    server = await open_server(engine, Binding(port=0, grace_seconds=5, **binding), limits, sweep=False)
    running = asyncio.create_task(server.run())
    try:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            await client.get("/api/v1/queue/stats")
            yield server, client
    finally:
        server.leave()
        await running


def connections_of(server: Server) -> list[Connection]:
    return [one for one in server._uvicorn.server_state.connections if isinstance(one, Connection)]


# What goes together


async def test_a_submit_that_is_whole_takes_the_short_way() -> None:
    engine = Noting()
    async with serving(engine) as (_, client):
        answer = await client.post(PATH, content=TASK, headers=JSON)
    assert answer.status_code == 201
    assert engine.calls == [1]


async def test_those_at_hand_are_one_call_and_each_gets_its_own_answer() -> None:
    store = Held()
    engine = Noting(store)
    async with serving(engine) as (_, client):
        store.free.set()
        wishes = [{"task_type": "echo", "parameters": {"n": n}} for n in range(20)]
        answers = await asyncio.gather(*(client.post(PATH, json=wish) for wish in wishes))
        shown = [(await client.get(f"{PATH}/{answer.json()['task_id']}")).json() for answer in answers]
    assert [each["parameters"] for each in shown] == [wish["parameters"] for wish in wishes]
    assert None not in engine.calls and sum(count for count in engine.calls if count) == 20


async def test_a_request_that_comes_whole_behind_another_goes_together_too() -> None:
    engine = Noting()
    async with serving(engine) as (server, _):
        said = await said_to(server, HEAD + b"\r\n" + TASK + HEAD + LAST + b"\r\n" + TASK)
    assert answers_in(said) == [b"201", b"201"]
    assert engine.calls == [1, 1]


async def test_one_that_is_behind_another_and_not_whole_is_waited_for() -> None:
    store = Held()
    engine = Noting(store)
    async with serving(engine) as (server, _):
        url = httpx.URL(server.url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(HEAD + b"\r\n" + TASK + HEAD + LAST + b"\r\n" + TASK[:5])
        await store.asked.wait()
        store.free.set()
        await eventually(lambda: engine.calls == [1], "the first")
        writer.write(TASK[5:])
        assert answers_in(await reader.read()) == [b"201", b"201"]
        writer.close()


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (TASK[:-1] + b', "after": []}', {}),
        (TASK[:-1] + rb', "\u0061fter": ["%b"]}' % ABSENT.encode(), {}),
        (TASK[:-1] + b', "parameters": {"text": "%b"}}' % (b"x" * LARGE), {}),
        (TASK, {"cookie": "fairlead_session=none"}),
        (TASK, {"content-type": "text/plain"}),
    ],
    ids=["after", "after in an escape", "large", "cookie", "media type"],
)
async def test_what_is_unusual_takes_the_ordinary_way(body: bytes, headers: dict[str, str]) -> None:
    engine = Noting(payload_limit=4 * LARGE)
    async with serving(engine) as (_, client):
        await client.post(PATH, content=body, headers=JSON | headers)
    assert engine.calls in ([None], [])


async def test_behind_a_trusted_proxy_all_take_the_ordinary_way() -> None:
    engine = Noting()
    key = (await Keyring(engine).create("web", [Role.SUBMIT])).text
    async with serving(engine, trusted_proxies="127.0.0.1") as (_, client):
        headers = JSON | {"authorization": f"Bearer {key}", "x-forwarded-proto": "https"}
        answer = await client.post(PATH, content=TASK, headers=headers)
    assert answer.status_code == 201 and "strict-transport-security" in answer.headers
    assert engine.calls == [None]


TRACED: Final = """
import asyncio
import httpx
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.server.test_submit_batcher import JSON, PATH, TASK, Noting, serving

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

async def main() -> None:
    engine = Noting()
    async with serving(engine) as (_, client):
        heads = [JSON | {"traceparent": f"00-{n:032x}-{n:016x}-01"} for n in (1, 2, 3)]
        await asyncio.gather(*(client.post(PATH, content=TASK, headers=head) for head in heads))
    print(engine.calls, sorted(span.context.trace_id for span in exporter.get_finished_spans()))

asyncio.run(main())
"""


def test_each_that_is_traced_has_a_span_in_its_own_trace() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", TRACED], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    assert ended.stdout == "[None, None, None] [1, 2, 3]\n"


# The same answers


WISHES: Final[dict[str, bytes]] = {
    "plain": TASK,
    "with a delay": b'{"task_type": "echo", "delay_seconds": 60}',
    "nothing": b"",
    "not JSON": b'{"task_type": ',
    "not UTF-8": b'{"task_type": "\xff"}',
    "nested too deeply": b'{"task_type": "echo", "parameters": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "a key twice": b'{"task_type": "echo", "task_type": "other"}',
    "an unknown field": b'{"task_type": "echo", "colour": "red"}',
    "a wrong value": b'{"task_type": "echo", "priority": "very"}',
    "a name that is none": b'{"task_type": "not a name"}',
    "two moments": b'{"task_type": "echo", "delay_seconds": 1, "run_at": "2030-01-01T00:00:00Z"}',
    "large parameters": b'{"task_type": "echo", "parameters": {"text": "%b"}}' % (b"x" * 2_000),
    "an empty list to wait for": b'{"task_type": "echo", "after": []}',
    "a position to wait for": b'{"task_type": "echo", "after": [0]}',
    "nobody to wait for": b'{"task_type": "echo", "after": ["%b"]}' % ABSENT.encode(),
    "a key of another": b'{"task_type": "echo", "idempotency_key": "taken"}',
    "a full queue": b'{"task_type": "echo", "queue": "full"}',
}
HEADS: Final[dict[str, dict[str, str]]] = {
    "plain": JSON,
    "no type": {},
    "a type in full": {"content-type": 'Application/JSON; charset="UTF-8"'},
    "another type": {"content-type": "text/plain"},
    "a page of another site": JSON | {"origin": "https://example.com"},
    "another name": JSON | {"host": "example.com"},
    "a proxy": JSON | {"via": "1.1 example"},
    "basic": JSON | {"authorization": "Basic YTpi"},
    "a key that is none": JSON | {"authorization": "Bearer fl_none_none"},
    "a trace": JSON | {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"},
}


def plain(answer: httpx.Response) -> tuple[int, dict[str, str], Any]:
    """What is said apart from when, and of which task."""
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "content-length")}
    body = answer.json()
    for unique in ("task_id", "queue_position"):
        body.pop(unique, None)
    return answer.status_code, headers, body


@pytest.mark.parametrize(
    ("wish", "head"),
    [*((wish, "plain") for wish in WISHES), *(("plain", head) for head in HEADS)],
)
async def test_each_is_answered_as_the_ordinary_way_answers_it(wish: str, head: str) -> None:
    engine = Noting(queue_bound=3, payload_limit=1_000)
    async with serving(engine) as (server, client):
        ordinary = httpx.AsyncClient(transport=httpx.ASGITransport(build(server.state)), base_url=server.url)
        await engine.submit(Submission(type="echo", idempotency_key="taken"))
        for _ in range(3):
            await engine.submit(Submission(type="echo", queue="full"))
        async with ordinary:
            answers = [
                plain(await caller.post(PATH, content=WISHES[wish], headers=HEADS[head]))
                for caller in (client, ordinary)
            ]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("roles", [(Role.SUBMIT,), (Role.ADMIN,), (Role.READ, Role.WORK)])
async def test_a_key_counts_for_what_it_is(roles: Sequence[Role]) -> None:
    engine = Noting()
    key = (await Keyring(engine).create("web", roles, tenant="acme")).text
    headers = JSON | {"authorization": f"Bearer {key}"}
    async with serving(engine) as (_, client):
        own = await client.post(PATH, content=TASK, headers=headers)
        foreign = await client.post(PATH, json={"task_type": "echo", "tenant": "other"}, headers=headers)
        tasks = await engine.find()
    assert (own.status_code, foreign.status_code) == ((403, 403) if Role.READ in roles else (201, 403))
    assert [task.spec.tenant for task in tasks] == (["acme"] if own.status_code == 201 else [])
    assert own.status_code == 403 or engine.calls == [1]


async def test_a_queue_that_is_bound_to_a_tenant_is_so_on_the_short_way_too() -> None:
    engine = Noting()
    await engine.queues.change("line", tenant="acme")
    ring = Keyring(engine)
    keys = {tenant: (await ring.create("web", [Role.SUBMIT], tenant=tenant)).text for tenant in ("acme", "other", None)}
    said: list[int] = []
    async with serving(engine) as (_, client):
        for tenant, key in keys.items():
            headers = JSON | {"authorization": f"Bearer {key}"}
            for named in ("acme", "other", None):
                wish = {"task_type": "echo", "queue": "line", "tenant": named}
                answer = await client.post(PATH, json=wish, headers=headers)
                said.append(answer.status_code)
                assert "acme" in (tenant, named) or answer.status_code < 400 or "acme" not in answer.json()["detail"]
        tasks = await engine.find()
    assert said == [201, 403, 201, 403, 422, 422, 201, 422, 201]
    assert [task.spec.tenant for task in tasks] == ["acme"] * 4


async def test_a_key_that_is_revoked_or_over_opens_nothing() -> None:
    engine = Noting()
    clock = engine.clock
    keyring = Keyring(engine)
    brief = await keyring.create("brief", [Role.SUBMIT], expires=clock.now() + 1)
    lost = await keyring.create("lost", [Role.SUBMIT])
    async with serving(engine) as (_, client):
        await keyring.revoke(lost.key.id)
        assert isinstance(clock, ManualClock)
        clock.advance(60_000_000)
        for key in (brief.text, lost.text, f"{lost.text}x"):
            answer = await client.post(PATH, content=TASK, headers=JSON | {"authorization": f"Bearer {key}"})
            assert answer.status_code == 401
    assert engine.calls == []


async def test_every_request_costs_one_token_whatever_becomes_of_it() -> None:
    engine = Noting()
    key = (await Keyring(engine).create("web", [Role.SUBMIT])).text
    headers = JSON | {"authorization": f"Bearer {key}"}
    bodies = [TASK, b"{", WISHES["a position to wait for"], WISHES["a wrong value"]]
    async with serving(engine, ServerSettings(rate_limit=4, rate_burst=4)) as (_, client):
        said = [(await client.post(PATH, content=body, headers=headers)).status_code for body in bodies]
        late = await client.post(PATH, content=TASK, headers=headers)
    assert said == [201, 400, 422, 422]
    assert late.status_code == 429 and late.headers["retry-after"] == "1"


async def test_a_position_never_means_the_task_of_another_request() -> None:
    engine = Noting()
    async with serving(engine) as (_, client):
        wishes = [TASK, WISHES["a position to wait for"]] * 5
        answers = await asyncio.gather(*(client.post(PATH, content=wish, headers=JSON) for wish in wishes))
    assert [answer.status_code for answer in answers] == [201, 422] * 5


async def test_an_idempotency_key_names_one_task_however_many_bring_it_at_once() -> None:
    engine = Noting()
    wish = {"task_type": "echo", "idempotency_key": "once"}
    async with serving(engine) as (_, client):
        answers = await asyncio.gather(*(client.post(PATH, json=wish) for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [201]
    assert len({answer.json()["task_id"] for answer in answers}) == 1


# When something is wrong


async def test_a_store_that_fails_is_told_to_all() -> None:
    store = Held()
    store.broken = StoreUnavailable("the store is away; try again")
    store.free.set()
    async with serving(Noting(store)) as (_, client):
        answers = await asyncio.gather(*(client.post(PATH, content=TASK, headers=JSON) for _ in range(5)))
    assert {(answer.status_code, answer.headers["retry-after"]) for answer in answers} == {(503, "1")}


async def test_a_fault_is_logged_and_told_without_its_secrets(caplog: pytest.LogCaptureFixture) -> None:
    store = Held()
    store.broken = RuntimeError("secret")
    store.free.set()
    with caplog.at_level(logging.ERROR):
        async with serving(Noting(store)) as (_, client):
            answer = await client.post(PATH, content=TASK, headers=JSON)
    assert answer.status_code == 500 and "secret" not in answer.text
    (record,) = caplog.records
    assert record.getMessage() == "POST /api/v1/tasks failed" and record.exc_info


async def test_who_leaves_before_the_answer_has_its_task_stored() -> None:
    store = Held()
    engine = Noting(store)
    async with serving(engine) as (server, _):
        url = httpx.URL(server.url)
        _, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(HEAD + b"\r\n" + TASK)
        await store.asked.wait()
        before = len(connections_of(server))
        writer.close()
        await eventually(lambda: len(connections_of(server)) < before, "the hanging up")
        store.free.set()
        await eventually(lambda: not server._uvicorn.server_state.tasks, "the end")
        assert len(await engine.find()) == 1


async def test_a_server_that_stops_answers_what_it_has_read_and_hangs_up() -> None:
    store = Held()
    async with serving(Noting(store)) as (server, _):
        saying = asyncio.create_task(said_to(server, HEAD + b"\r\n" + TASK))
        await store.asked.wait()
        server.leave()
        store.free.set()
        said = await saying
    assert answers_in(said) == [b"201"] and b"\r\nconnection: close\r\n" in said


async def test_a_server_that_is_cut_off_hangs_up_on_those_who_wait() -> None:
    store = Held()
    async with serving(Noting(store)) as (server, _):
        saying = asyncio.create_task(said_to(server, HEAD + b"\r\n" + TASK))
        await store.asked.wait()
        (task,) = server._uvicorn.server_state.tasks
        task.cancel()
        assert await saying == b""
        store.free.set()
