"""Races: the laws that hold whatever runs at once.

A store's test file subclasses `RaceContract` and supplies a fixture `url` that leads to an empty store; each test runs
with threads and with processes, every member of a crew with a store of its own:

    class TestSqliteRaces(RaceContract):
        @pytest.fixture
        def url(self, tmp_path: Path) -> str:
            return f"sqlite:///{tmp_path}/tasks.db"

A store that lives in one process overrides the fixture `crew` instead.

A crew does one job at the same moment: a coroutine function `job(store, number, *details)` at the top of a module;
`number` tells the members apart.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

import pytest
from msgspec import Struct

from fairlead.core.identity import TaskId
from fairlead.core.instant import AT_ONCE, MINUTE
from fairlead.core.queues.fairness import STEP, LineTurns
from fairlead.core.queues.limits import Limit, Limits
from fairlead.core.task import Priority, State, Task
from fairlead.storage.protocol import Sharing, Store
from fairlead.storage.values import Added, LineKeys
from fairlead.testing.builders import NOW, a_claim, a_dependent, an_id
from fairlead.testing.jobs import (
    a_numbered_task,
    add_same_ids,
    add_to_a_line,
    add_up_to_bound,
    add_with_keys,
    claim_until_empty,
    count_up,
    end_and_depend,
    feed_and_follow,
    holders,
    live,
    sweep_the_same,
    task_id_number,
    work_on_a_line,
    work_under_limits,
)
from fairlead.testing.reference import expected_standing, standing
from fairlead.testing.steps import Opening, add, contents, ids, opened


class RaceContract:
    """What holds when threads or processes meet."""

    @pytest.fixture(scope="class")
    @classmethod
    def processes(cls) -> Iterator[Processes]:
        """Processes to be reused, since starting them takes longer than the races."""
        with Processes() as processes:
            yield processes

    @pytest.fixture(params=["threads", "processes"])
    def crew(self, request: pytest.FixtureRequest) -> Crew:
        """Those who race."""
        url: str = request.getfixturevalue("url")
        if request.param == "threads":
            return ThreadCrew(lambda: opened(url))
        return ProcessCrew(request.getfixturevalue("processes"), url)

    def test_racing_claims_never_share_a_task_and_together_take_all(self, crew: Crew) -> None:
        """C4."""
        tasks = [a_numbered_task(number) for number in range(200)]
        alone(crew, lambda store: add(store, *tasks))
        taken = [task_id for answer in crew.do(claim_until_empty, 7) for task_id in answer]
        rest = ids(alone(crew, lambda store: store.claim(a_claim(limit=200))))
        assert sorted(taken + rest) == ids(tasks)
        assert all(task.status.attempts == 1 for task in alone(crew, contents))
        assert_tallied(crew)

    def test_of_racing_adds_of_one_key_exactly_one_is_added(self, crew: Crew) -> None:
        """A3."""
        answers = crew.do(add_with_keys, 20)
        added = [task_id for answer in answers for task_id, receipt in answer if receipt == Added()]
        assert len(added) == 20
        assert ids(alone(crew, contents)) == sorted(added)
        assert all(set(holders(answer)) == set(added) for answer in answers)

    def test_of_racing_adds_of_one_id_exactly_one_is_added(self, crew: Crew) -> None:
        """A2."""
        answers = crew.do(add_same_ids, 40)
        times_added = Counter(task_id for answer in answers for task_id, added in answer.items() if added)
        assert ids(alone(crew, contents)) == sorted(times_added)
        assert set(times_added.values()) == {1}
        assert_tallied(crew)

    def test_racing_adds_never_exceed_a_bound_and_together_reach_it(self, crew: Crew) -> None:
        """A5."""
        added = sum(crew.do(add_up_to_bound, 25, 30))
        assert added == 30
        assert len(alone(crew, contents)) == 30
        assert_tallied(crew)

    def test_racing_claims_never_exceed_a_limit_and_together_reach_it(self, crew: Crew) -> None:
        """L6: of each key and of the queue, whichever is less."""
        tasks = [a_numbered_task(number, concurrency_key=f"key {number % 4}") for number in range(40)]
        alone(crew, lambda store: add(store, *tasks))
        limits = Limits(queue=Limit(running=9), key=Limit(running=2))
        taken = [task_id for answer in crew.do(claim_until_empty, 3, limits) for task_id in answer]
        assert Counter(task_id_number(task_id) % 4 for task_id in taken) == dict.fromkeys(range(4), 2)
        assert_tallied(crew)

    def test_racing_workers_keep_to_limits_and_no_task_is_forgotten(self, crew: Crew) -> None:
        """L1, L5, L6: tasks are added, claimed and settled at once; of each key one runs, and all run in the end."""
        most = max(most for answer in crew.do(work_under_limits, 30) for most in answer)
        assert most == 1
        tasks: list[Task] = alone(crew, contents)
        assert len(tasks) == 30 * crew.size
        assert {task.state for task in tasks} == {State.COMPLETED}

    def test_of_racing_sweeps_one_answers_each_alarm(self, crew: Crew) -> None:
        """G1, G2."""
        tasks = [a_numbered_task(number) for number in range(60)]
        alone(crew, lambda store: add(store, *tasks))
        alone(crew, lambda store: store.claim(a_claim(limit=60)))
        accepted = [change.id for answer in crew.do(sweep_the_same, NOW + MINUTE) for change in answer]
        assert sorted(accepted) == ids(tasks)
        assert {task.status.crashes for task in alone(crew, contents)} == {1}
        assert_tallied(crew)

    def test_racing_workers_sweepers_and_cancellers_lose_nothing(self, crew: Crew) -> None:
        """G1, G2, C4: every version of a task was accepted once, and every task has one outcome."""
        tasks = [a_numbered_task(number) for number in range(60)]
        alone(crew, lambda store: add(store, *tasks))
        accepted = [change for answer in crew.do(live) for change in answer]
        versions: dict[TaskId, list[int]] = {task.id: [1] for task in tasks}
        for change in accepted:
            versions[change.id].append(change.version)
        ended: list[Task] = alone(crew, contents)
        assert ids(ended) == ids(tasks)
        for task in ended:
            assert sorted(versions[task.id]) == list(range(1, task.status.version + 1))
        assert Counter(change.id for change in accepted if change.ended) == Counter(ids(tasks))
        assert_tallied(crew)

    def test_racing_ends_and_adds_count_each_end_once_for_everyone_who_waits(self, crew: Crew) -> None:
        """D1, D2, D3: whether a task came to wait before the end or after it."""
        parents = [a_numbered_task(number) for number in range(60)]
        callback = a_dependent(*parents, id=an_id(number=900))
        alone(crew, lambda store: add(store, *parents, callback))
        added = sum(crew.do(end_and_depend, len(parents)))
        waiting = [task for task in alone(crew, contents) if task.spec.after is not None]
        assert len(waiting) == added + 1
        assert {(task.status.pending, task.status.alarm) for task in waiting} == {(0, AT_ONCE)}
        assert all(task.status.unmet == 6 for task in waiting if task.id != callback.id)
        (first,) = (task for task in waiting if task.id == callback.id)
        assert (first.status.unmet, first.status.version) == (12, 61)
        assert_tallied(crew)

    def test_racing_puts_lose_no_update(self, crew: Crew) -> None:
        """R1."""
        crew.do(count_up, 15)
        (record,) = alone(crew, lambda store: store.scan("counter"))
        assert int(record.value) == 15 * crew.size

    def test_a_reader_of_the_feed_misses_nothing_of_racing_publishers(self, crew: Crew) -> None:
        """E2."""
        read, *_ = crew.do(feed_and_follow, crew.size, 60)
        assert sorted(read) == sorted(b"%d %d" % (number, at) for number in range(1, crew.size) for at in range(60))


class SharingRaceContract:
    """What holds beside those for a store that gives turns; with the fixtures of `RaceContract`."""

    def test_racing_adds_of_one_key_are_in_order_and_another_key_is_served_soon(self, crew: Crew) -> None:
        """S1, S2: adds at the same time may give one turn twice, and those of one member are behind one another."""
        alone(crew, lambda store: add(store, a_numbered_task(999_999, fair="B")))
        crew.do(add_to_a_line, 20)
        tasks: list[Task] = alone(crew, contents)
        own: dict[int, list[int]] = {}
        for task in tasks:
            own.setdefault(task_id_number(task.id) // 1_000, []).append(task.status.turn)
        assert all(turns == sorted(set(turns)) for turns in own.values())
        assert max(turn for turns in own.values() for turn in turns) <= 20 * crew.size * STEP
        first = alone(crew, lambda store: store.claim(a_claim(limit=crew.size + 1)))
        assert "B" in {task.spec.fair_key for task in first}
        assert_tallied(crew)

    def test_racing_workers_lose_nothing_and_a_line_is_forgotten_with_its_last_task(self, crew: Crew) -> None:
        """S3, S4, C4: tasks of many keys are added, claimed, handed back and settled at once."""
        crew.do(work_on_a_line, 30)
        tasks: list[Task] = alone(crew, contents)
        assert len(tasks) == 30 * crew.size
        assert {task.state for task in tasks} == {State.COMPLETED}
        line: LineKeys = alone(crew, lambda store: _line(store))
        assert (line.turns, line.keys) == (LineTurns(), 0)
        assert_tallied(crew)


async def _line(store: Store) -> LineKeys:
    assert isinstance(store, Sharing)
    return await store.line_keys("default", Priority.MEDIUM, most=9)


def alone(crew: Crew, step: Callable[[Store], Coroutine[Any, Any, Result]]) -> Result:
    """Take a step on the crew's store while no one races."""

    async def take() -> Result:
        async with crew.opening() as store:
            return await step(store)

    return asyncio.run(take())


def assert_tallied(crew: Crew) -> None:
    """The tally is exact once the race is over."""
    assert standing(alone(crew, lambda store: store.tally())) == expected_standing(alone(crew, contents))


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
