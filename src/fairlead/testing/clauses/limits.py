"""Clauses A5, L1 to L5 and L7: how many tasks may wait in a queue, and how many may run and start."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Final

import pytest
from hypothesis import settings
from msgspec.structs import replace

from fairlead.core.events import AlarmRang, CancelAsked, Completed, Failed, HandedBack, Purged
from fairlead.core.identity import TaskId
from fairlead.core.instant import DAY, HOUR, SECOND, Instant
from fairlead.core.queues.limits import NO_LIMITS, Limit, Limits, Rate
from fairlead.core.task import Priority, State, Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Added, Filter, Full, KeyHeld, Known, Usage, Used
from fairlead.testing.builders import (
    LEASE,
    NOW,
    a_beat,
    a_claim,
    a_decision,
    a_failure,
    a_removal,
    a_settle,
    a_task,
    a_token,
    an_id,
    some_tasks,
)
from fairlead.testing.reference import expected_claim
from fairlead.testing.steps import add, apply_one, claim_one, contents, ids, read, settle
from fairlead.testing.strategies import STEADY, LimitedLine, for_examples, limited_lines

TWO: Final = Limits(queue=Limit(running=2))
ONE_A_SECOND: Final = Limit(pace=Rate(1, SECOND).pace)

FREEING: Final[dict[str, Callable[[Task], object]]] = {
    "completed": lambda task: a_settle(task, Completed()),
    "failed for good": lambda task: a_settle(task, Failed(failure=a_failure(), retriable=False)),
    "to be retried later": lambda task: a_settle(task, Failed(failure=a_failure())),
    "lost with its worker": lambda task: a_decision(task, AlarmRang(), NOW + LEASE),
    "removed": a_removal,
}
"""What ends a lease without the task being ready again."""


def keyed(key: str, count: int = 1, **fields: object) -> list[Task]:
    """Ready tasks of one concurrency key."""
    return [a_task(concurrency_key=key, **fields) for _ in range(count)]  # type: ignore[arg-type]


class RunningLimitClauses:
    """How many run at once."""

    async def test_a_queue_runs_no_more_than_its_limit(self, store: Store) -> None:
        """L1: in one claim and over several; another queue is not concerned."""
        await add(store, *some_tasks(4), *some_tasks(1, queue="other"))
        assert len(await store.claim(a_claim(limit=10, limits=TWO))) == 2
        assert await store.claim(a_claim(limit=10, limits=TWO)) == []
        assert len(await store.claim(a_claim("default", "other", limit=10, limits=TWO))) == 1

    async def test_a_type_runs_no_more_than_its_limit_and_the_others_go_on(self, store: Store) -> None:
        """L1, L3: whatever its priority and capabilities, and however many of it wait in front."""
        slow = [
            a_task(type="slow", priority=Priority.CRITICAL),
            a_task(type="slow", priority=Priority.CRITICAL, requires=("gpu",)),
            a_task(type="slow", priority=Priority.HIGH),
        ]
        quick = [a_task(type="quick", priority=Priority.LOW) for _ in range(2)]
        await add(store, *slow, *quick)
        limits = Limits(types={"slow": Limit(running=1)})
        taken = await store.claim(a_claim(limit=10, capabilities=("gpu",), limits=limits))
        assert ids(taken) == ids([slow[0], *quick])
        late = a_task(type="quick", priority=Priority.LOW)
        await add(store, late)
        assert ids(await store.claim(a_claim(limit=10, capabilities=("gpu",), limits=limits))) == [late.id]

    async def test_what_other_claims_took_counts(self, store: Store) -> None:
        """L1: also what was taken when there was no limit yet."""
        await add(store, *some_tasks(3))
        assert len(await store.claim(a_claim(limit=2))) == 2
        assert await store.claim(a_claim(limit=10, limits=TWO)) == []

    @pytest.mark.parametrize("how", FREEING)
    async def test_a_place_is_free_when_the_lease_ends(self, store: Store, how: str) -> None:
        """L1: however it ends, for the queue, the type and the key."""
        await add(store, *keyed("k", 2))
        one = Limit(running=1)
        limits = Limits(queue=one, types={"work": one}, key=one)
        first = await claim_one(store, a_claim(limit=10, limits=limits))
        assert await store.claim(a_claim(limit=10, limits=limits)) == []
        await apply_one(store, FREEING[how](first))  # type: ignore[arg-type]
        second = await claim_one(store, a_claim(limit=10, limits=limits))
        assert second.id != first.id

    async def test_a_heartbeat_and_a_cancel_that_is_asked_keep_the_place(self, store: Store) -> None:
        """L1: the task is still executing."""
        await add(store, *keyed("k", 2))
        first = await claim_one(store)
        await store.extend([a_beat(first)], lease=2 * LEASE, now=NOW, grace=SECOND)
        (first,) = [task for task in await store.get([first.id]) if task]
        await apply_one(store, a_decision(first, CancelAsked()))
        assert await store.claim(a_claim(limit=10)) == []

    async def test_one_task_of_a_key_runs_at_once_unless_the_queue_says_more(self, store: Store) -> None:
        """L4, L1: keys are of a queue; the limit is each key's own."""
        await add(store, *keyed("a", 3), *keyed("b", 3), *keyed("a", 1, queue="other"), *some_tasks(1))
        taken = await store.claim(a_claim("default", "other", limit=20))
        assert sorted(task.spec.concurrency_key or "" for task in taken) == ["", "a", "a", "b"]
        more = await store.claim(a_claim(limit=20, limits=Limits(key=Limit(running=2))))
        assert sorted(task.spec.concurrency_key or "" for task in more) == ["a", "b"]

    async def test_a_key_spans_types_priorities_and_capabilities(self, store: Store) -> None:
        """L4: one key is one line of work."""
        tasks = [
            a_task(concurrency_key="k", priority=Priority.LOW),
            a_task(concurrency_key="k", type="other"),
            a_task(concurrency_key="k", priority=Priority.CRITICAL, requires=("gpu",)),
        ]
        await add(store, *tasks)
        served: list[TaskId] = []
        while taken := await store.claim(a_claim(limit=10, capabilities=("gpu",))):
            (task,) = taken
            served.append(task.id)
            await settle(store, task, Completed())
        assert served == ids([tasks[2], tasks[1], tasks[0]])

    async def test_a_full_key_never_keeps_others_waiting(self, store: Store) -> None:
        """L3: however many of it are in front."""
        await add(store, *keyed("full", 50, priority=Priority.CRITICAL))
        await claim_one(store, a_claim(limit=10))
        others = [*keyed("b"), *some_tasks(1), *keyed("c", 2)]
        await add(store, *others)
        assert ids(await store.claim(a_claim(limit=3))) == ids(others[:3])

    async def test_tasks_of_a_key_are_served_in_their_order(self, store: Store) -> None:
        """L3: also those that came while the key was full, and those whose wait began earlier."""
        await add(store, *keyed("k", 2, ready_at=NOW))
        first = await claim_one(store, a_claim(limit=10))
        await add(store, a_task(concurrency_key="k", ready_at=NOW - 5, id=an_id(number=7)))
        assert await store.claim(a_claim(limit=10)) == []
        urgent = a_task(concurrency_key="k", priority=Priority.CRITICAL)
        await add(store, urgent)
        await settle(store, first, HandedBack())
        order: list[TaskId] = []
        while taken := await store.claim(a_claim(limit=10)):
            order += ids(taken)
            await settle(store, taken[0], Completed())
        assert order[:2] == [urgent.id, an_id(number=7)]
        assert len(order) == 4

    async def test_a_waiting_task_that_goes_leaves_its_place_to_the_next_of_its_key(self, store: Store) -> None:
        """L5: cancelled, purged or made more urgent, whether its key is full or not."""
        one, two, three, four = tasks = keyed("k", 4)
        await add(store, *tasks)
        await apply_one(store, a_decision(one, CancelAsked()))
        held = await claim_one(store, a_claim(limit=10))
        assert held.id == two.id
        assert await store.claim(a_claim(limit=10)) == []
        await apply_one(store, a_decision(three, Purged()))
        await settle(store, held, Completed())
        assert ids(await store.claim(a_claim(limit=10))) == [four.id]

    async def test_a_limit_counts_as_the_next_claim_says(self, store: Store) -> None:
        """L5: raised, lowered and lifted, for keys that were passed over under another."""
        await add(store, *keyed("k", 9))
        assert len(await store.claim(a_claim(limit=10))) == 1
        assert await store.claim(a_claim(limit=10)) == []
        assert len(await store.claim(a_claim(limit=10, limits=Limits(key=Limit(running=3))))) == 2
        assert await store.claim(a_claim(limit=10, limits=NO_LIMITS)) == []
        assert len(await store.claim(a_claim(limit=10, limits=Limits(key=Limit())))) == 6

    async def test_what_is_blocked_is_queued_like_any_other(self, store: Store) -> None:
        """L1: it is counted, listed, and its wait goes on."""
        await add(store, *keyed("k", 3, ready_at=NOW - 9))
        await claim_one(store, a_claim(limit=10))
        assert await store.claim(a_claim(limit=10)) == []
        assert len(await store.find(Filter(states=frozenset({State.QUEUED})), limit=10)) == 2
        (lane,) = (await store.tally()).lanes
        assert lane.counts == {State.QUEUED: 2, State.EXECUTING: 1}
        assert lane.oldest_ready == NOW - 9
        assert lane.lane.keyed


