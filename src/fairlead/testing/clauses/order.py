"""Clauses C2 and F5: best first, and places in lanes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Final

from hypothesis import settings
from msgspec.structs import replace

from fairlead.core.events import CancelAsked, Failed, HandedBack, Prioritized, Replayed
from fairlead.core.identity import TaskId
from fairlead.core.instant import LATEST, MINUTE, SECOND
from fairlead.core.queues.order import HeadStart, Promote, Strict, Weighted, serve
from fairlead.core.queues.promotion import BEFORE_ALL, Place
from fairlead.core.task import Lane, Priority, State, Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Claim, QueueOrder, Stretch
from fairlead.testing.builders import NOW, a_claim, a_decision, a_failure, a_task, a_token, an_id, some_tasks
from fairlead.testing.reference import expected_count
from fairlead.testing.steps import add, apply_one, ids, read, settle
from fairlead.testing.strategies import STEADY, ClaimCase, for_examples, lines


def expected(tasks: list[Task], claim: Claim) -> list[TaskId]:
    """What the reference would take."""
    queues = {order.queue: order.turns for order in claim.queues}
    admitted = [task for task in tasks if task.spec.queue in queues and claim.admits(task.lane)]
    return ids(serve(admitted, queues, claim.at, claim.limit))


class OrderClauses:
    """In which order tasks are served."""

    settings: ClassVar[settings] = STEADY

    async def test_tasks_are_served_as_the_reference_would(self, store: Store) -> None:
        """C2: under every policy, over queues, types and capability sets, whatever ties there are."""
        rounds = itertools.count()

        async def check(line: ClaimCase) -> None:
            number = next(rounds)
            tasks = [_moved(task, number) for task in line.tasks]
            queues = tuple(replace(order, queue=f"{order.queue}.{number}") for order in line.claim.queues)
            claim = replace(line.claim, queues=queues, token=a_token())
            await add(store, *tasks)
            first = ids(await store.claim(claim))
            assert first == expected(tasks, claim)
            rest = [task for task in tasks if task.id not in first]
            assert ids(await store.claim(claim)) == expected(rest, claim)

        await for_examples(lines(), check, self.settings)

    async def test_ids_break_ties(self, store: Store) -> None:
        """C2: in the order of their bytes, not in that of their arrival."""
        tasks = [a_task(id=an_id(number=number)) for number in (5, 300, 1, 17, 4_096, 0, 16)]
        await add(store, *tasks)
        assert ids(await store.claim(a_claim(limit=10))) == sorted(ids(tasks))

    async def test_ids_break_ties_across_queues_types_and_capabilities(self, store: Store) -> None:
        """C2: lanes are merged, not served one after the other."""
        places = [(queue, type, requires) for queue in ("b", "a") for type in ("y", "x") for requires in (("gpu",), ())]
        tasks = [a_task(queue=queue, type=type, requires=requires) for queue, type, requires in places * 3]
        await add(store, *tasks)
        first = await store.claim(a_claim("a", "b", limit=10, capabilities=("gpu",)))
        second = await store.claim(a_claim("b", "a", limit=100, capabilities=("gpu",)))
        assert ids(first + second) == ids(tasks)

    async def test_within_a_priority_the_longest_wait_comes_first(self, store: Store) -> None:
        """C2: not the order in which ids were made."""
        waits = (3, 9, 1, 9, 27)
        tasks = [a_task(ready_at=NOW - wait) for wait in waits]
        await add(store, *tasks)
        assert ids(await store.claim(a_claim(limit=9))) == ids([tasks[at] for at in (4, 1, 3, 0, 2)])

    async def test_strict_order_never_promotes(self, store: Store) -> None:
        """C2: however long a low task has waited."""
        low = a_task(priority=Priority.LOW, ready_at=NOW - 1_000_000 * MINUTE)
        critical = a_task(priority=Priority.CRITICAL, ready_at=NOW)
        await add(store, low, critical)
        assert ids(await store.claim(a_claim(limit=2, policy=Strict()))) == ids([critical, low])

    async def test_a_task_is_promoted_at_the_moment_its_wait_is_long_enough(self, store: Store) -> None:
        """C2: one microsecond earlier it is not."""
        policy = Promote(low=10, medium=20, high=30)
        before = [a_task(priority=Priority.LOW, ready_at=NOW - wait, type=f"{wait}") for wait in (9, 29, 59)]
        at = [a_task(priority=Priority.LOW, ready_at=NOW - wait, type=f"{wait}") for wait in (10, 30, 60)]
        rivals = [a_task(priority=priority, ready_at=NOW) for priority in Priority]
        await add(store, *before, *at, *rivals)
        critical, high, medium, low = rivals
        served = [at[2], critical, before[2], at[1], high, before[1], at[0], medium, before[0], low]
        # Alone by its rank: turns would hide a promotion that comes a moment late.
        claim = a_claim(limit=20, policy=policy)
        unshared = tuple(replace(order, share=None) for order in claim.queues)
        assert ids(await store.claim(replace(claim, queues=unshared))) == ids(served)

    async def test_promoted_and_critical_tasks_take_turns(self, store: Store) -> None:
        """C2: one of four goes to the promoted task that has waited longest, whatever lanes they are in."""
        policy = Promote()
        bound = policy.bound(Priority.LOW)
        old = [
            a_task(priority=priority, ready_at=NOW - bound - 10 + wait, type=f"old-{wait}")
            for wait, priority in enumerate((Priority.LOW, Priority.MEDIUM, Priority.HIGH, Priority.LOW))
        ]
        new = [a_task(priority=Priority.CRITICAL, ready_at=NOW - 9 + age, type=f"new-{age % 3}") for age in range(9)]
        await add(store, *old, *new)
        first = ids(await store.claim(a_claim(limit=6, policy=policy, passed=3)))
        assert first == ids([old[0], *new[:3], old[1], new[3]])
        rest = ids(await store.claim(a_claim(limit=20, policy=policy, passed=1)))
        assert rest == ids([*new[4:6], old[2], *new[6:9], old[3]])

    async def test_whoever_is_alone_at_the_top_has_every_turn(self, store: Store) -> None:
        """C2: a turn that nobody wants goes to the others."""
        policy = Promote()
        old = [a_task(priority=Priority.LOW, ready_at=NOW - policy.bound(Priority.LOW) - age) for age in (3, 2, 1)]
        high = a_task(priority=Priority.HIGH)
        await add(store, high, *old)
        assert ids(await store.claim(a_claim(limit=9, policy=policy, passed=0))) == ids([*old, high])
        critical = [a_task(priority=Priority.CRITICAL, type=f"{number}") for number in range(5)]
        await add(store, *critical)
        assert ids(await store.claim(a_claim(limit=9, policy=policy, passed=3))) == ids(critical)

    async def test_turns_can_be_taken_at_every_priority(self, store: Store) -> None:
        """C2: then a task that was promoted to high shares the place of high ones, too."""
        policy = Promote(low=10, medium=20, high=30, share="all")
        old = [a_task(priority=Priority.LOW, ready_at=NOW - 35 + age) for age in range(2)]
        high = [a_task(priority=Priority.HIGH, ready_at=NOW - 5 + age) for age in range(4)]
        low = a_task(priority=Priority.LOW)
        await add(store, low, *high, *old)
        claim = a_claim(limit=9, policy=policy, passed=1)
        assert ids(await store.claim(claim)) == ids([*high[:2], old[0], *high[2:], old[1], low])

    async def test_a_promoted_task_that_is_alone_in_its_queue_waits_for_its_turn_too(self, store: Store) -> None:
        """C2: where turns are taken at every priority it counts as what it was submitted as, until it has one."""
        policy = Promote(low=10, medium=20, high=30, share="all")
        old = a_task(queue="a", priority=Priority.LOW, ready_at=NOW - 35)
        high = a_task(queue="b", priority=Priority.HIGH)
        await add(store, old, high)
        claim = a_claim("a", "b", limit=1, policy=policy, passed=0)
        assert ids(await store.claim(claim)) == expected([old, high], claim) == [high.id]

    async def test_each_queue_shares_its_own_top(self, store: Store) -> None:
        """C2: and what each has next is compared with the others'."""
        policy = Promote()
        tasks = [
            a_task(queue=queue, priority=priority, ready_at=NOW - wait - 10 * (queue == "b"))
            for queue in ("a", "b")
            for wait, priority in enumerate([Priority.CRITICAL] * 5)
        ]
        tasks += [
            a_task(queue=queue, priority=Priority.LOW, ready_at=NOW - policy.bound(Priority.LOW) - wait)
            for queue in ("a", "b")
            for wait in range(3)
        ]
        await add(store, *tasks)
        claim = a_claim("a", "b", limit=7, policy=policy, passed=2)
        first = ids(await store.claim(claim))
        assert first == expected(tasks, claim)
        rest = [task for task in tasks if task.id not in first]
        assert ids(await store.claim(replace(claim, limit=20, token=a_token()))) == expected(
            rest, replace(claim, limit=20)
        )

    async def test_a_promoted_task_alone_in_its_queue_keeps_to_its_turns(self, store: Store) -> None:
        """C2: with turns at every priority it is compared with other queues by its own rank until it is its turn."""
        policy = Promote(share="all")
        promoted = a_task(queue="b", priority=Priority.LOW, ready_at=NOW - policy.bound(Priority.LOW))
        tasks = [promoted, *(a_task(queue="a", priority=Priority.HIGH, ready_at=NOW - wait) for wait in range(5))]
        await add(store, *tasks)
        claim = a_claim("a", "b", limit=2, policy=policy, passed=1)
        assert ids(await store.claim(claim)) == expected(tasks, claim)

    async def test_a_head_start_makes_one_line_of_all_priorities(self, store: Store) -> None:
        """C2: by ready_at less the head start."""
        policy = HeadStart(critical=30, high=20, medium=10, low=0)
        tasks = {
            10: a_task(priority=Priority.LOW, ready_at=NOW + 10),
            5: a_task(priority=Priority.HIGH, ready_at=NOW + 25),
            -5: a_task(priority=Priority.CRITICAL, ready_at=NOW + 25),
            0: a_task(priority=Priority.MEDIUM, ready_at=NOW + 10),
        }
        await add(store, *tasks.values())
        served = [tasks[place] for place in sorted(tasks)]
        assert ids(await store.claim(a_claim(limit=9, policy=policy))) == ids(served)

    async def test_each_turn_of_a_claim_has_its_own_table(self, store: Store) -> None:
        """C2: turns count over all queues, and begin again when the tables are used up."""
        luck = iter([0.99, 0.0, 0.0, 0.0] + [0.0] * 4 + [0.5, 0.9, 0.1, 0.0])
        tables = Weighted().tables(3, lambda: next(luck))
        tasks = [a_task(queue=queue, priority=priority) for queue in ("a", "b") for priority in Priority for _ in "12"]
        await add(store, *tasks)
        orders = (QueueOrder("a", tables), QueueOrder("b", tables[:2]))
        claim = replace(a_claim("a", "b", limit=11), queues=orders)
        assert ids(await store.claim(claim)) == expected(tasks, claim)

    async def test_each_queue_is_ranked_by_its_own_policy(self, store: Store) -> None:
        """C2: and then all are compared."""
        promoted = a_task(queue="a", priority=Priority.LOW, ready_at=NOW - 100)
        strict = a_task(queue="b", priority=Priority.LOW, ready_at=NOW - 200)
        medium = a_task(queue="b", priority=Priority.MEDIUM)
        await add(store, promoted, strict, medium)
        promote = Promote(low=10, medium=20, high=30).tables(1, lambda: 0.0)
        orders = (QueueOrder("b", Strict().tables(1, lambda: 0.0)), QueueOrder("a", promote))
        claim = replace(a_claim(limit=5), queues=orders)
        assert ids(await store.claim(claim)) == ids([promoted, medium, strict])

    async def test_a_retry_goes_to_the_end_and_a_hand_back_keeps_its_place(self, store: Store) -> None:
        """C2: the order follows ready_at as it was last set."""
        first, second, third = (a_task(ready_at=NOW - wait) for wait in (30, 20, 10))
        await add(store, first, second, third)
        failed, handed_back = await store.claim(a_claim(limit=2))
        await settle(store, failed, Failed(failure=a_failure(), after=0))
        await settle(store, handed_back, HandedBack())
        assert ids(await store.claim(a_claim(limit=5))) == ids([second, third, first])

    async def test_a_replay_at_another_priority_is_served_at_it(self, store: Store) -> None:
        """C2: the order follows the priority as it was last set."""
        task, rival = a_task(priority=Priority.LOW), a_task(priority=Priority.HIGH)
        await add(store, task, rival)
        await apply_one(store, a_decision(task, CancelAsked()))
        cancelled = await read(store, task)
        assert cancelled is not None
        await apply_one(store, a_decision(cancelled, Replayed(priority=Priority.CRITICAL), NOW + SECOND))
        assert ids(await store.claim(a_claim(limit=5))) == ids([task, rival])

    async def test_a_waiting_task_whose_priority_changes_is_served_at_it(self, store: Store) -> None:
        """C2: it keeps its wait, and nothing of it stays in the lane it left."""
        task, rival = a_task(priority=Priority.LOW), a_task(priority=Priority.HIGH)
        later = a_task(priority=Priority.LOW, ready_at=NOW - 1)
        await add(store, task, rival, later)
        await apply_one(store, a_decision(task, Prioritized(Priority.CRITICAL), NOW + SECOND))
        assert ids(await store.claim(a_claim(limit=5))) == ids([task, rival, later])
        lanes = {(lane.lane.priority, state): count for lane in (await store.tally()).lanes
                 for state, count in lane.counts.items() if count}  # fmt: skip
        assert lanes == {(each, State.EXECUTING): 1 for each in (Priority.CRITICAL, Priority.HIGH, Priority.LOW)}

    async def test_many_lanes_are_merged(self, store: Store) -> None:
        """C2: 240 lanes, more than a claim has turns."""
        tasks = [
            a_task(type=f"type-{number % 60}", priority=Priority(number % 4), ready_at=NOW - number * 7 % 31)
            for number in range(480)
        ]
        await add(store, *tasks)
        claim = a_claim(limit=200, policy=Promote(low=5, medium=5, high=5))
        assert ids(await store.claim(claim)) == expected(tasks, claim)


