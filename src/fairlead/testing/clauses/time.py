"""Clauses T1 and T2: a shared store's time is the store's, and no lease ends later than its length from now."""

from __future__ import annotations

from fairlead.core.events import AlarmRang, Completed
from fairlead.core.identity import TaskId
from fairlead.core.instant import DAY, HOUR, SECOND, Instant
from fairlead.core.queues.limits import Limit, Limits, Rate
from fairlead.core.queues.order import Promote, Weighted
from fairlead.core.task import Lease, State, Task
from fairlead.storage.protocol import Store
from fairlead.storage.steps import host_time
from fairlead.storage.values import Added, KeyHeld, Pulse
from fairlead.testing.builders import GRACE, LEASE, NOW, a_beat, a_claim, a_decision, a_task, some_tasks
from fairlead.testing.steps import add, apply_one, claim_one, contents, ids, read, settle


async def time_of(store: Store) -> Instant:
    """The time by the store's own clock."""
    now = await store.time()
    return host_time() if now is None else now


def lease_of(task: Task | None) -> Lease:
    assert task is not None
    assert task.status.lease is not None
    return task.status.lease


WISHES = (
    a_claim(now=None),
    a_claim(now=None, policy=Promote()),
    a_claim(now=None, policy=Weighted()),
    a_claim(now=None, limits=Limits(queue=Limit(running=5, pace=Rate(100, SECOND).pace))),
)


class TimeClauses:
    """What is by whose clock, and how far ahead a lease may end."""

    async def test_a_claim_is_made_when_the_store_makes_it(self, store: Store) -> None:
        """T1: its start and the end of its lease are by the store's clock, whatever limits it and orders it."""
        for key in (None, "key"):
            for wish in WISHES:
                await add(store, a_task(concurrency_key=key))
                before = await time_of(store)
                (task,) = await store.claim(wish)
                after = await time_of(store)
                begun = task.status.started_at or 0
                assert before <= begun <= after
                assert lease_of(task).until == task.status.alarm == begun + LEASE
                assert await read(store, task) == task
                await settle(store, task, Completed())

    async def test_claims_that_wait_for_a_rate_go_by_the_stores_clock(self, store: Store) -> None:
        """T1: what a rate lets through is judged by the clock that counted the starts."""
        await add(store, *some_tasks(2))
        slow = Limits(queue=Limit(pace=Rate(1, DAY).pace))
        assert len(await store.claim(a_claim(now=None, limit=2, limits=slow))) == 1
        assert await store.claim(a_claim(now=None, limit=2, limits=slow)) == []

    async def test_a_heartbeat_counts_from_when_the_store_hears_it(self, store: Store) -> None:
        """T1: its sender does not say when that is."""
        await add(store, a_task())
        task = await claim_one(store, a_claim(now=None))
        before = await time_of(store)
        assert await store.extend([a_beat(task)], lease=HOUR, grace=HOUR) == [Pulse.HELD]
        after = await time_of(store)
        until = lease_of(await read(store, task)).until
        begun = task.status.started_at or 0
        assert min(before + HOUR, begun + task.status.timeout + HOUR) <= until <= after + HOUR

    async def test_what_is_due_is_due_by_the_stores_clock(self, store: Store) -> None:
        """T1: ended leases and other alarms alike."""
        now = await time_of(store)
        past, ahead = (a_task(state=State.SCHEDULED, ready_at=now + by) for by in (-SECOND, HOUR))
        await add(store, past, ahead, a_task(), a_task())
        ended = await claim_one(store, a_claim(now=now - HOUR))
        await claim_one(store, a_claim(now=None))
        assert ids(await store.due(None, 10)) == [ended.id, past.id]
        assert ids(await store.due(None, 1)) == [ended.id]
        first = (ended.status.alarm or 0, ended.id)
        assert ids(await store.due(None, 10, first)) == [past.id]

    async def test_a_key_is_held_by_the_stores_clock(self, store: Store) -> None:
        """T1: until when is its holder's word, whether it is past is the store's."""
        now = await time_of(store)
        await add(store, a_task(key="held", key_until=now + HOUR), a_task(key="free", key_until=now - SECOND))
        held, free = a_task(key="held"), a_task(key="free")
        receipts = await store.add([held, free], bounds={})
        assert isinstance(receipts[0], KeyHeld)
        assert receipts[1] == Added()
        bounded = await store.add([a_task(key="held")], bounds={"default": 100})
        assert isinstance(bounded[0], KeyHeld)

    async def test_leases_that_end_too_late_are_cut(self, store: Store) -> None:
        """T2: and their alarms with them; all else stays, and so do other leases and other alarms."""
        await add(store, *some_tasks(3), a_task(state=State.SCHEDULED, ready_at=NOW + DAY))
        held = [await claim_one(store, a_claim(now=NOW + by)) for by in (0, SECOND, HOUR)]
        assert await store.curtail(lease=LEASE, limit=10, now=NOW) == 2
        after = {task.id: task for task in await contents(store)}
        for task in held:
            status = after[task.id].status
            assert lease_of(after[task.id]).until == status.alarm == NOW + LEASE
            assert (status.version, status.beats, status.started_at) == (
                task.status.version,
                task.status.beats,
                task.status.started_at,
            )
        assert await store.curtail(lease=LEASE, limit=10, now=NOW) == 0
        assert sorted(ids(await store.due(NOW + LEASE, 10))) == sorted(task.id for task in held)
        assert len(await store.due(NOW + DAY, 10)) == 4

    async def test_the_latest_are_cut_first_and_no_more_than_asked_for(self, store: Store) -> None:
        """T2: who cuts page by page comes to an end."""
        await add(store, *some_tasks(5))
        late: list[TaskId] = [(await claim_one(store, a_claim(now=NOW + turn * HOUR))).id for turn in range(1, 6)]
        assert await store.curtail(lease=LEASE, limit=2, now=NOW) == 2
        assert sorted(ids(await store.due(NOW + LEASE, 10))) == sorted(late[3:])
        assert await store.curtail(lease=LEASE, limit=0, now=NOW) == 0
        assert await store.curtail(lease=LEASE, limit=10, now=NOW) == 3
        assert sorted(ids(await store.due(NOW + LEASE, 10))) == sorted(late)

    async def test_a_lease_that_was_cut_is_held_renewed_settled_and_found(self, store: Store) -> None:
        """T2: it is the same lease, and its holder need not know."""
        await add(store, *some_tasks(3))
        renewed, settled, lost = [await claim_one(store, a_claim(now=NOW + HOUR)) for _ in range(3)]
        assert await store.curtail(lease=LEASE, limit=10, now=NOW) == 3
        assert await store.extend([a_beat(renewed)], lease=LEASE, grace=GRACE, now=NOW + SECOND) == [Pulse.HELD]
        assert lease_of(await read(store, renewed)).until == NOW + SECOND + LEASE
        await settle(store, settled, Completed())
        stored = await read(store, lost)
        assert stored is not None
        await apply_one(store, a_decision(stored, AlarmRang(), NOW + LEASE))

    async def test_leases_are_cut_by_the_stores_clock(self, store: Store) -> None:
        """T2, T1: as they are granted."""
        await add(store, *some_tasks(2))
        late = await claim_one(store, a_claim(now=await time_of(store) + HOUR))
        await claim_one(store, a_claim(now=None))
        before = await time_of(store)
        assert await store.curtail(lease=LEASE, limit=10) == 1
        assert before + LEASE <= lease_of(await read(store, late)).until <= await time_of(store) + LEASE
