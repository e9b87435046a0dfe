"""Clauses S1 to S6: turns, by which the keys of a line share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Protocol

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.strategies import DrawFn
from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import WrongState
from fairlead.core.events import AlarmRang, CancelAsked, Completed, Event, Failed, HandedBack, Prioritized, Replayed
from fairlead.core.identity import PLACE, TaskId, place_of, slot_of
from fairlead.core.instant import HOUR, LATEST, SECOND
from fairlead.core.lifecycle import decide
from fairlead.core.queues.fairness import STEP, LineTurns
from fairlead.core.queues.limits import Limit, Limits
from fairlead.core.queues.order import HeadStart, Policy, Promote, Strict
from fairlead.core.queues.promotion import BEFORE_ALL, Place
from fairlead.core.settings import Rules
from fairlead.core.task import Priority, State, Task
from fairlead.storage.protocol import Sharing, Store
from fairlead.storage.values import Change, Claim, Stretch
from fairlead.testing.builders import NOW, a_claim, a_decision, a_failure, a_task, a_token, held, seen
from fairlead.testing.reference import ExpectedTurns, expected_claim, expected_count
from fairlead.testing.steps import add, apply_one, contents, ids, read, settle
from fairlead.testing.strategies import CAPABILITIES, QUEUES, STEADY, claims, for_examples, priorities, some_limits

SHARED = Promote(share="all")
"""The order that queues with fair keys have unless it is said otherwise."""


class SharingStore(Store, Sharing, Protocol):
    """A store that gives turns."""


async def served(store: Store, limit: int, policy: Policy = SHARED, passed: int = 0) -> list[Task]:
    """What claims of one take, one after the other, with what was passed kept between them."""
    taken: list[Task] = []
    for _ in range(limit):
        taken += await store.claim(a_claim(policy=policy, passed=passed))
    return taken


async def as_they_stand(store: Store) -> list[Task]:
    """Everything stored, with its turns: a listing may tell of a task as it was submitted."""
    return [task for task in await store.get(ids(await contents(store))) if task is not None]


def keys(tasks: Sequence[Task]) -> str:
    """The fair keys of tasks, - for none."""
    return "".join(task.spec.fair_key or "-" for task in tasks)


class TurnClauses:
    """Which turns are given."""

    async def test_a_key_is_served_within_a_round_however_many_tasks_are_in_front(self, store: SharingStore) -> None:
        """S1, S3: a task of B behind hundreds of A is served second."""
        await add(store, *(a_task(fair="A") for _ in range(300)))
        await add(store, a_task(fair="B"))
        assert keys(await served(store, 5)) == "ABAAA"

    async def test_in_one_claim_and_in_many_the_order_is_the_same(self, store: SharingStore) -> None:
        """S3: as the claim goes on, what it has taken has been served."""
        await add(store, *(a_task(fair=key) for key in "AAAAABBC"))
        assert keys(await store.claim(a_claim(limit=20, policy=SHARED))) == "ABCABAAA"

    async def test_turns_are_as_far_apart_as_weights_say(self, store: SharingStore) -> None:
        """S1: of four turns a key of weight 3 has three, beside one of weight 1."""
        await add(store, *(a_task(fair="A", weight=3) for _ in range(80)), *(a_task(fair="B") for _ in range(80)))
        taken = keys(await store.claim(a_claim(limit=80, policy=SHARED)))
        assert Counter(taken) == {"A": 60, "B": 20}
        assert all(taken[at : at + 8].count("B") == 2 for at in range(0, 80, 8))

    async def test_a_key_that_is_gone_has_saved_nothing_and_owes_nothing(self, store: SharingStore) -> None:
        """S1, S4: who comes one at a time stands behind the turn that was reached, not behind all that it ever had."""
        await add(store, *(a_task(fair="A") for _ in range(30)))
        for _ in range(9):
            await add(store, a_task(fair="B"))
            assert sorted(keys(await served(store, 2))) == ["A", "B"]

    async def test_turns_are_stored_with_the_tasks(self, store: SharingStore) -> None:
        """S1, S2, S5: in the order of the call, each key for itself."""
        tasks = [a_task(fair=key) for key in "AABA"]
        await add(store, *tasks)
        turns = [(await read(store, task)).status.turn for task in tasks]  # type: ignore[union-attr]
        assert turns == [STEP, 2 * STEP, STEP, 3 * STEP]
        line = await store.line_keys("default", Priority.MEDIUM, named=["A", "x"], most=1)
        assert (line.turns, line.keys, line.waiting) == (LineTurns(), 2, {"A": 3, "B": 1})

    async def test_a_line_without_fair_tasks_forgets_them(self, store: SharingStore) -> None:
        """S4: and tasks that have no fair key take part in nothing then."""
        fair, plain = a_task(fair="A"), a_task()
        await add(store, fair, plain)
        assert await store.claim(a_claim(limit=1, policy=SHARED))
        line = await store.line_keys("default", Priority.MEDIUM, most=9)
        assert (line.turns, line.keys, line.waiting) == (LineTurns(), 0, {})
        assert await store.claim(a_claim(limit=2, policy=SHARED))
        again = a_task(fair="A")
        await add(store, again)
        stored = await read(store, again)
        assert stored is not None
        assert stored.status.turn == STEP

    async def test_tasks_without_a_key_are_together_one_key(self, store: SharingStore) -> None:
        """S3, S4: those that waited when fairness was switched on, too."""
        await add(store, *(a_task() for _ in range(50)))
        await add(store, *(a_task(fair="B") for _ in range(3)), *(a_task(fair="C") for _ in range(3)))
        assert keys(await served(store, 11)) == "-BC-BC-BC--"

    async def test_a_task_with_a_concurrency_key_shares_the_turns_of_those_without_a_fair_key(
        self, store: SharingStore
    ) -> None:
        """S1."""
        keyed = [a_task(fair="K", concurrency_key=f"{number}") for number in range(3)]
        await add(store, *keyed, *(a_task(fair="B") for _ in range(3)))
        assert keys(await store.claim(a_claim(limit=6, policy=SHARED))) == "KBKBKB"
        assert {task.status.turn for task in await contents(store) if task.spec.fair_key == "K"} == {0}

    async def test_who_is_handed_back_keeps_its_turn(self, store: SharingStore) -> None:
        """S1: and who is retried gets a new one."""
        await add(store, *(a_task(fair="A") for _ in range(4)), a_task(fair="B"))
        first, second = await served(store, 2)
        await settle(store, first, HandedBack())
        assert ids(await served(store, 1)) == [first.id]
        await settle(store, second, Failed(failure=a_failure(), after=0))
        again = await read(store, second)
        assert again is not None
        assert again.status.turn == 2 * STEP

    async def test_who_is_handed_back_late_is_not_behind_what_was_reached(self, store: SharingStore) -> None:
        """S1: a line that was empty meanwhile begins anew, and a turn of before would be far behind."""
        await add(store, *(a_task(fair="A") for _ in range(9)))
        taken = await store.claim(a_claim(limit=9, policy=SHARED))
        await add(store, a_task(fair="B"), a_task(fair="B"))
        await settle(store, taken[-1], HandedBack())
        assert keys(await served(store, 3)) == "ABB"

    async def test_what_becomes_due_released_or_replayed_gets_a_turn_then(self, store: SharingStore) -> None:
        """S1: a turn of when it was submitted would be one saved."""
        later = a_task(fair="B", state=State.SCHEDULED, ready_at=NOW)
        ended = a_task(fair="B", state=State.CANCELLED)
        await add(store, later, ended, *(a_task(fair="A") for _ in range(9)))
        assert keys(await served(store, 5)) == "AAAAA"
        await apply_one(store, a_decision(later, AlarmRang()))
        await apply_one(store, a_decision(ended, Replayed()))
        turns = [(await read(store, task)).status.turn for task in (later, ended)]  # type: ignore[union-attr]
        assert turns == [6 * STEP, 7 * STEP]

    async def test_a_task_of_another_priority_gets_a_turn_in_its_new_line(self, store: SharingStore) -> None:
        """S1: each line has turns of its own."""
        await add(store, *(a_task(fair="A") for _ in range(5)), a_task(fair="B", priority=Priority.HIGH))
        last = (await contents(store))[4]
        await apply_one(store, a_decision(last, Prioritized(Priority.HIGH)))
        moved = await read(store, last)
        assert moved is not None
        assert moved.status.turn == STEP
        assert ids(await served(store, 1)) == [last.id]

    async def test_after_the_newest_are_cancelled_a_key_is_no_later_than_they_were(self, store: SharingStore) -> None:
        """S1."""
        tasks = [a_task(fair="A") for _ in range(6)]
        await add(store, *tasks)
        for task in reversed(tasks[2:]):
            await apply_one(store, a_decision(task, CancelAsked()))
        again = a_task(fair="A")
        await add(store, again)
        stored = await read(store, again)
        assert stored is not None
        assert 3 * STEP <= stored.status.turn <= 7 * STEP


class ServiceByTurnClauses:
    """Who is served by turn, and who by age."""

    settings: ClassVar[settings] = STEADY

    async def test_a_backlog_past_its_bound_has_one_turn_in_four(self, store: SharingStore) -> None:
        """S3: and a task of another key is second all the same."""
        old = NOW - Promote().bound(Priority.LOW)
        await add(store, *(a_task(fair="A", priority=Priority.LOW, ready_at=old) for _ in range(50)))
        await add(store, a_task(fair="B", priority=Priority.LOW))
        assert keys(await served(store, 2)) == "AB"

    async def test_new_keys_without_end_do_not_starve_an_old_task(self, store: SharingStore) -> None:
        """S3: whoever has waited longest has a turn by age."""
        old = [a_task(fair="A", ready_at=NOW - 2 * HOUR) for _ in range(20)]
        await add(store, *old)
        taken: list[Task] = []
        passed = 0
        for number in range(60):
            await add(store, a_task(fair=f"new {number}"), a_task(fair=f"too {number}"))
            claim = a_claim(policy=SHARED, passed=passed)
            taken += await store.claim(claim)
            passed = 0 if taken[-1].spec.fair_key == "A" and passed >= 3 else min(passed + 1, 3)
        assert sum(task.spec.fair_key == "A" for task in taken) >= 15
        own = [task.id for task in taken if task.spec.fair_key == "A"]
        assert own == sorted(own)

    async def test_a_head_that_nobody_can_take_holds_nobody_up(self, store: SharingStore) -> None:
        """S3, S4: turns go on behind it, so a new key comes in at what was reached and not before."""
        await add(store, *(a_task(fair="X", type="gpu", requires=["gpu"]) for _ in range(3)))
        await add(store, *(a_task(fair="A") for _ in range(40)))
        assert keys(await served(store, 10)) == "A" * 10
        await add(store, *(a_task(fair="B") for _ in range(20)))
        taken = keys(await served(store, 20))
        assert Counter(taken) == {"A": 10, "B": 10}

    async def test_a_full_type_is_passed_over_in_both_orders(self, store: SharingStore) -> None:
        """S3, L3: it stands for its line neither by age nor by turn."""
        tasks = [a_task(fair="A", type="full", ready_at=NOW - 90) for _ in range(5)]
        tasks += [a_task(fair=key) for key in "AABB"]
        await add(store, *tasks)
        stored = await as_they_stand(store)
        claim = a_claim(limit=9, policy=SHARED, limits=Limits(types={"full": Limit(running=2)}))
        assert ids(await store.claim(claim)) == ids(expected_claim(stored, claim, {}, {}))

    async def test_between_priorities_the_oldest_stands_for_its_line(self, store: SharingStore) -> None:
        """S3: with a head start as in strict order, turns are taken within a priority."""
        await add(store, *(a_task(fair=key, priority=Priority.LOW, ready_at=NOW - 9) for key in "AAA"))
        await add(store, a_task(fair="B", priority=Priority.LOW), a_task(fair="C", ready_at=NOW - 5))
        assert keys(await served(store, 5, HeadStart(critical=0, high=0, medium=0))) == "ABAAC"
        await add(store, *(a_task(fair=key, priority=Priority.LOW) for key in "AAB"), a_task(fair="C"))
        assert keys(await served(store, 4, Strict())) == "CABA"

    async def test_counts_by_turn_say_who_is_in_front(self, store: SharingStore) -> None:
        """S6: beside those by age."""
        await add(store, *(a_task(fair=key, ready_at=NOW - at) for at, key in enumerate("AABAB")))
        tasks = await as_they_stand(store)
        stretches = [
            Stretch(task.lane, BEFORE_ALL, Place(at, task.id), by_turn)
            for task in tasks
            for at, by_turn in ((task.status.turn, True), (task.status.ready_at, False))
        ]
        expected = [expected_count(tasks, each) for each in stretches]
        assert await store.count(stretches) == expected
        assert await store.count([Stretch(tasks[0].lane, BEFORE_ALL, Place(LATEST, "f" * 32), by_turn=True)], 2) == [2]  # type: ignore[arg-type]

    async def test_who_is_served_is_who_the_reference_would_serve(self, store: SharingStore) -> None:
        """S1, S3, S4: whatever comes, goes, is handed back, retried, moved and claimed under limits."""
        rounds = iter(range(1_000_000))

        async def check(story: FairStory) -> None:
            await live_through(store, story, f".{next(rounds)}")

        await for_examples(fair_stories(), check, self.settings)


class FairStory(Struct, frozen=True):
    """What happens to a store in which tasks take turns."""

    steps: list[list[Task] | Claim | tuple[int, Event]]
    """Tasks that are added, claims, and what is said of the n-th task."""


_fair: st.SearchStrategy[str | None] = st.sampled_from(["A", "A", "B", "C", None])
_events: st.SearchStrategy[Event] = st.one_of(
    st.just(HandedBack()),
    st.just(Completed()),
    st.builds(Failed, failure=st.just(a_failure()), after=st.sampled_from([0, SECOND])),
    st.just(CancelAsked()),
    st.just(AlarmRang()),
    st.just(Replayed()),
    st.builds(Prioritized, priorities),
)
_orders = st.sampled_from(
    [
        SHARED.tables(1, lambda: 0.0),
        Promote(low=10, medium=10, high=10).tables(1, lambda: 0.0),
        Strict().tables(1, lambda: 0.0),
        HeadStart(critical=15, high=10, medium=5).tables(1, lambda: 0.0),
    ]
)


@st.composite
def _fair_tasks(draw: DrawFn) -> list[Task]:
    return [
        a_task(
            queue=draw(st.sampled_from(QUEUES[:2])),
            type=draw(st.sampled_from(("send", "resize"))),
            requires=draw(st.sampled_from(((), (), CAPABILITIES[:1]))),
            priority=draw(st.sampled_from((Priority.MEDIUM, Priority.MEDIUM, Priority.LOW))),
            state=draw(st.sampled_from((State.QUEUED, State.QUEUED, State.SCHEDULED))),
            ready_at=NOW - draw(st.integers(0, 30)),
            concurrency_key=draw(st.sampled_from((None, None, None, "c"))),
            fair=draw(_fair),
            weight=draw(st.sampled_from((1, 1, 3, 0.5))),
        )
        for _ in range(draw(st.integers(1, 5)))
    ]


@st.composite
def fair_stories(draw: DrawFn) -> FairStory:
    """Stories of a few steps, in which claims are frequent."""
    claim = claims(NOW, draw(st.integers(1, 4)), _orders, some_limits)
    steps: st.SearchStrategy[list[Task] | Claim | tuple[int, Event]] = st.one_of(
        _fair_tasks(), claim, claim, st.tuples(st.integers(0, 30), _events)
    )
    return FairStory([draw(_fair_tasks()), *draw(st.lists(steps, min_size=3, max_size=12))])


def _moved(task: Task, queue: str) -> Task:
    """A task of another queue, with the id that it would have there."""
    place = place_of(slot_of(queue))
    task_id = TaskId(task.id[: PLACE.start] + place + task.id[PLACE.stop :])
    return Task(replace(task.spec, queue=queue, id=task_id), task.status)


async def live_through(store: SharingStore, story: FairStory, suffix: str) -> None:
    """Go through a story, in queues of its own, and hold every turn and every claim to the reference."""
    book, dues = ExpectedTurns(), dict[tuple[str, str], int]()
    order: list[TaskId] = []
    tasks: dict[TaskId, Task] = {}

    async def learn(asked: Sequence[Task]) -> None:
        for task, now in zip(asked, await store.get([task.id for task in asked]), strict=True):
            book.came(tasks.get(task.id), task.status, now)
            assert now is not None
            tasks[task.id] = now

    for step in story.steps:
        if isinstance(step, list):
            added = [_moved(task, task.spec.queue + suffix) for task in step]
            await add(store, *added)
            order += ids(added)
            await learn(added)
        elif isinstance(step, Claim):
            queues = tuple(replace(each, queue=each.queue + suffix) for each in step.queues)
            claim = replace(step, queues=queues, token=a_token())
            waiting = [task for task in tasks.values() if task.spec.queue.endswith(suffix)]
            expected = expected_claim(waiting, claim, dues, book.lines)
            taken = await store.claim(claim)
            assert ids(taken) == ids(expected)
            for task in taken:
                book.came(tasks[task.id], task.status, task)
                tasks[task.id] = task
        else:
            at, event = step
            task = tasks[order[at % len(order)]]
            try:
                status = decide(task, event, NOW + 1, rules=Rules())
            except WrongState:
                continue
            if status is None:
                continue
            guard = held(task) if task.status.lease is not None else seen(task)
            await store.apply([Change(task.id, guard, status)])
            await learn([Task(task.spec, status)])
    for queue in {task.spec.queue for task in tasks.values()}:
        for priority in Priority:
            line = await store.line_keys(queue, priority, most=9)
            fair = [task for task in tasks.values() if task.lane.fair and task.state is State.QUEUED]
            mine = [task for task in fair if (task.spec.queue, task.status.priority) == (queue, priority)]
            assert line.waiting == Counter(task.spec.fair_key for task in mine)
            assert line.turns == book.lines.get((queue, priority), LineTurns())
            assert line.keys == len(line.waiting)
