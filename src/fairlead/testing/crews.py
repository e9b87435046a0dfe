"""Crews: several threads or processes that do one job at the same moment, each with a store of its own.

A job is a coroutine function `job(store, number, *details)` at the top of a module; `number` tells the members apart.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from fairlead.storage.protocol import Store
from fairlead.testing.stores import Opening, opened

Details = ParamSpec("Details")
Result = TypeVar("Result")
Job: TypeAlias = Callable[Concatenate[Store, int, Details], Coroutine[Any, Any, Result]]

MEETING = 60.0
"""How long members wait for each other before they begin, in seconds."""
SHIFT = 100.0
"""How long a job may take, in seconds."""


class Crew(Protocol):
    """Members that do one job at the same moment."""

    size: int
    opening: Opening

    def do(self, job: Job[Details, Result], *details: Details.args, **named: Details.kwargs) -> list[Result]:
        """What each member's job came to, by number."""
        ...


class ThreadCrew:
    """Threads, each with an event loop and an opened store of its own."""

    def __init__(self, opening: Opening, size: int = 4) -> None:
        self.opening = opening
        self.size = size

    def do(self, job: Job[Details, Result], *details: Details.args, **named: Details.kwargs) -> list[Result]:
        start = threading.Barrier(self.size, timeout=MEETING)
        results: dict[int, Result] = {}
        errors: list[Exception] = []

        async def work(number: int) -> None:
            async with self.opening() as store:
                start.wait()
                results[number] = await job(store, number, *details, **named)

        def member(number: int) -> None:
            try:
                asyncio.run(work(number))
            except Exception as error:  # A thread's error is the caller's; without it the others wait in vain.
                errors.append(error)
                start.abort()

        threads = [threading.Thread(target=member, args=(number,), daemon=True) for number in range(self.size)]
        with _frequent_switches():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(SHIFT)
                assert not thread.is_alive(), f"a thread is still at work after {SHIFT:g} s"
        if errors:
            raise errors[0]
        return [results[number] for number in range(self.size)]


class Assignment(Struct, frozen=True):
    """What a process is told to do; None instead of it ends the process."""

    url: str
    job: Callable[..., Coroutine[Any, Any, Any]]
    details: tuple[Any, ...]
    named: dict[str, Any]


class Processes:
    """Spawned processes that wait for assignments."""

    def __init__(self, size: int = 3) -> None:
        self.size = size
        context = multiprocessing.get_context("spawn")
        self._start = context.Barrier(size)
        self._members: list[SpawnProcess] = []
        self._lines: list[Connection[Assignment | None, Any]] = []
        for number in range(size):
            line, far_end = context.Pipe()
            process = context.Process(target=_member, args=(far_end, self._start, number), daemon=True)
            process.start()
            far_end.close()
            self._members.append(process)
            self._lines.append(line)

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            for process, line in zip(self._members, self._lines, strict=True):
                stack.callback(process.close)
                stack.callback(process.join)
                stack.callback(process.kill)
                stack.callback(line.close)

    def do(self, assignment: Assignment) -> list[Any]:
        """What each process's job came to."""
        self._start.reset()
        for line in self._lines:
            line.send(assignment)
        answers = []
        for line in self._lines:
            assert line.poll(SHIFT), f"a process is still at work after {SHIFT:g} s"
            answers.append(line.recv())
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers


class ProcessCrew:
    """Processes, each with a store of its own, opened by its URL."""

    def __init__(self, processes: Processes, url: str) -> None:
        self.size = processes.size
        self.opening: Opening = lambda: opened(url)
        self._processes = processes
        self._url = url

    def do(self, job: Job[Details, Result], *details: Details.args, **named: Details.kwargs) -> list[Result]:
        return self._processes.do(Assignment(self._url, job, details, named))


@contextmanager
def _frequent_switches() -> Iterator[None]:
    """Let threads take turns often: by default one may do a whole job before the next has begun."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def _member(line: Connection[Any, Assignment | None], start: threading.Barrier, number: int) -> None:
    while (assignment := line.recv()) is not None:
        try:
            line.send(asyncio.run(_work(assignment, start, number)))
        except Exception as error:  # A member's error is the caller's.
            line.send(RuntimeError(f"process {number}: {type(error).__name__}: {error}"))


async def _work(assignment: Assignment, start: threading.Barrier, number: int) -> Any:
    try:
        async with opened(assignment.url) as store:
            start.wait(MEETING)
            return await assignment.job(store, number, *assignment.details, **assignment.named)
    except Exception:
        start.abort()
        raise