class RateLimitClauses:
    """How many start in a while, and all limits together."""

    settings: ClassVar[settings] = STEADY

    async def test_no_more_start_than_a_rate_lets_and_all_start_in_the_end(self, store: Store) -> None:
        """L2: of a queue, of a type, of a key."""
        for queue, limits in (
            ("queue", Limits(queue=ONE_A_SECOND, key=Limit())),
            ("type", Limits(types={"work": ONE_A_SECOND}, key=Limit())),
            ("key", Limits(key=ONE_A_SECOND)),
        ):
            await add(store, *keyed("k", 3, queue=queue))
            starts: list[Instant] = []
            for step in range(31):
                now = NOW + step * SECOND // 10
                starts += [now for _ in await store.claim(a_claim(queue, limit=10, limits=limits, now=now))]
            assert starts == [NOW, NOW + SECOND, NOW + 2 * SECOND], queue

    async def test_what_is_used_of_limits_can_be_read(self, store: Store) -> None:
        """L7: how many run, and when the next start is due; of what is not there, nothing."""
        await add(store, *keyed("k", 2), *[a_task(type="other") for _ in range(2)])
        limits = Limits(queue=Limit(pace=Rate(7, SECOND).pace), types={"work": ONE_A_SECOND}, key=ONE_A_SECOND)
        assert len(await store.claim(a_claim(limit=1, limits=limits))) == 1
        assert len(await store.claim(a_claim(limit=1, types=("other",)))) == 1
        due, next_start = NOW + Rate(7, SECOND).pace.interval, NOW + SECOND
        assert await store.usage("default", "work", "k") == Usage(
            Used(2, due), Used(1, next_start), Used(1, next_start)
        )
        assert await store.usage("default", "other", None) == Usage(Used(2, due), Used(1), Used())
        assert await store.usage("nowhere", "work", "k") == Usage(Used(), Used(), Used())

    async def test_a_rate_of_one_key_or_type_holds_no_other(self, store: Store) -> None:
        """L2, L3."""
        await add(store, *keyed("a", 2), *keyed("b", 2), *[a_task(type="rare") for _ in range(2)])
        limits = Limits(types={"rare": ONE_A_SECOND}, key=ONE_A_SECOND)
        assert len(await store.claim(a_claim(limit=10, limits=limits))) == 3
        assert await store.claim(a_claim(limit=10, limits=limits)) == []
        assert len(await store.claim(a_claim(limit=10, limits=limits, now=NOW + SECOND))) == 3

    async def test_what_a_rate_puts_off_does_not_wait_for_a_clock_that_went_back(self, store: Store) -> None:
        """L2, T1: of a key, and of a queue; what one clock put off is looked at again by the other."""
        for queue, limits in (("queue", Limits(queue=ONE_A_SECOND, key=Limit())), ("key", Limits(key=ONE_A_SECOND))):
            await add(store, *keyed("k", 3, queue=queue))
            wish = partial(a_claim, queue, limit=10, limits=limits)
            assert len(await store.claim(wish(now=NOW))) == 1
            assert await store.claim(wish(now=NOW)) == []
            assert len(await store.claim(wish(now=NOW - HOUR))) == 1
            assert await store.claim(wish(now=NOW - HOUR)) == []
            assert len(await store.claim(wish(now=NOW - HOUR + SECOND))) == 1

    async def test_a_rate_counts_as_the_next_claim_says(self, store: Store) -> None:
        """L5: one a day, then one a second, then as they come."""
        await add(store, *keyed("k", 5))
        rare = Limit(pace=Rate(1, DAY).pace)
        for limits in (Limits(queue=rare), Limits(key=rare)):
            await claim_one(store, a_claim(limit=10, limits=limits))
            assert await store.claim(a_claim(limit=10, limits=limits, now=NOW + SECOND)) == []
        often = Limits(queue=ONE_A_SECOND, key=ONE_A_SECOND)
        await claim_one(store, a_claim(limit=10, limits=often, now=NOW + 2 * SECOND))
        assert len(await store.claim(a_claim(limit=10, limits=Limits(key=Limit()), now=NOW + 2 * SECOND))) == 2

    async def test_limited_tasks_are_served_as_the_reference_would(self, store: Store) -> None:
        """L1, L2, L3, L4, L5: under every policy and all kinds of limits at once, claim after claim."""
        rounds = itertools.count()

        async def check(line: LimitedLine) -> None:
            number = next(rounds)
            tasks = [_moved(task, number) for task in line.tasks]
            await add(store, *tasks)
            dues: dict[tuple[str, str], Instant] = {}
            for claim in line.claims:
                queues = tuple(replace(order, queue=f"{order.queue}.{number}") for order in claim.queues)
                asked = replace(claim, queues=queues, token=a_token())
                taken = await store.claim(asked)
                assert ids(taken) == ids(expected_claim(tasks, asked, dues))
                tasks = _with(tasks, taken)
                if taken:
                    ended = await settle(store, taken[-1], line.outcome, claim.at)
                    tasks = _with(tasks, [ended])

        await for_examples(limited_lines(), check, self.settings)


