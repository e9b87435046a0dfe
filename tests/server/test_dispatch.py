"""Long polls: who waits is served in turn, at little cost, and nothing is lost on whoever has gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from starlette.types import ASGIApp

from fairlead.admin.engine import AdminEngine
from fairlead.core.identity import WorkerId
from fairlead.core.submission import Submission
from fairlead.core.task import Reason, State, Task
from fairlead.server.app import build
from fairlead.server.worker_protocol.dispatch import Dispatcher, PollTerms
from fairlead.storage.memory import MemoryStore
from tests.server.serving import Service
from tests.server.workers import Hand
from tests.worker.building import eventually

ANY = PollTerms(("default",), frozenset(), None)


class Line:
    """A dispatcher over a memory store, and polls that wait there."""

    def __init__(self, recheck: float = 30.0) -> None:
        """Looks again so seldom that only a signal can be what wakes a poll."""
        self.store = MemoryStore()
        self.engine = AdminEngine(self.store)
        self.stopping = asyncio.Event()
        self.dispatcher = Dispatcher(self.engine, self.stopping, recheck)
        self.polls: list[asyncio.Task[list[Task]]] = []

    async def wait(self, wish: PollTerms = ANY, *, limit: int = 1, gone: asyncio.Future[object] | None = None) -> int:
        """Begin a poll; its number."""
        number = len(self.polls)
        left: asyncio.Future[object] = gone or asyncio.get_running_loop().create_future()
        poll = self.dispatcher.poll(WorkerId(f"worker-{number}"), wish, limit, 60.0, left)
        self.polls.append(asyncio.create_task(poll))
        await self.until(lambda: self.dispatcher.waiting > number or self.polls[number].done())
        return number

    async def submit(self, **wish: Any) -> Task:
        return (await self.engine.submit(Submission(type="work", **wish))).task

    async def until(self, condition: Callable[[], bool]) -> None:
        await eventually(condition)

    @property
    def served(self) -> list[int]:
        """The polls that have tasks, by number."""
        return [number for number, poll in enumerate(self.polls) if poll.done() and poll.result()]


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    line = Line()
    yield line
    line.stopping.set()
    await asyncio.gather(*line.polls)


async def test_who_waited_longest_is_served_first(line: Line) -> None:
    for _ in range(3):
        await line.wait()
    for count in (1, 2, 3):
        await line.submit()
        await line.until(lambda count=count: len(line.served) == count)  # type: ignore[misc]
        assert line.served == list(range(count))


async def test_one_submit_to_two_hundred_idle_polls_costs_a_claim_or_two(line: Line) -> None:
    for _ in range(200):
        await line.wait()
    before = line.dispatcher.claims
    await line.submit()
    await line.until(lambda: line.served == [0])
    assert line.dispatcher.waiting == 199
    assert line.dispatcher.claims - before <= 2


async def test_many_submits_wake_as_many_as_it_takes(line: Line) -> None:
    for _ in range(20):
        await line.wait(limit=2)
    await line.engine.submit_many([Submission(type="work") for _ in range(10)])
    await line.until(lambda: len(line.served) == 5)
    assert line.served == [0, 1, 2, 3, 4]
    assert all(len(line.polls[number].result()) == 2 for number in line.served)


async def test_a_poll_that_cannot_take_a_task_does_not_keep_it_from_one_that_can(line: Line) -> None:
    await line.wait()
    able = await line.wait(PollTerms(("default",), frozenset({"gpu"}), None))
    await line.submit(requires=frozenset({"gpu"}))
    await line.until(lambda: line.served == [able])
    assert line.dispatcher.waiting == 1


async def test_of_many_kinds_of_workers_only_those_are_claimed_for_that_could_get_something(line: Line) -> None:
    for number in range(50):
        await line.wait(PollTerms(("default",), frozenset({f"host-{number}"}), frozenset({"work"})))
    before = line.dispatcher.claims
    await line.submit(requires=frozenset({"host-37"}))
    await line.until(lambda: line.served == [37])
    assert line.dispatcher.claims - before <= 2


async def test_queues_have_lines_of_their_own(line: Line) -> None:
    await line.wait(PollTerms(("mail",), frozenset(), None))
    other = await line.wait()
    await line.submit()
    await line.until(lambda: line.served == [other])


async def test_a_task_that_nobody_rang_for_is_found_all_the_same() -> None:
    line = Line(recheck=0.01)
    await line.wait()
    line.store._doorbell.ring = lambda *_: None  # type: ignore[method-assign]
    task = await line.submit()
    await line.until(lambda: line.served == [0])
    assert line.polls[0].result()[0].id == task.id


async def test_a_caller_that_hangs_up_leaves_the_line(line: Line) -> None:
    gone: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    await line.wait(gone=gone)
    other = await line.wait()
    gone.set_result(None)
    assert await line.polls[0] == []
    await line.submit()
    await line.until(lambda: line.served == [other])


async def test_all_polls_end_when_the_server_stops(line: Line) -> None:
    for _ in range(5):
        await line.wait()
    line.stopping.set()
    assert await asyncio.gather(*line.polls) == [[]] * 5
    assert await line.dispatcher.poll(WorkerId("late"), ANY, 1, 60.0, asyncio.Future()) == []


async def test_a_long_poll_is_answered_when_a_task_comes(service: Service) -> None:
    hand = await Hand.hired(service)
    polling = asyncio.create_task(hand.poll(wait_seconds=60))
    await eventually(lambda: service.state.dispatcher.waiting == 1)
    submitted = await service.submit()
    (task,) = await polling
    assert task["task_id"] == submitted["task_id"]
    service.state.stopping.set()


async def test_a_long_poll_ends_by_itself(in_memory: Service) -> None:
    hand = await Hand.hired(in_memory)
    assert await hand.poll(wait_seconds=0.01) == []
    assert await hand.poll(0, wait_seconds=0.01) == []
    in_memory.state.stopping.set()


class Caller:
    """One who calls the application and may hang up while it answers."""

    def __init__(self, service: Service, path: str, body: Any) -> None:
        self._body = msgspec.json.encode(body)
        self._hung_up = asyncio.Event()
        self._asked = False
        self.sent: list[Any] = []
        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")], "root_path": "",
            "scheme": "http", "http_version": "1.1", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        self.answering = asyncio.create_task(self._call(build(service.state), scope))

    def hang_up(self) -> None:
        self._hung_up.set()

    async def _call(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        await app(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._hung_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)


async def test_tasks_for_a_caller_that_has_gone_wait_again_at_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = await Hand.hired(service)
    claim = service.state.dispatcher.claim
    caller: Caller

    async def claim_while_it_hangs_up(*arguments: Any) -> list[Task]:
        tasks = await claim(*arguments)
        if tasks:
            caller.hang_up()
            # As long as it takes for the server to hear of it.
            for _ in range(10):
                await asyncio.sleep(0)
        return tasks

    monkeypatch.setattr(service.state.dispatcher, "claim", claim_while_it_hangs_up)
    caller = Caller(service, f"/internal/workers/{hand.id}/poll", {"available_capacity": 1, "wait_seconds": 60})
    await eventually(lambda: service.state.dispatcher.waiting == 1)
    submitted = await service.submit()
    await caller.answering
    assert caller.sent == []
    task = await service.engine.get(submitted["task_id"])
    assert (task.state, task.status.reason, task.status.retries) == (State.QUEUED, Reason.HANDED_BACK, 0)
    service.state.stopping.set()


async def test_a_caller_that_hangs_up_while_it_waits_takes_nothing(in_memory: Service) -> None:
    hand = await Hand.hired(in_memory)
    caller = Caller(in_memory, f"/internal/workers/{hand.id}/poll", {"available_capacity": 1, "wait_seconds": 60})
    await eventually(lambda: in_memory.state.dispatcher.waiting == 1)
    caller.hang_up()
    await caller.answering
    assert caller.sent == []
    await in_memory.submit()
    assert len(await hand.poll()) == 1
    in_memory.state.stopping.set()
