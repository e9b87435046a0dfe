"""Searches, dead letters and operations over the API: the same calls as on a store, with the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from fairlead.client.engine import RemoteEngine
from fairlead.client.http.open import open_transport
from fairlead.client.http.transport import Address
from fairlead.core.errors import OperationNotFound, OperationRefused, QueryError
from fairlead.core.operation import Action, NewOperation, Operation, Stage
from fairlead.core.query.parser import parse_query
from fairlead.core.query.query import Query, term
from fairlead.core.task import Priority, State, Task
from fairlead.storage.values import Filter
from tests.client.serving import Port
from tests.engine.stocking import a_dead_letter
from tests.worker.building import PATIENCE


@pytest.fixture
async def remote(port: Port) -> AsyncIterator[RemoteEngine]:
    engine = RemoteEngine(open_transport(Address(port.url), blocking=False))
    yield engine
    await engine.close()


async def stocked(port: Port, count: int = 6) -> list[Task]:
    now = port.engine.clock.now()
    made = [a_dead_letter(number) for number in range(count)]
    tasks = [
        Task(
            replace(task.spec, created_at=now - 1_000),
            replace(task.status, ended_at=now - 1_000, alarm=now + 10**12),
        )
        for task in made
    ]
    await port.engine.store.add(tasks, now=now, bounds={})
    return tasks


async def stopped(remote: RemoteEngine, operation_id: str) -> Operation:
    """An operation, as soon as the server no longer works on it."""
    async with asyncio.timeout(PATIENCE):
        while (operation := await remote.operations.step(operation_id)).stage.active:
            pass
    return operation


async def test_a_search_gives_what_it_gives_on_the_store(port: Port, remote: RemoteEngine) -> None:
    tasks = await stocked(port)
    query = parse_query('params.user_id:>0 "is unknown"')

    first = await remote.search(query, within=Filter(type="send_mail"), limit=3)
    rest = await remote.search(query, within=Filter(type="send_mail"), limit=3, after=first.cursor)

    assert [task.id for task in first.tasks + rest.tasks] == [task.id for task in reversed(tasks[1:])]
    assert rest.cursor is None


async def test_dead_letters_are_grouped(port: Port, remote: RemoteEngine) -> None:
    await stocked(port)

    grouped = await remote.dead_letters.groups(parse_query("params.user_id:<4"))

    assert replace(grouped, as_of=0) == replace(
        await port.engine.dead_letters.groups(parse_query("params.user_id:<4")), as_of=0
    )
    assert (await remote.dead_letters.groups()).total == 6


async def test_an_operation_is_done_by_the_server(port: Port, remote: RemoteEngine) -> None:
    await stocked(port)
    wish = NewOperation(action=Action.REPLAY, query=parse_query("state:dead_letter"), priority=Priority.LOW, canary=2)

    preview = await remote.operations.preview(wish)
    assert (preview.count, len(preview.sample)) == (6, 6)
    begun = await remote.operations.start(replace(wish, as_of=preview.as_of, expected=6))
    assert (begun.action, begun.expected, begun.priority) == (Action.REPLAY, 6, Priority.LOW)

    paused = await stopped(remote, begun.id)
    assert (paused.stage, paused.done) == (Stage.PAUSED, 2)
    await remote.operations.resume(begun.id)
    done = await stopped(remote, begun.id)
    assert (done.stage, done.done) == (Stage.DONE, 6)
    assert [each.id for each in await remote.operations.all()] == [begun.id]
    low = await port.engine.find(Filter(states=frozenset({State.QUEUED}), priority=Priority.LOW))
    assert len(low) == 6


async def test_the_errors_are_the_same(port: Port, remote: RemoteEngine) -> None:
    await stocked(port, 2)
    wish = NewOperation(action=Action.DISCARD, query=parse_query("state:dead_letter"), canary=1)

    with pytest.raises(OperationRefused, match="2 tasks match, not 5"):
        await remote.operations.start(replace(wish, expected=5))
    for named in ("nobody", "../tasks"):
        with pytest.raises(OperationNotFound):
            await remote.operations.get(named)
    begun = await remote.operations.start(replace(wish, rate=0.001))
    await remote.operations.pause(begun.id)
    assert (await remote.operations.cancel(begun.id)).stage is Stage.CANCELLED
    with pytest.raises(OperationRefused):
        await remote.operations.resume(begun.id)
    with pytest.raises(QueryError):
        await remote.search(Query((term("later", "field"),)))
