"""Clauses C1, C3, C4 and C5: what a claim takes, and how it leaves it."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from fairlead.core.events import AlarmRang, Completed, Failed, HandedBack
from fairlead.core.identity import WorkerId
from fairlead.core.instant import MINUTE, SECOND
from fairlead.core.queues.order import Weighted
from fairlead.core.task import Lease, Priority, Progress, State, Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Claim
from fairlead.testing.builders import (
    GRACE,
    LEASE,
    NOW,
    a_beat,
    a_claim,
    a_decision,
    a_failure,
    a_task,
    some_tasks,
)
from fairlead.testing.steps import add, apply_one, claim_one, contents, ids, read, settle


def as_claimed(task: Task, claim: Claim) -> Task:
    """The task as the claim must leave it."""
    end = claim.at + min(claim.lease, task.status.timeout + claim.grace)
    status = replace(
        task.status,
        state=State.EXECUTING,
        version=task.status.version + 1,
        attempts=task.status.attempts + 1,
        started_at=claim.at,
        lease=Lease(token=claim.token, worker=claim.worker, until=end),
        alarm=end,
    )
    return Task(task.spec, status)


class ClaimingClauses:
    """What a claim may take, and what becomes of it."""

    async def test_an_empty_store_has_nothing_to_claim(self, store: Store) -> None:
        """C1: whatever is asked for."""
        assert await store.claim(a_claim(limit=10)) == []
        assert await store.claim(a_claim("a", "b", limit=10, capabilities=("gpu",), types=("work",))) == []

    async def test_only_queued_tasks_are_claimed(self, store: Store) -> None:
        """C1: neither scheduled nor executing nor ended ones, even when they are due."""
        states = [state for state in State if state is not State.EXECUTING]
        tasks = {state: a_task(state=state, ready_at=NOW - 1) for state in states}
        await add(store, *tasks.values())
        assert ids(await store.claim(a_claim(limit=10, now=NOW + MINUTE))) == [tasks[State.QUEUED].id]
        assert await store.claim(a_claim(limit=10, now=NOW + MINUTE)) == []

    async def test_only_the_queues_named_are_served(self, store: Store) -> None:
        """C1: a name that begins like another is another queue."""
        tasks = {queue: a_task(queue=queue) for queue in ("a", "a:b", "ab", "A", "b")}
        await add(store, *tasks.values())
        assert ids(await store.claim(a_claim("a", "unknown", limit=10))) == [tasks["a"].id]
        assert ids(await store.claim(a_claim("b", "A", limit=10))) == [tasks["A"].id, tasks["b"].id]
        assert ids(await store.claim(a_claim("ab", "a:b", limit=10))) == [tasks["a:b"].id, tasks["ab"].id]

    async def test_no_queue_named_gives_nothing(self, store: Store) -> None:
        """C1: no queue is not every queue."""
        await add(store, a_task())
        assert await store.claim(replace(a_claim(limit=10), queues=())) == []

    async def test_the_capabilities_must_cover_what_a_task_requires(self, store: Store) -> None:
        """C1: all of it; more capabilities do no harm."""
        plain, gpu, both = a_task(), a_task(requires=("gpu",)), a_task(requires=("gpu", "ssd"))
        similar = a_task(requires=("gpu:ssd",))
        await add(store, both, gpu, plain, similar)
        assert ids(await store.claim(a_claim(limit=10))) == [plain.id]
        assert ids(await store.claim(a_claim(limit=10, capabilities=("ssd", "other")))) == []
        assert ids(await store.claim(a_claim(limit=10, capabilities=("gpu", "other")))) == [gpu.id]
        assert ids(await store.claim(a_claim(limit=10, capabilities=("other", "ssd", "gpu")))) == [both.id]
        assert ids(await store.claim(a_claim(limit=10, capabilities=("gpu:ssd",)))) == [similar.id]

    async def test_only_the_types_named_are_claimed(self, store: Store) -> None:
        """C1: None is every type, and no type is none."""
        tasks = {type: a_task(type=type) for type in ("send", "resize", "send:later", "Send", "index")}
        await add(store, *tasks.values())
        assert await store.claim(a_claim(limit=10, types=())) == []
        assert ids(await store.claim(a_claim(limit=10, types=("send", "unknown")))) == [tasks["send"].id]
        assert ids(await store.claim(a_claim(limit=10, types=("Send", "index")))) == ids(
            [tasks["Send"], tasks["index"]]
        )
        assert ids(await store.claim(a_claim(limit=10, types=None))) == ids([tasks["resize"], tasks["send:later"]])

    async def test_the_types_excluded_are_not_claimed(self, store: Store) -> None:
        """C1: whether the types are named or any would do; what is excluded keeps its place."""
        tasks = {type: a_task(type=type) for type in ("send", "resize", "send:later", "Send")}
        await add(store, *tasks.values())
        everything = tuple(tasks)
        assert await store.claim(a_claim(limit=10, excluded_types=everything)) == []
        assert await store.claim(a_claim(limit=10, types=("send",), excluded_types=("send", "unknown"))) == []
        assert ids(await store.claim(a_claim(limit=10, types=("send", "Send"), excluded_types=("send",)))) == [
            tasks["Send"].id
        ]
        assert ids(await store.claim(a_claim(limit=10, excluded_types=("send",)))) == ids(
            [tasks["resize"], tasks["send:later"]]
        )
        assert ids(await store.claim(a_claim(limit=10, excluded_types=("unknown",)))) == [tasks["send"].id]

    async def test_an_order_that_is_drawn_heeds_the_types_excluded(self, store: Store) -> None:
        """C1: under several tables as under one."""
        kept, taken = a_task(type="resize", priority=Priority.CRITICAL), a_task(type="send", priority=Priority.LOW)
        await add(store, kept, taken)
        claim = a_claim(limit=10, excluded_types=("resize",), policy=Weighted())
        assert ids(await store.claim(claim)) == [taken.id]

    async def test_a_claim_never_takes_more_than_its_limit(self, store: Store) -> None:
        """C1: over all queues, types and priorities together."""
        tasks = [
            a_task(queue=queue, type=type, priority=priority)
            for queue in ("a", "b")
            for type in ("x", "y")
            for priority in Priority
        ]
        await add(store, *tasks)
        sizes = [len(await store.claim(a_claim("a", "b", limit=limit))) for limit in (0, 1, 3, 7, 100, 100)]
        assert sizes == [0, 1, 3, 7, 5, 0]

    async def test_a_claimed_task_is_executing_under_the_claims_lease(self, store: Store) -> None:
        """C3: what is answered is what is stored, and nothing else has changed."""
        tasks = [a_task(priority=priority, tags=("x",), key=priority.word) for priority in Priority]
        await add(store, *tasks)
        claim = a_claim(limit=3, worker=WorkerId("w-7"), now=NOW + SECOND)
        claimed = await store.claim(claim)
        assert claimed == [as_claimed(task, claim) for task in tasks[:3]]
        assert await contents(store) == [*claimed, tasks[3]]

    async def test_a_lease_ends_with_the_timeout_and_its_grace_at_the_latest(self, store: Store) -> None:
        """C3: the lease's own length counts only while it is the shorter one."""
        short, long = a_task(timeout=5 * SECOND), a_task(timeout=MINUTE)
        edge = a_task(timeout=LEASE - GRACE)
        await add(store, short, long, edge)
        claim = a_claim(limit=3, lease=LEASE, grace=GRACE)
        claimed = await store.claim(claim)
        assert [task.status.alarm for task in claimed] == [NOW + 15 * SECOND, NOW + LEASE, NOW + LEASE]
        assert claimed == [as_claimed(task, claim) for task in (short, long, edge)]

    async def test_the_timeout_that_counts_is_the_one_that_has_grown(self, store: Store) -> None:
        """C3: the status's, not the spec's."""
        task = a_task(timeout=5 * SECOND)
        grown = Task(task.spec, replace(task.status, timeout=8 * SECOND))
        await add(store, grown)
        claim = a_claim()
        assert await claim_one(store, claim) == as_claimed(grown, claim)

    async def test_a_second_claim_of_a_task_is_a_new_attempt(self, store: Store) -> None:
        """C3: attempts go on counting, and what an earlier attempt left stays."""
        await add(store, a_task())
        first = await claim_one(store)
        await store.extend([a_beat(first, progress=Progress(percent=5))], lease=LEASE, now=NOW, grace=GRACE)
        failed = await settle(store, first, Failed(failure=a_failure(), after=0))
        claim = a_claim(now=NOW + SECOND)
        second = await claim_one(store, claim)
        assert second == as_claimed(failed, claim)
        assert (second.status.attempts, second.status.version) == (2, 4)
        assert second.status.failure == a_failure()

    async def test_a_claim_takes_a_task_only_once(self, store: Store) -> None:
        """C4: one claim after the other."""
        await add(store, *some_tasks(5))
        first = await store.claim(a_claim(limit=3))
        second = await store.claim(a_claim(limit=3))
        assert len(first) == 3
        assert len(second) == 2
        assert not set(ids(first)) & set(ids(second))
        assert await store.claim(a_claim(limit=3)) == []

    async def test_a_queue_named_twice_is_served_once(self, store: Store) -> None:
        """C4: not even one claim takes a task twice."""
        tasks = some_tasks(3)
        await add(store, *tasks)
        claim = a_claim("default", "default", limit=5)
        assert await store.claim(claim) == [as_claimed(task, claim) for task in tasks]

    async def test_concurrent_claims_never_share_a_task(self, store: Store) -> None:
        """C4: and together they take all."""
        tasks = some_tasks(60)
        await add(store, *tasks)
        answers = await asyncio.gather(*(store.claim(a_claim(limit=7)) for _ in range(12)))
        taken = [task for answer in answers for task in answer]
        assert sorted(ids(taken)) == ids(tasks)
        assert await contents(store) == sorted(taken, key=lambda task: task.id)

    async def test_a_task_is_claimed_again_only_after_it_was_queued_again(self, store: Store) -> None:
        """C4: by its holder's word or a decision, not by the end of its lease."""
        await add(store, a_task())
        claimed = await claim_one(store)
        far = NOW + 60 * MINUTE
        assert await store.claim(a_claim(now=far)) == []
        await apply_one(store, a_decision(claimed, AlarmRang(), far))
        lost = await read(store, claimed)
        assert lost is not None
        assert await store.claim(a_claim(now=far)) == []
        await apply_one(store, a_decision(lost, AlarmRang(), far + MINUTE))
        assert (await claim_one(store, a_claim(now=far + MINUTE))).status.attempts == 2

    async def test_a_task_that_cannot_be_taken_does_not_block_the_line(self, store: Store) -> None:
        """C5: however many such tasks are ahead, and whatever keeps the claim from them."""
        blocking = [
            a_task(priority=Priority.CRITICAL, ready_at=NOW - MINUTE, requires=requires, type=type)
            for requires, type in ((("gpu",), "work"), ((), "other"), (("gpu", "ssd"), "other"))
            for _ in range(150)
        ]
        free = a_task(priority=Priority.LOW)
        await add(store, *blocking, free)
        assert ids(await store.claim(a_claim(limit=5, types=("work",)))) == [free.id]

    async def test_a_task_that_cannot_be_taken_keeps_its_place(self, store: Store) -> None:
        """C5: being passed over costs nothing."""
        first, second = a_task(requires=("gpu",)), a_task()
        await add(store, first, second)
        assert ids(await store.claim(a_claim())) == [second.id]
        await settle(store, (await contents(store))[1], HandedBack())
        assert ids(await store.claim(a_claim(limit=5, capabilities=("gpu",)))) == [first.id, second.id]

    async def test_a_large_claim_takes_all_in_order(self, store: Store) -> None:
        """C1: 1,500 tasks in one call."""
        tasks = some_tasks(1_500)
        await add(store, *tasks)
        claim = a_claim(limit=1_500)
        assert await store.claim(claim) == [as_claimed(task, claim) for task in tasks]

    async def test_ended_tasks_are_never_claimed(self, store: Store) -> None:
        """C1: completed in the store, not only added so."""
        await add(store, a_task())
        await settle(store, await claim_one(store), Completed())
        assert await store.claim(a_claim(limit=5)) == []
