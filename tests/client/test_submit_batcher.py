"""Submits of one turn of the event loop: one request, and to each its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from fairlead.admin.keys.service import Keyring
from fairlead.client.engine import RemoteEngine
from fairlead.client.http.open import open_transport
from fairlead.client.http.transport import PATIENCE, Address, Reply, Transport
from fairlead.core.errors import InvalidTask, PayloadTooLarge, QueueFull, StoreRefused, StoreUnavailable
from fairlead.core.identity import TaskId
from fairlead.core.submission import Submission
from fairlead.core.tenancy import Role
from fairlead.engine.engine import Submitted
from tests.client.serving import Port
from tests.server.serving import NOBODY
from tests.worker.building import eventually

ONE, BATCH = "/api/v1/tasks", "/api/v1/tasks/batch"


class Noted:
    """A transport that notes what it was asked, and can be held up."""

    def __init__(self, transport: Transport) -> None:
        self.address = transport.address
        self.asked: list[str] = []
        self.held = asyncio.Event()
        self.held.set()
        self._transport = transport

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> Reply:
        self.asked.append(path)
        await self.held.wait()
        return await self._transport.ask(method, path, body, query=query, patience=patience)

    async def close(self) -> None:
        await self._transport.close()


@pytest.fixture
async def noted(port: Port) -> AsyncIterator[Noted]:
    noted = Noted(open_transport(Address(port.url), blocking=False))
    yield noted
    await noted.close()


@pytest.fixture
def engine(noted: Noted) -> RemoteEngine:
    return RemoteEngine(noted, joining=True)


async def submitted(engine: RemoteEngine, *wishes: Submission) -> list[Submitted | BaseException]:
    """The answers to submits that are made one by one, at once."""
    return await asyncio.gather(*map(engine.submit, wishes), return_exceptions=True)


def work(number: int = 0, **said: object) -> Submission:
    return Submission(type="work", parameters=b'{"n":%d}' % number, **said)  # type: ignore[arg-type]


def kinds(answers: list[Submitted | BaseException]) -> list[type]:
    return [type(answer) for answer in answers]


async def test_fifty_at_once_are_one_request(port: Port, noted: Noted, engine: RemoteEngine) -> None:
    answers = await submitted(engine, *map(work, range(50)))
    assert noted.asked == [BATCH]
    ids = [answer.task.id for answer in answers if isinstance(answer, Submitted)]
    stored = await port.engine.store.get(ids)
    assert [task.spec.parameters for task in stored if task] == [b'{"n":%d}' % number for number in range(50)]


async def test_coroutines_that_submit_again_and_again_stay_together(noted: Noted, engine: RemoteEngine) -> None:
    async def some() -> None:
        for _ in range(3):
            await engine.submit(work())

    await asyncio.gather(*(some() for _ in range(10)))
    assert noted.asked == [BATCH] * 3


async def test_alone_a_submit_is_a_request_for_one(noted: Noted, engine: RemoteEngine) -> None:
    for number in range(3):
        assert (await engine.submit(work(number))).task.spec.parameters == b'{"n":%d}' % number
    assert noted.asked == [ONE] * 3


async def test_nobody_waits_for_a_request_that_is_under_way(noted: Noted, engine: RemoteEngine) -> None:
    noted.held.clear()
    first = asyncio.create_task(engine.submit(work(1)))
    await eventually(lambda: len(noted.asked) == 1, "the request")
    second = asyncio.create_task(engine.submit(work(2)))
    await eventually(lambda: len(noted.asked) == 2, "the other request")
    noted.held.set()
    assert [answer.task.spec.parameters for answer in await asyncio.gather(first, second)] == [b'{"n":1}', b'{"n":2}']


async def test_what_is_wrong_with_one_is_told_to_it_alone(port: Port, engine: RemoteEngine) -> None:
    await port.engine.queues.change("small", bound=1)
    answers = await submitted(
        engine,
        work(1),
        Submission(type="not a name"),
        work(2, idempotency_key="k"),
        work(3, idempotency_key="k"),
        Submission(type="work", parameters=b'{"a":"%b"}' % (b"x" * 300_000)),
        work(4, queue="small"),
        work(5, queue="small"),
    )
    assert kinds(answers) == [Submitted, InvalidTask, Submitted, Submitted, PayloadTooLarge, Submitted, QueueFull]
    assert [answer.existing for answer in answers[2:4] if isinstance(answer, Submitted)] == [False, True]


@pytest.mark.parametrize("broken", [b'{"a":', b'{"a":1,"a":2}', b"[" * 5_000 + b"]" * 5_000])
async def test_what_spoils_the_whole_request_spoils_only_its_own_task(
    port: Port, engine: RemoteEngine, broken: bytes
) -> None:
    answers = await submitted(engine, work(1), Submission(type="work", parameters=broken), work(2))
    assert kinds(answers) == [Submitted, InvalidTask, Submitted]
    assert len(await port.engine.find()) == 2


async def test_more_than_a_request_may_hold_are_several(noted: Noted, engine: RemoteEngine) -> None:
    answers = await submitted(engine, *map(work, range(1_001)))
    assert set(kinds(answers)) == {Submitted} and noted.asked == [BATCH] * 2


async def test_one_that_waits_for_others_goes_alone(noted: Noted, engine: RemoteEngine) -> None:
    """What it says of positions must not be taken to mean the tasks of others."""
    answers = await submitted(engine, work(1), work(2), work(3, after=(0,)), work(4, after=(TaskId(NOBODY),)))
    assert kinds(answers)[:2] == [Submitted, Submitted] and isinstance(answers[2], InvalidTask)
    assert sorted(noted.asked) == [ONE, ONE, BATCH]


async def test_who_is_cancelled_at_once_submits_nothing(port: Port, noted: Noted, engine: RemoteEngine) -> None:
    tasks = [asyncio.create_task(engine.submit(work(number))) for number in range(3)]
    asyncio.get_running_loop().call_soon(tasks[0].cancel)
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert kinds(answers) == [asyncio.CancelledError, Submitted, Submitted]
    assert len(await port.engine.find()) == 2


async def test_who_is_cancelled_later_takes_nobody_along(noted: Noted, engine: RemoteEngine) -> None:
    noted.held.clear()
    tasks = [asyncio.create_task(engine.submit(work(number))) for number in range(3)]
    await eventually(lambda: len(noted.asked) == 1, "the request")
    tasks[1].cancel()
    noted.held.set()
    assert kinds(await asyncio.gather(*tasks, return_exceptions=True)) == [Submitted, asyncio.CancelledError, Submitted]


async def test_a_server_out_of_reach_is_told_to_all(port: Port, engine: RemoteEngine) -> None:
    await port.close()
    assert kinds(await submitted(engine, work(1), work(2))) == [StoreUnavailable] * 2
    assert kinds(await submitted(engine, work(1))) == [StoreUnavailable]


async def test_a_key_that_is_missing_is_told_to_all(port: Port, engine: RemoteEngine) -> None:
    await port.close()
    await Keyring(port.engine).create("someone-else", {Role.SUBMIT})
    await port.open()
    assert kinds(await submitted(engine, work(1), work(2))) == [StoreRefused] * 2


async def test_an_app_joins_what_its_coroutines_submit(port: Port) -> None:
    app = port.app()

    @app.task
    async def add(number: int) -> int:
        return number

    handles = await asyncio.gather(*(add.submit(number) for number in range(20)))
    assert len({handle.id for handle in handles}) == 20
    # Stored by one batch, they share their moment.
    assert len({task.spec.created_at for task in await port.engine.find()}) == 1