def _moved(task: Task, number: int) -> Task:
    """The same task in a queue that only this round uses."""
    queue = f"{task.spec.queue}.{number}"
    return Task(replace(task.spec, queue=queue, id=an_id(queue)), task.status)


def _with(tasks: Sequence[Task], changed: Sequence[Task]) -> list[Task]:
    by_id = {task.id: task for task in changed}
    return [by_id.get(task.id, task) for task in tasks]


class BoundClauses:
    """What a bound refuses."""

    async def test_a_queue_at_its_bound_refuses(self, store: Store) -> None:
        """A5: and says how full it is; nothing is stored."""
        tasks = some_tasks(3)
        await add(store, *tasks)
        refused = a_task()
        assert await store.add([refused], now=NOW, bounds={"default": 3}) == [Full(3, 3)]
        assert await read(store, refused) is None
        assert await contents(store) == tasks

    async def test_a_queue_below_its_bound_takes_one_more(self, store: Store) -> None:
        """A5: the bound itself can be reached."""
        await add(store, *some_tasks(2))
        assert await store.add(some_tasks(1), now=NOW, bounds={"default": 3}) == [Added()]

    async def test_tasks_of_the_same_call_count(self, store: Store) -> None:
        """A5: the bound holds inside a batch."""
        tasks = some_tasks(5)
        receipts = await store.add(tasks, now=NOW, bounds={"default": 3})
        assert receipts == [Added()] * 3 + [Full(3, 3)] * 2
        assert await contents(store) == tasks[:3]

    async def test_scheduled_and_queued_tasks_count_and_others_do_not(self, store: Store) -> None:
        """A5: waiting tasks only."""
        await add(store, *some_tasks(3))
        first, second = await store.claim(a_claim(limit=2))
        await settle(store, first, Completed())
        await add(store, a_task(state=State.SCHEDULED, ready_at=NOW + SECOND))
        assert second.state is State.EXECUTING
        receipts = await store.add(some_tasks(2), now=NOW, bounds={"default": 3})
        assert receipts == [Added(), Full(3, 3)]

    async def test_scheduled_tasks_are_held_to_the_bound(self, store: Store) -> None:
        """A5: a task that is not yet due waits too."""
        await add(store, a_task())
        later = a_task(state=State.SCHEDULED, ready_at=NOW + SECOND)
        assert await store.add([later], now=NOW, bounds={"default": 1}) == [Full(1, 1)]

    async def test_each_queue_has_its_own_bound(self, store: Store) -> None:
        """A5: a queue without a bound takes all it can hold."""
        tasks = [a_task(queue=queue) for queue in ("a", "b", "c", "a", "b", "c", "a", "b", "c")]
        receipts = await store.add(tasks, now=NOW, bounds={"a": 1, "b": 2, "unused": 1})
        full_a, full_b = Full(1, 1), Full(2, 2)
        assert receipts == [Added(), Added(), Added(), full_a, Added(), Added(), full_a, full_b, Added()]

    async def test_a_known_task_is_known_in_a_full_queue(self, store: Store) -> None:
        """A5: A2 is checked first, so that a repeated submit is never refused."""
        task = a_task()
        await add(store, task)
        assert await store.add([task, a_task()], now=NOW, bounds={"default": 1}) == [Known(), Full(1, 1)]

    async def test_a_held_key_is_held_in_a_full_queue(self, store: Store) -> None:
        """A5: A3 is checked first."""
        task = a_task(key="once")
        await add(store, task)
        assert await store.add([a_task(key="once")], now=NOW, bounds={"default": 1}) == [KeyHeld(task.id)]

    async def test_tasks_that_are_not_stored_do_not_count(self, store: Store) -> None:
        """A5: neither known nor refused ones take a place."""
        task, other = a_task(key="once"), a_task()
        batch = [task, task, a_task(key="once"), other, a_task()]
        receipts = await store.add(batch, now=NOW, bounds={"default": 2})
        assert receipts == [Added(), Known(), KeyHeld(task.id), Added(), Full(2, 2)]

    async def test_a_refused_task_does_not_take_its_key(self, store: Store) -> None:
        """A5: what is answered Full leaves no trace."""
        await add(store, a_task())
        assert await store.add([a_task(key="once")], now=NOW, bounds={"default": 1}) == [Full(1, 1)]
        assert await store.add([a_task(key="once")], now=NOW, bounds={"default": 2}) == [Added()]

    async def test_requeued_tasks_are_not_held_to_the_bound(self, store: Store) -> None:
        """A5: a task that was let in once is never shut out."""
        await add(store, *some_tasks(2))
        claimed = await store.claim(a_claim(limit=2))
        assert await store.add(some_tasks(2), now=NOW, bounds={"default": 2}) == [Added()] * 2
        await settle(store, claimed[0], HandedBack())
        await settle(store, claimed[1], Failed(failure=a_failure()))
        assert await store.add(some_tasks(1), now=NOW, bounds={"default": 2}) == [Full(4, 2)]

    async def test_every_way_out_of_the_line_makes_room(self, store: Store) -> None:
        """A5: claimed, cancelled and removed tasks wait no longer."""
        await add(store, *some_tasks(3))
        bounds = {"default": 3}
        await claim_one(store)
        assert await store.add(some_tasks(2), now=NOW, bounds=bounds) == [Added(), Full(3, 3)]
        waiting = [task for task in await contents(store) if task.state is State.QUEUED]
        await apply_one(store, a_decision(waiting[0], CancelAsked()))
        assert await store.add(some_tasks(2), now=NOW, bounds=bounds) == [Added(), Full(3, 3)]
        await apply_one(store, a_removal(waiting[1]))
        assert await store.add(some_tasks(2), now=NOW, bounds=bounds) == [Added(), Full(3, 3)]

    async def test_concurrent_adds_never_exceed_a_bound_together(self, store: Store) -> None:
        """A5: and together they reach it."""
        batches = [some_tasks(3) for _ in range(10)]
        await asyncio.gather(*(store.add(batch, now=NOW, bounds={"default": 10}) for batch in batches))
        assert len(await contents(store)) == 10
