"""Every order in which two workers, a sweeper and a canceller can meet over one task, step by step."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from fairlead.core.errors import WrongState
from fairlead.core.events import AlarmRang, CancelAsked, Completed, Event, HandedBack
from fairlead.core.identity import WorkerId
from fairlead.core.task import State, Task
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Added, Change, Pulse, Verdict
from fairlead.testing.builders import GRACE, LEASE, NOW, a_beat, a_claim, a_decision, a_settle, a_task

FAR = NOW + 100 * LEASE


class Meeting:
    """One task, everyone who may lay hands on it, and what was accepted of whom."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.versions = [1]
        self.renewals = 0
        self.endings: list[State] = []
        task = a_task()
        self._id = task.id
        assert run_inline(self.store.add([task], now=NOW, bounds={})) == [Added()]

    def read(self) -> Task:
        (task,) = run_inline(self.store.get([self._id]))
        assert task is not None
        return task

    def apply(self, change: Change) -> Verdict:
        (verdict,) = run_inline(self.store.apply([change]))
        if verdict is Verdict.APPLIED and change.status is not None:
            self.versions.append(change.status.version)
            if change.status.state.ended:
                self.endings.append(change.status.state)
        return verdict


class Worker:
    """Claims, renews and settles; knows the task as it was claimed."""

    def __init__(self, meeting: Meeting, name: str, outcome: Completed | HandedBack) -> None:
        self._meeting, self._name, self._outcome = meeting, WorkerId(name), outcome
        self._task: Task | None = None

    def claim(self) -> None:
        for task in run_inline(self._meeting.store.claim(a_claim(worker=self._name))):
            self._meeting.versions.append(task.status.version)
            self._task = task

    def renew(self) -> None:
        if self._task is None:
            return
        holds = self._holds(self._task)
        (pulse,) = run_inline(self._meeting.store.extend([a_beat(self._task)], lease=LEASE, now=NOW, grace=GRACE))
        assert (pulse is not Pulse.LOST) == holds
        self._meeting.renewals += holds

    def settle(self) -> None:
        if self._task is None:
            return
        expected = self._holds(self._task) and self._meeting.read().status.version == self._task.status.version
        verdict = self._meeting.apply(a_settle(self._task, self._outcome))
        assert (verdict is Verdict.APPLIED) == expected
        assert verdict is not Verdict.REPEATED

    def _holds(self, task: Task) -> bool:
        return self._meeting.read().status.lease is not None and _token(self._meeting.read()) == _token(task)


class Onlooker:
    """Looks now and acts later."""

    def __init__(self, meeting: Meeting, event: Event) -> None:
        self._meeting, self._event = meeting, event
        self._look: tuple[Task, int, int] | None = None

    def look(self) -> None:
        task = self._meeting.read()
        if not isinstance(self._event, AlarmRang) or (task.status.alarm or FAR) < FAR:
            self._look = task, len(self._meeting.versions), self._meeting.renewals

    def act(self) -> None:
        if self._look is None:
            return
        task, versions, renewals = self._look
        unchanged = versions == len(self._meeting.versions) and renewals == self._meeting.renewals
        try:
            change = a_decision(task, self._event, FAR)
        except WrongState:
            return
        if change.status is not None:
            assert (self._meeting.apply(change) is Verdict.APPLIED) == unchanged


def interleavings(scripts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every order of the scripts' steps, as the numbers of the scripts whose turn it is."""
    if not any(scripts):
        yield ()
    for number, left in enumerate(scripts):
        if left:
            rest = [other - (at == number) for at, other in enumerate(scripts)]
            for order in interleavings(rest):
                yield (number, *order)


@pytest.mark.parametrize("first_outcome", [Completed(b"1"), HandedBack()], ids=lambda outcome: outcome.name)
def test_however_they_meet_every_version_is_accepted_once_and_one_outcome_at_most(
    first_outcome: Completed | HandedBack,
) -> None:
    met = 0
    for order in interleavings([3, 2, 2, 2]):
        meeting = Meeting()
        first, second = Worker(meeting, "first", first_outcome), Worker(meeting, "second", Completed(b"2"))
        sweeper, canceller = Onlooker(meeting, AlarmRang()), Onlooker(meeting, CancelAsked())
        scripts: list[list[Callable[[], None]]] = [
            [first.claim, first.renew, first.settle],
            [second.claim, second.settle],
            [sweeper.look, sweeper.act],
            [canceller.look, canceller.act],
        ]
        for turn in order:
            scripts[turn].pop(0)()
        task = meeting.read()
        assert sorted(meeting.versions) == list(range(1, task.status.version + 1))
        assert len(meeting.endings) == task.state.ended
        assert len(meeting.endings) <= 1
        met += 1
    assert met == 7_560


def _token(task: Task) -> str | None:
    return task.status.lease.token if task.status.lease else None
