"""Threads are started when they are needed, used again, and let go."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from fairlead.core.task import State
from fairlead.worker.attempt import ThreadResult, Threads
from tests.worker.building import Crew, eventually


async def test_an_idle_thread_is_used_again() -> None:
    threads = Threads()
    idents = set()
    for _ in range(20):
        end = await threads.run(threading.get_ident, contextvars.copy_context(), lambda: None)
        assert isinstance(end, ThreadResult)
        idents.add(end.result)
        await eventually(lambda: threads._idle == 1)
    threads.close()
    assert len(idents) == 1


async def test_threads_that_are_let_go_end() -> None:
    threads, before = Threads(), set(threading.enumerate())
    gate = threading.Event()
    ends = [threads.run(gate.wait, contextvars.copy_context(), lambda: None) for _ in range(5)]
    started = set(threading.enumerate()) - before
    assert len(started) == 5
    threads.close()
    gate.set()
    await asyncio.gather(*ends)
    await eventually(lambda: not any(thread.is_alive() for thread in started))


async def test_a_slot_is_not_lost_when_no_thread_can_be_started(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def work() -> None:
        ran.append(1)

    crew.handle(work)
    start, refusals = threading.Thread.start, [RuntimeError("can't start new thread")]

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name.startswith("fairlead-handler") and refusals:
            raise refusals.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    async with crew.working(concurrency=1):
        end = await crew.until_ended(await crew.submit("work"))
    assert (end.state, end.status.attempts) == (State.COMPLETED, 2)
    # The work of the first attempt was not left in line for the thread of the second.
    assert ran == [1]
