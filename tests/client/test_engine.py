"""Tasks over the API: the same calls as on a store, with the same answers and the same errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.app.app import Fairlead
from fairlead.app.handle import TaskHandle
from fairlead.client.calls import error_of
from fairlead.client.engine import RemoteEngine
from fairlead.client.http.open import open_transport
from fairlead.client.http.transport import Address, Reply
from fairlead.core.errors import (
    InvalidSettings,
    InvalidTask,
    PayloadTooLarge,
    QueueFull,
    StoreError,
    StoreFull,
    StoreMismatch,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
    TaskFailed,
    TaskNotFound,
    WrongState,
)
from fairlead.core.events import Completed, Failed, Outcome
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import HOUR, SECOND
from fairlead.core.retry import Backoff
from fairlead.core.submission import Submission
from fairlead.core.task import After, Failure, OnFailure, Priority, State, Task
from fairlead.core.tenancy import Role
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.memory.store import MemoryStore
from fairlead.storage.values import Filter
from tests.client.serving import Port
from tests.server.serving import NOBODY

NOWHERE = Address("http://127.0.0.1:9")


@pytest.fixture
async def remote(port: Port) -> AsyncIterator[RemoteEngine]:
    engine = RemoteEngine(open_transport(Address(port.url), blocking=False))
    yield engine
    await engine.close()


async def ended(engine: AdminEngine, outcome: Outcome, **wish: Any) -> Task:
    """A task that was submitted, claimed and settled."""
    await engine.submit(Submission(type="work", **wish))
    (task,) = await engine.claim(WorkerId("w"), ["default"], limit=1)
    (settled,) = await engine.settle([Settlement(task, outcome)])
    assert isinstance(settled, Task)
    return settled


def shown(task: Task) -> Task:
    """A task without what no API shows."""
    spec = replace(task.spec, key_until=None, timeout=task.status.timeout)
    failures = [None if entry.failure is None else replace(entry.failure, traceback=None)
                for entry in task.status.history]  # fmt: skip
    history = tuple(replace(entry, failure=failure)
                    for entry, failure in zip(task.status.history, failures, strict=True))  # fmt: skip
    status = replace(
        task.status, version=1, beats=0, alarm=None, settled=None, history=history,
        lease=None if task.status.lease is None else replace(task.status.lease, token=""),
    )  # fmt: skip
    return Task(spec, status)


async def test_a_submit_says_all_that_can_be_said(port: Port, remote: RemoteEngine) -> None:
    wish = Submission(
        type="work", parameters=b'{"a":  1.50}', priority=Priority.HIGH, queue="mail", requires=frozenset({"b", "a"}),
        timeout=1_500_001, max_retries=7, max_crashes=2, backoff=Backoff(initial=SECOND, factor=3.0, ceiling=HOUR),
        delay=HOUR, idempotency_key="k", tenant="t", tags=("x", "y"), trace="00-1",
    )  # fmt: skip
    submitted = await remote.submit(wish)
    here = await port.engine.get(submitted.task.id)
    spec = here.spec
    assert (
        spec.type, spec.parameters, here.status.priority, spec.queue, spec.requires, spec.timeout, spec.max_retries,
        spec.max_crashes, spec.backoff, spec.key, spec.tenant, spec.tags, spec.trace,
    ) == (
        "work", b'{"a":  1.50}', Priority.HIGH, "mail", ("a", "b"), 1_500_001, 7, 2, wish.backoff, "k", "t",
        ("x", "y"), "00-1",
    )  # fmt: skip
    assert (here.state, here.status.ready_at) == (State.SCHEDULED, spec.created_at + HOUR)
    assert (submitted.existing, submitted.task.state, submitted.task.spec.created_at) == (
        False, State.SCHEDULED, spec.created_at,
    )  # fmt: skip
    again = await remote.submit(wish)
    assert (again.existing, again.task.id) == (True, submitted.task.id)


async def test_a_task_is_the_same_here_and_there(port: Port, remote: RemoteEngine) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    boom = Failure(type="Boom", message="it went boom", traceback="at line 1")
    tasks = [
        (await remote.submit(Submission(type="work", run_at=int(later.timestamp() * SECOND)))).task,
        await ended(port.engine, Completed(b'{"n":  1.10}'), tags=("t",)),
        await ended(port.engine, Failed(failure=boom), max_retries=0),
        await ended(port.engine, Failed(failure=boom, after=HOUR)),
        (await remote.submit(Submission(type="work"))).task,
    ]
    await port.engine.claim(WorkerId("w"), ["default"], limit=1)
    for task in tasks:
        assert await remote.get(task.id) == shown(await port.engine.get(task.id))


async def test_many_submits_succeed_or_fail_one_by_one(port: Port, remote: RemoteEngine) -> None:
    wishes = [Submission(type="work", parameters=b'{"n":%d}' % number) for number in range(1_500)]
    wishes[700] = Submission(type="not a name")
    answers = await remote.submit_many(wishes)
    assert isinstance(answers[700], InvalidTask)
    ids = [answer.task.id for answer in answers if not isinstance(answer, Exception)]
    stored = await port.engine.store.get(ids)
    assert [task.spec.parameters for task in stored if task] == [
        wish.parameters for position, wish in enumerate(wishes) if position != 700
    ]
    assert await remote.submit_many([]) == []


async def test_a_group_of_more_than_one_request_has_one_callback(port: Port, remote: RemoteEngine) -> None:
    last = Submission(type="last", after=(*range(1_500), 1_499), on_failure=OnFailure.RUN_ANYWAY)
    answers = await remote.submit_many(
        [*[Submission(type="work")] * 1_500, last, Submission(type="end", after=(1_500,))]
    )
    tasks = [answer.task for answer in answers if not isinstance(answer, Exception)]
    callback, end = tasks[-2:]
    here = await port.engine.get(callback.id)
    assert here.spec.after == After(tasks=tuple(task.id for task in tasks[:-2]), on_failure=OnFailure.RUN_ANYWAY)
    assert here.status.pending == 1_500
    assert await remote.get(callback.id) == shown(here)
    assert (await remote.get(end.id)).status.pending == 1


async def test_tasks_are_cancelled_replayed_and_discarded(port: Port, remote: RemoteEngine) -> None:
    waiting = (await remote.submit(Submission(type="work"))).task
    assert (await remote.cancel(waiting.id)).state is State.CANCELLED
    replayed = await remote.replay(waiting.id, priority=Priority.CRITICAL)
    assert (replayed.state, replayed.status.priority) == (State.QUEUED, Priority.CRITICAL)
    await remote.cancel(waiting.id)
    assert (await remote.discard(waiting.id)).id == waiting.id
    with pytest.raises(TaskNotFound) as unknown:
        await remote.get(waiting.id)
    assert unknown.value.task_id == waiting.id


async def test_lists_are_whole_whatever_the_pages(port: Port, remote: RemoteEngine) -> None:
    wishes = [Submission(type="work", priority=Priority(number % 4), tags=("t",)) for number in range(1_200)]
    await port.engine.submit_many(wishes)
    matching = Filter(states=frozenset({State.QUEUED}), priority=Priority.LOW, tag="t", queue="default", type="work")
    for newest_first in (True, False):
        here = await port.engine.find(matching, limit=5_000, newest_first=newest_first)
        there = await remote.find(matching, limit=5_000, newest_first=newest_first)
        assert [task.id for task in there] == [task.id for task in here]
        after = await remote.find(matching, limit=7, newest_first=newest_first, after=here[9].id)
        assert [task.id for task in after] == [task.id for task in here[10:17]]
    assert len(await remote.find(limit=1_100)) == 1_100
    assert await remote.find(Filter(created_before=1, created_from=0)) == []


async def test_stats_are_the_same_here_and_there(port: Port, remote: RemoteEngine) -> None:
    await ended(port.engine, Completed())
    await port.engine.submit(Submission(type="other", queue="mail", priority=Priority.LOW))
    here, there = await port.engine.stats(), await remote.stats()
    assert there.states == here.states and there.next_alarm == here.next_alarm
    assert {name: (each.states, each.types) for name, each in there.queues.items()} == {
        name: (each.states, each.types) for name, each in here.queues.items()
    }
    assert there.queues["mail"].lines[Priority.LOW].depth == 1


async def test_refusals_are_the_same_errors(port: Port, remote: RemoteEngine) -> None:
    done = await ended(port.engine, Completed())
    with pytest.raises(WrongState):
        await remote.cancel(done.id)
    with pytest.raises(WrongState):
        await remote.replay(done.id)
    with pytest.raises(TaskNotFound):
        await remote.get(TaskId(NOBODY))
    with pytest.raises(InvalidTask) as invalid:
        await remote.submit(Submission(type="work", queue="not a name"))
    assert invalid.value.field == "queue"
    with pytest.raises(PayloadTooLarge):
        await remote.submit(Submission(type="work", parameters=b'{"a":"%b"}' % (b"x" * 300_000)))
    with pytest.raises(InvalidSettings, match="PostgreSQL"):
        await remote.prepare(Submission(type="work"))
    await port.engine.queues.change("small", bound=1)
    await remote.submit(Submission(type="work", queue="small"))
    with pytest.raises(QueueFull) as full:
        await remote.submit(Submission(type="work", queue="small"))
    assert full.value.queue == "small"


async def test_a_key_is_needed_where_there_are_keys_and_is_never_shown(port: Port) -> None:
    await port.close()
    key = await Keyring(port.engine).create("only-submits", {Role.SUBMIT})
    await port.open()
    nobody = RemoteEngine(open_transport(Address(port.url), blocking=False))
    holder = RemoteEngine(open_transport(Address(port.url, key.text), blocking=False))
    assert key.text not in repr(Address(port.url, key.text))
    with pytest.raises(StoreRefused, match="FAIRLEAD_API_KEY"):
        await nobody.submit(Submission(type="work"))
    submitted = await holder.submit(Submission(type="work"))
    with pytest.raises(StoreRefused, match="role") as refused:
        await holder.get(submitted.task.id)
    assert key.text not in str(refused.value)
    await nobody.close()
    await holder.close()


async def test_synchronous_code_does_the_same(port: Port) -> None:
    app = port.app()

    @app.task
    def work(number: int) -> int:
        return number

    def in_a_thread() -> None:
        handle = work.submit_sync(1)
        assert handle.refresh_sync().status is State.QUEUED
        assert handle.cancel_sync() is State.CANCELLED
        with pytest.raises(TaskFailed):
            handle.result_sync(1)
        assert len(work.submit_many_sync([work.call(number) for number in range(3)])) == 3

    await asyncio.to_thread(in_a_thread)


async def test_a_result_is_waited_for_in_one_request(port: Port, remote: RemoteEngine) -> None:
    task = (await remote.submit(Submission(type="work"))).task
    waiting = asyncio.create_task(remote.get_ended(task.id, 20))
    (claimed,) = await port.engine.claim(WorkerId("w"), ["default"], limit=1)
    await port.engine.settle([Settlement(claimed, Completed(b"1"))])
    assert (await waiting).status.result == b"1"
    handle = await remote_handle(port)
    with pytest.raises(TimeoutError):
        await handle.result(0.01)


async def remote_handle(port: Port) -> TaskHandle[Any]:
    app = port.app()

    @app.task
    async def work() -> None: ...

    return await work.submit()


def test_a_server_that_does_not_answer_is_a_store_out_of_reach() -> None:
    engine = RemoteEngine(open_transport(NOWHERE, blocking=True))
    with pytest.raises(StoreUnavailable, match=r"http://127\.0\.0\.1:9 does not answer"):
        run_inline(engine.get(TaskId(NOBODY)))
    run_inline(engine.close())


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (502, b"<html>bad gateway</html>", StoreUnavailable),
        (404, b"<html>not found</html>", StoreMismatch),
        (404, b'{"type":"/docs#not-found","title":"","status":404,"detail":"no path"}', StoreMismatch),
        (429, b'{"type":"/docs#rate-limited","title":"","status":429,"detail":"slower"}', StoreUnavailable),
        (500, b'{"type":"/docs#internal","title":"","status":500,"detail":"oops"}', StoreUnavailable),
    ],
)
def test_what_is_not_an_answer_is_told_apart(status: int, body: bytes, error: type[Exception]) -> None:
    assert type(error_of(Reply(status, body), NOWHERE)) is error


@pytest.mark.parametrize(
    "error",
    [
        StoreRefused("password authentication failed for user 'app'; correct the store URL"),
        StoreMismatch("the schema is of version 99; upgrade fairlead"),
        StoreReadOnly("the file cannot be written; make it and its folder writable"),
        StoreFull("no space is left; make room"),
        StoreUnavailable("the store did not answer; try again"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_store_that_fails_is_the_same_error_behind_a_server(error: StoreError) -> None:
    class Failing(MemoryStore):
        async def add(self, *args: Any, **more: Any) -> Any:
            raise error

    port = Port(Failing())
    await port.open()
    remote = RemoteEngine(open_transport(Address(port.url), blocking=False))
    try:
        with pytest.raises(type(error), match=str(error)) as told:
            await remote.submit(Submission(type="work"))
        with pytest.raises(type(error), match=str(error)) as of_many:
            await remote.submit_many([Submission(type="work")])
    finally:
        await remote.close()
        await port.end()
    assert type(told.value) is type(of_many.value) is type(error)


@pytest.mark.parametrize("url", ["http://", "https://user:secret@host", "https://host/?a=b", "https://host#x"])
def test_a_url_that_names_no_server_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        Fairlead(url)
    assert "secret" not in str(refused.value)


def test_a_server_has_its_own_journal() -> None:
    with pytest.raises(InvalidSettings, match="its own journal"):
        Fairlead("https://host", journal="postgresql://host/db")


async def test_a_server_says_how_its_store_is(port: Port) -> None:
    app = port.app()
    diagnosis = await app.diagnose()
    ours = await port.engine.diagnose()
    assert (diagnosis.tier, diagnosis.level) == (ours.tier, ours.level)
    assert [each.what for each in diagnosis.findings] == [each.what for each in ours.findings]
    assert (await asyncio.to_thread(app.diagnose_sync)).tier == ours.tier
