"""Who holds a task: small machines in which looking and acting are separate steps.

Workers claim, renew and settle; sweepers and cancellers look now and act later; nobody ever forgets a token. A model
that knows only what was accepted says what each step must be answered.

    def test_sqlite_keeps_its_leases(tmp_path: Path) -> None:
        numbers = itertools.count()
        check_leases(lambda: opened(f"sqlite:///{tmp_path}/{next(numbers)}.db"))
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, ClassVar, TypeVar

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine
from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.events import AlarmRang, CancelAsked, Completed, Event, Failed, HandedBack, Outcome
from fairlead.core.identity import LeaseToken, TaskId, WorkerId
from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.lifecycle import decide, settlement
from fairlead.core.settings import Rules
from fairlead.core.task import State, Task
from fairlead.storage.values import Change, Pulse, Verdict
from fairlead.testing.builders import GRACE, LEASE, NOW, a_beat, a_claim, a_failure, a_task, an_id, held, seen
from fairlead.testing.steps import Opening, add, contents
from fairlead.testing.strategies import STEADY, WORKERS, mostly_late

Answer = TypeVar("Answer")

_OUTCOMES: tuple[Outcome, ...] = (
    Completed(b"1"),
    Completed(b"2"),
    Failed(failure=a_failure(), after=0),
    Failed(failure=a_failure(), retriable=False),
    HandedBack(),
)


def check_leases(opening: Opening, *, settings: settings = STEADY) -> None:
    """Let workers, sweepers and cancellers meet over one task and over three; `opening` must give an empty store."""
    for count in (1, 3):

        class Machine(LeaseMachine):
            tasks = count

        Machine.opening = staticmethod(opening)
        run_machine(Machine, settings=settings)


class Look(Struct, frozen=True):
    """A task as someone read it, and how much had been accepted of it by then."""

    task: Task
    accepted: int


class LeaseMachine(RuleBasedStateMachine):
    """Everyone who may lay hands on a task, and a ledger of what was accepted."""

    opening: ClassVar[Opening]
    tasks: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._store = self._run(self._stack.enter_async_context(type(self).opening()))
        self._now: Instant = NOW
        self._grips: list[Task] = []
        """Every task as a worker knows it that claimed it, however long ago."""
        self._alarms: list[Look] = []
        self._looks: list[Look] = []
        self._accepted: Counter[TaskId] = Counter()
        """Claims, heartbeats and changes: whatever makes an older look stale."""
        self._decided: Counter[TaskId] = Counter()
        """Claims and changes: whatever makes a worker's knowledge stale."""
        self._holder: dict[TaskId, LeaseToken] = {}
        self._said: dict[TaskId, str] = {}
        self._ended: Counter[TaskId] = Counter()
        self._added = 0

    @initialize()
    def tasks_are_added(self) -> None:
        self._add_tasks()

    @precondition(lambda self: self._ended.total() == self._added)
    @rule()
    def tasks_are_added_when_all_have_ended(self) -> None:
        self._add_tasks()

    def teardown(self) -> None:
        try:
            self._run(self._stack.aclose())
        finally:
            self._runner.close()

    @rule(worker=st.sampled_from(WORKERS), limit=st.integers(1, 2))
    def worker_claims(self, worker: WorkerId, limit: int) -> None:
        claim = a_claim(limit=limit, worker=worker, now=self._now)
        for task in self._run(self._store.claim(claim)):
            assert task.id not in self._holder, "a task was claimed while someone held it"
            assert not self._ended[task.id], "a task was claimed after it had ended"
            self._holder[task.id] = held(task).token
            self._accept(task.id)
            self._grips.append(task)

    @precondition(lambda self: self._grips)
    @rule(data=st.data(), by=st.sampled_from([0, SECOND, 2 * LEASE]))
    def worker_renews(self, data: st.DataObject, by: Span) -> None:
        task = data.draw(mostly_late(self._grips))
        before = self._read(task.id)
        (pulse,) = self._run(self._store.extend([a_beat(task)], lease=by, now=self._now, grace=GRACE))
        if self._holds(task):
            assert pulse is (Pulse.CANCEL if before.status.cancel_asked else Pulse.HELD)
            self._accepted[task.id] += 1
        else:
            assert pulse is Pulse.LOST, "a lost lease was renewed"
            assert self._read(task.id) == before, "a lost lease changed the task"

    @precondition(lambda self: self._grips)
    @rule(data=st.data(), outcome=st.sampled_from(_OUTCOMES))
    def worker_settles(self, data: st.DataObject, outcome: Outcome) -> None:
        task = data.draw(mostly_late(self._grips))
        assert task.status.lease is not None
        said = settlement(task.status.lease, outcome)
        # A worker may learn the version from others, so that only its token tells it from the holder.
        version = data.draw(st.sampled_from([task.status.version, 1 + self._decided[task.id]]))
        informed = Task(task.spec, replace(task.status, version=version))
        change = Change(task.id, held(informed), decide(informed, outcome, self._now, rules=Rules()))
        verdict = self._change(change)
        if self._holds(task) and version == 1 + self._decided[task.id]:
            assert verdict is Verdict.APPLIED
            self._let_go(task.id)
            self._said[task.id] = said
        elif self._said.get(task.id) == said:
            assert verdict is Verdict.REPEATED
        else:
            assert verdict is Verdict.STALE, "a settle under an old lease or version was accepted"

    @precondition(lambda self: self._grips)
    @rule(data=st.data())
    def worker_reads_again(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self._grips) - 1))
        task = self._read(self._grips[at].id)
        if self._holds(self._grips[at]):
            assert task.status.lease is not None
            self._grips[at] = task

    @rule(by=st.sampled_from([1, SECOND, LEASE]))
    def time_passes_and_sweeper_looks(self, by: Span) -> None:
        self._now += by
        rung = self._run(self._store.due(self._now, 10))
        # Nothing is removed here, so that every task's outcome can be counted.
        self._alarms += [self._look(task) for task in rung if not task.state.ended]

    @rule()
    def canceller_looks(self) -> None:
        self._looks += [self._look(task) for task in self._run(contents(self._store)) if not task.state.ended]

    @precondition(lambda self: self._alarms)
    @rule(data=st.data())
    def sweeper_acts(self, data: st.DataObject) -> None:
        self._act(data.draw(mostly_late(self._alarms)), AlarmRang())

    @precondition(lambda self: self._looks)
    @rule(data=st.data())
    def canceller_acts(self, data: st.DataObject) -> None:
        self._act(data.draw(mostly_late(self._looks)), CancelAsked())

    @invariant()
    def the_store_tells_the_same_as_the_ledger(self) -> None:
        for task in self._run(contents(self._store)):
            token = task.status.lease.token if task.status.lease else None
            assert token == self._holder.get(task.id)
            assert (task.state is State.EXECUTING) == (task.id in self._holder)
            assert task.status.version == 1 + self._decided[task.id]
            assert task.state.ended == (self._ended[task.id] == 1)
            assert self._ended[task.id] <= 1, "a task has two outcomes"

    def _add_tasks(self) -> None:
        numbers = range(self._added, self._added + type(self).tasks)
        tasks = [a_task(id=an_id(number=number), max_retries=2, max_crashes=2) for number in numbers]
        self._run(add(self._store, *tasks))
        self._added += len(tasks)

    def _act(self, look: Look, event: Event) -> None:
        status = decide(look.task, event, self._now, rules=Rules())
        task_id = look.task.id
        verdict = self._change(Change(task_id, seen(look.task), status))
        if look.accepted != self._accepted[task_id]:
            assert verdict is Verdict.STALE, "something was accepted between the look and the act"
            return
        assert verdict is Verdict.APPLIED
        if status is not None and status.lease is None:
            self._let_go(task_id)
        else:
            self._accept(task_id)

    def _change(self, change: Change) -> Verdict:
        before = self._read(change.id)
        (verdict,) = self._run(self._store.apply([change]))
        after = self._read(change.id)
        if verdict is Verdict.APPLIED:
            assert after.status == change.status
        else:
            assert after == before, "a refused change changed the task"
        if verdict is Verdict.APPLIED and after.state.ended:
            self._ended[change.id] += 1
        return verdict

    def _let_go(self, task_id: TaskId) -> None:
        self._holder.pop(task_id, None)
        self._accept(task_id)

    def _accept(self, task_id: TaskId) -> None:
        self._accepted[task_id] += 1
        self._decided[task_id] += 1

    def _holds(self, task: Task) -> bool:
        return self._holder.get(task.id) == held(task).token

    def _look(self, task: Task) -> Look:
        return Look(task, self._accepted[task.id])

    def _read(self, task_id: TaskId) -> Task:
        (task,) = self._run(self._store.get([task_id]))
        assert task is not None, "a task is lost"
        return task

    def _run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        return self._runner.get_loop().run_until_complete(coroutine)
