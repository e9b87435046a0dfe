"""A store and the memory store side by side: the same random calls must have the same answers.

def test_sqlite_agrees_with_memory(tmp_path: Path) -> None:
    numbers = itertools.count()
    compare_with_memory(lambda: opened(f"sqlite:///{tmp_path}/{next(numbers)}.db"))
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fairlead.core.events import AlarmRang, Event
from fairlead.core.identity import TaskId
from fairlead.core.instant import DAY, HOUR, LATEST, SECOND, Instant, Span
from fairlead.core.lifecycle import decide
from fairlead.core.queues.promotion import BEFORE_ALL, Place
from fairlead.core.settings import Rules
from fairlead.core.task import Progress, Task
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store
from fairlead.storage.values import Beat, Change, Claim, Filter, Stretch
from fairlead.testing.builders import GRACE, LEASE, NOW, a_claim, an_id, held, seen
from fairlead.testing.reference import (
    expected_claim,
    expected_count,
    expected_due,
    expected_find,
    expected_standing,
    standing,
)
from fairlead.testing.steps import Opening, contents, ids
from fairlead.testing.strategies import (
    CAPABILITIES,
    QUEUES,
    STEADY,
    TaskPlan,
    claims,
    filters,
    mostly_late,
    outcomes,
    requests_to,
    some_limits,
    wishes,
)

Answer = TypeVar("Answer")

_NAMES = ("y", "x", "x:y")
_FAR = NOW + 10_000 * DAY
_SPANS: tuple[Span, ...] = (0, 1, SECOND, LEASE - 1, LEASE, HOUR)
_TIMES = st.sampled_from((0, 1, 1, SECOND, SECOND)) | st.sampled_from((LEASE, HOUR, 2 * DAY, 31 * DAY))
"""How much time passes: mostly little, so that leases are held when something happens to them."""
_BOUNDS: tuple[dict[str, int], ...] = ({}, {"a": 1}, {"a": 2, "b": 1}, {"a": 4})


def compare_with_memory(opening: Opening, *, settings: settings = STEADY) -> None:
    """Drive a store and a memory store side by side; `opening` must give an empty store each time."""

    class Machine(SideBySide):
        pass

    Machine.opening = staticmethod(opening)
    run_state_machine_as_test(Machine, settings=settings)


class SideBySide(RuleBasedStateMachine):
    """Random calls upon two stores."""

    opening: ClassVar[Opening]

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._store = self._run(self._stack.enter_async_context(type(self).opening()))
        self._memory = MemoryStore()
        self._now: Instant = NOW
        self._tasks: list[Task] = []
        """All tasks as they are."""
        self._former: list[Task] = []
        """Tasks as they once were."""
        self._claimed: list[Task] = []
        """Tasks as claims gave them: what their workers know."""
        self._changes: list[Change] = []
        self._dues: dict[tuple[str, str], Instant] = {}
        """When the next starts are due of what has a rate, by queue and name."""
        self._versions: dict[tuple[str, str], tuple[int, int]] = {}
        self._places: tuple[str | None, str | None] = (None, None)
        """How far each store's feed was read."""

    def teardown(self) -> None:
        try:
            self._run(self._stack.aclose())
        finally:
            self._runner.close()

    @initialize(batch=st.lists(wishes, min_size=5, max_size=9), limit=st.integers(1, 4))
    def some_tasks_wait_and_some_are_held(self, batch: list[TaskPlan], limit: int) -> None:
        self.add(batch, {})
        claim = a_claim(*QUEUES, limit=limit, capabilities=CAPABILITIES)
        self._claim(claim)

    @rule(batch=st.lists(wishes, min_size=1, max_size=5), bounds=st.sampled_from(_BOUNDS))
    def add(self, batch: list[TaskPlan], bounds: dict[str, int]) -> None:
        tasks = [wish.task(self._now) for wish in batch]
        self._both(lambda store: store.add(tasks, now=self._now, bounds=bounds))

    @rule(data=st.data(), limit=st.integers(1, 4) | st.just(0))
    def claim(self, data: st.DataObject, limit: int) -> None:
        claim = data.draw(claims(self._now, limit, limits=some_limits))
        self._claim(claim)

    @precondition(lambda self: self._claimed)
    @rule(data=st.data(), by=st.sampled_from(_SPANS), grace=st.sampled_from((GRACE, 0)))
    def extend(self, data: st.DataObject, by: Span, grace: Span) -> None:
        reports = st.none() | st.builds(Progress, percent=st.floats(0, 100), message=st.text(max_size=3))
        tasks = data.draw(st.lists(self._leases(), min_size=1, max_size=3))
        beats = [Beat(task.id, held(task).token, data.draw(reports)) for task in tasks]
        self._both(lambda store: store.extend(beats, lease=by, now=self._now, grace=grace))

    @precondition(lambda self: self._claimed)
    @rule(data=st.data(), said=st.lists(outcomes, min_size=1, max_size=2))
    def settle(self, data: st.DataObject, said: list[Event]) -> None:
        tasks = [data.draw(self._leases()) for _ in said]
        self._apply(
            [
                Change(task.id, held(task), decide(task, event, self._now, rules=Rules()))
                for task, event in zip(tasks, said, strict=True)
            ]
        )

    @precondition(lambda self: self._tasks)
    @rule(data=st.data())
    def act_on_a_look(self, data: st.DataObject) -> None:
        tasks = data.draw(st.lists(self._looks(), min_size=1, max_size=2))
        self._apply([self._decided(task, data.draw(requests_to(task.state))) for task in tasks])

    @rule(by=_TIMES, limit=st.just(0) | st.integers(1, 9))
    def time_passes_and_a_sweep(self, by: Span, limit: int) -> None:
        self._now += by
        rung = self._both(lambda store: store.due(self._now, limit))
        self._apply([self._decided(task, AlarmRang()) for task in rung])

    @precondition(lambda self: self._changes)
    @rule(data=st.data())
    def say_again(self, data: st.DataObject) -> None:
        self._apply(data.draw(st.lists(mostly_late(self._changes), min_size=1, max_size=3)))

    @precondition(lambda self: self._tasks)
    @rule(matching=filters(), limit=st.integers(0, 9), newest_first=st.booleans(), data=st.data())
    def read(self, matching: Filter, limit: int, newest_first: bool, data: st.DataObject) -> None:
        ids = st.builds(an_id, st.sampled_from(QUEUES), st.integers(0, 12))
        asked = data.draw(st.lists(ids | st.sampled_from([task.id for task in self._tasks]), max_size=4))
        after: TaskId | None = data.draw(st.none() | ids)
        self._both(lambda store: store.get(asked))
        found = self._both(lambda store: store.find(matching, limit=limit, newest_first=newest_first, after=after))
        assert found == expected_find(self._tasks, matching, limit, newest_first, after)
        places = [(task.status.alarm, task.id) for task in self._tasks if task.status.alarm is not None]
        beyond = data.draw(st.none() | st.sampled_from(places)) if places else None
        rung = self._both(lambda store: store.due(_FAR, limit, beyond))
        assert rung == expected_due(self._tasks, _FAR, limit, beyond)

    @rule(name=st.sampled_from(_NAMES), value=st.none() | st.binary(max_size=3), data=st.data())
    def record(self, name: str, value: bytes | None, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(_NAMES[1:]))
        mine, reference = data.draw(self._expectations(kind, name))
        if value is None:
            self._drop(kind, name, mine, reference)
        else:
            self._put(kind, name, value, mine, reference)
        for each in _NAMES:
            self._compare_records(each)

    @rule(values=st.lists(st.binary(max_size=3), max_size=4), limit=st.integers(1, 5))
    def publish(self, values: list[bytes], limit: int) -> None:
        if values:
            self._both(lambda store: store.publish(values, now=self._now, keep=10_000))
        # Positions are each store's own, so each is followed by itself.
        mine = self._run(self._store.feed(self._places[0], limit))
        model = self._run(self._memory.feed(self._places[1], limit))
        assert [entry.value for entry in mine] == [entry.value for entry in model]
        if model:
            self._places = (mine[-1].position, model[-1].position)

    @invariant()
    def both_hold_the_same(self) -> None:
        tasks = self._run(contents(self._memory))
        assert self._run(contents(self._store)) == tasks
        assert standing(self._run(self._store.tally())) == expected_standing(tasks)
        assert standing(self._run(self._memory.tally())) == expected_standing(tasks)
        places = [BEFORE_ALL, *(Place(task.status.ready_at, task.id) for task in tasks)]
        stretches = [Stretch(task.lane, *ends) for task, ends in zip(tasks, pairwise(places), strict=True)]
        expected = [expected_count(tasks, stretch) for stretch in stretches]
        assert self._run(self._store.count(stretches)) == expected
        assert self._run(self._memory.count(stretches)) == expected
        if len(tasks) > 1:
            wide = [Stretch(tasks[0].lane, BEFORE_ALL, Place(LATEST, BEFORE_ALL.id))]
            few = [min(2, expected_count(tasks, each)) for each in wide]
            assert self._run(self._store.count(wide, 2)) == self._run(self._memory.count(wide, 2)) == few
        current = {task.id: task for task in tasks}
        self._former += [task for task in self._tasks if current.get(task.id) is not task]
        self._tasks = tasks

    def _claim(self, claim: Claim) -> None:
        tasks = self._run(contents(self._memory))
        taken = self._both(lambda store: store.claim(claim))
        assert ids(taken) == ids(expected_claim(tasks, claim, self._dues))
        self._claimed += taken

    def _apply(self, changes: list[Change]) -> None:
        self._changes += changes
        self._both(lambda store: store.apply(changes))

    def _decided(self, task: Task, event: Event) -> Change:
        return Change(task.id, seen(task), decide(task, event, self._now, rules=Rules()))

    def _looks(self) -> st.SearchStrategy[Task]:
        now = st.sampled_from(self._tasks)
        return now | now | mostly_late(self._former) if self._former else now

    def _leases(self) -> st.SearchStrategy[Task]:
        """Tasks as their workers know them: often still held, at times read anew, at times lost long ago."""
        executing = [task for task in self._tasks if task.status.lease is not None]
        once = mostly_late(self._claimed)
        return st.sampled_from(executing) | once if executing else once

    def _put(self, kind: str, name: str, value: bytes, mine: int | None, reference: int | None) -> None:
        version = self._run(self._store.put(kind, name, value, expected=mine))
        model = self._run(self._memory.put(kind, name, value, expected=reference))
        assert (version is None) == (model is None)
        if version is not None and model is not None:
            self._versions[kind, name] = (version, model)

    def _drop(self, kind: str, name: str, mine: int | None, reference: int | None) -> None:
        dropped = self._run(self._store.drop(kind, name, expected=mine))
        assert dropped == self._run(self._memory.drop(kind, name, expected=reference))
        if dropped:
            del self._versions[kind, name]

    def _compare_records(self, kind: str) -> None:
        records, model = self._run(self._store.scan(kind)), self._run(self._memory.scan(kind))
        assert [(record.name, record.value) for record in records] == [(other.name, other.value) for other in model]
        assert [record.version for record in records] == [self._versions[kind, record.name][0] for record in records]

    def _expectations(self, kind: str, name: str) -> st.SearchStrategy[tuple[int | None, int | None]]:
        """What a caller may expect of a record; versions are each store's own, so they are expected of each."""
        current, model = self._versions.get((kind, name), (0, 0))
        choices: list[tuple[int | None, int | None]] = [
            (None, None),
            (0, 0),
            (current, model),
            (current + 7, model + 7),
        ]
        return st.sampled_from(choices)

    def _both(self, call: Callable[[Store], Awaitable[Answer]]) -> Answer:
        answer, model = self._run(_answer(call(self._store))), self._run(_answer(call(self._memory)))
        assert answer == model
        return model

    def _run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        return self._runner.get_loop().run_until_complete(coroutine)


async def _answer(awaitable: Awaitable[Answer]) -> Answer:
    return await awaitable