def _moved(task: Task, number: int) -> Task:
    """The task in a queue of this round's own, so that every round finds its queues empty."""
    queue = f"{task.spec.queue}.{number}"
    serial = int(task.id[20:], 16)
    return Task(replace(task.spec, id=an_id(queue, number * 1_000 + serial), queue=queue), task.status)


LAST: Final = Place(LATEST, BEFORE_ALL.id)


def place(task: Task) -> Place:
    """Where a task stands in its lane."""
    return Place(task.status.ready_at, task.id)


def ahead(lane: Lane, end: Place) -> Stretch:
    """All of a lane that is before a place."""
    return Stretch(lane, BEFORE_ALL, end)


class PlaceClauses:
    """What `count` answers."""

    async def test_each_task_is_behind_those_that_wait_longer(self, store: Store) -> None:
        """F5: ids break ties, as they do for a claim."""
        tasks = [a_task(ready_at=NOW + at // 3) for at in (5, 0, 3, 1, 4, 2)]
        await add(store, *tasks)
        ordered = sorted(tasks, key=lambda task: (task.status.ready_at, task.id))
        assert await store.count([ahead(task.lane, place(task)) for task in ordered]) == [0, 1, 2, 3, 4, 5]

    async def test_a_stretch_has_its_start_and_not_its_end(self, store: Store) -> None:
        """F5: so that stretches one after the other count each task once."""
        tasks = await self._waiting(store, 5)
        lane, places = tasks[0].lane, [BEFORE_ALL, *map(place, tasks), LAST]
        parts = [Stretch(lane, start, end) for start, end in pairwise(places)]
        assert await store.count(parts) == [0, 1, 1, 1, 1, 1]
        assert await store.count([Stretch(lane, places[2], places[4]), Stretch(lane, places[4], places[2])]) == [2, 0]

    async def test_no_task_need_be_at_either_end(self, store: Store) -> None:
        """F5: before the first moment, between two, and after all."""
        lane = (await self._waiting(store, 3))[0].lane
        ends = [Place(at, BEFORE_ALL.id) for at in (0, NOW, NOW + 1, NOW + 2, NOW + SECOND, LATEST)]
        assert await store.count([ahead(lane, end) for end in ends]) == [0, 0, 1, 2, 3, 3]

    async def test_a_lane_that_is_not_there_has_nobody(self, store: Store) -> None:
        """F5: of another type, queue, capability set or priority, and where nothing was ever stored."""
        assert await store.count([ahead(Lane("nowhere", "work", (), Priority.LOW), LAST)]) == [0]
        (task, *_) = await self._waiting(store, 2)
        lane = task.lane
        others = [
            Lane("other", lane.type, lane.requires, lane.priority),
            Lane(lane.queue, "other", lane.requires, lane.priority),
            Lane(lane.queue, lane.type, ("other",), lane.priority),
            Lane(lane.queue, lane.type, lane.requires, Priority.CRITICAL),
        ]
        assert await store.count([ahead(other, LAST) for other in (*others, lane)]) == [0, 0, 0, 0, 2]
        assert await store.count([]) == []

    async def test_counting_stops_where_it_is_told_to(self, store: Store) -> None:
        """F5: who asks for a bound reads no more than that, and learns that there are so many or more."""
        tasks = await self._waiting(store, 9)
        lane = tasks[0].lane
        parts = [ahead(lane, LAST), ahead(lane, place(tasks[3])), Stretch(lane, place(tasks[3]), LAST)]
        assert await store.count(parts, 4) == [4, 3, 4]
        assert await store.count(parts, 6) == [6, 3, 6]
        assert await store.count(parts, 9) == await store.count(parts) == [9, 3, 6]

    async def test_only_queued_tasks_are_counted(self, store: Store) -> None:
        """F5: not what is scheduled, nor what was claimed; what is queued again counts once."""
        (task, *_) = await self._waiting(store, 3)
        await add(store, a_task(state=State.SCHEDULED, ready_at=NOW))
        everyone = [ahead(task.lane, LAST)]
        assert await store.count(everyone) == [3]
        (claimed,) = await store.claim(a_claim(limit=1, now=NOW + SECOND))
        assert await store.count(everyone) == [2]
        await settle(store, claimed, HandedBack())
        assert await store.count(everyone) == [3]

    async def test_many_of_one_moment_are_told_apart(self, store: Store) -> None:
        """F5: a bulk of tasks shares its moment."""
        tasks = some_tasks(300)
        await add(store, *tasks)
        asked = [ahead(task.lane, place(task)) for task in tasks[::7]]
        assert await store.count(asked) == [expected_count(tasks, stretch) for stretch in asked]

    @staticmethod
    async def _waiting(store: Store, count: int) -> Sequence[Task]:
        """Tasks of one lane that came one after the other."""
        tasks = [a_task(ready_at=NOW + at) for at in range(count)]
        await add(store, *tasks)
        return tasks
