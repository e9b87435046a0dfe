"""Clauses H1 to H3, T1 and T2: heartbeats, a shared store's time, and that no lease ends later than it should."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.core.events import AlarmRang, Completed, HandedBack
from fairlead.core.identity import TaskId
from fairlead.core.instant import DAY, HOUR, MINUTE, SECOND, Instant
from fairlead.core.queues.limits import Limit, Limits, Rate
from fairlead.core.queues.order import Promote, Weighted
from fairlead.core.task import Lease, Progress, State, Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Added, Beat, Filter, KeyHeld, Pulse
from fairlead.testing.builders import (
    GRACE,
    LEASE,
    NOW,
    WORKER,
    a_beat,
    a_claim,
    a_decision,
    a_removal,
    a_task,
    a_token,
    an_id,
    some_tasks,
)
from fairlead.testing.clauses.add import ODD_TEXT
from fairlead.testing.steps import (
    add,
    apply_one,
    ask_to_cancel,
    claim_one,
    contents,
    ids,
    lease_of,
    read,
    settle,
    time_of,
)


def as_extended(task: Task, end: Instant, progress: Progress | None = None, beats: int = 1) -> Task:
    """The task as heartbeats must leave it."""
    status = task.status
    assert status.lease is not None
    lease = Lease(token=status.lease.token, worker=status.lease.worker, until=end)
    return Task(
        task.spec,
        replace(status, beats=status.beats + beats, lease=lease, alarm=end, progress=progress or status.progress),
    )


class HeartbeatClauses:
    """What a heartbeat does."""

    async def test_a_heartbeat_moves_lease_end_and_alarm(self, store: Store) -> None:
        """H1: adds one to beats, leaves version and all else."""
        await add(store, a_task())
        task = await claim_one(store)
        until = NOW + LEASE + SECOND
        assert await store.extend([a_beat(task)], lease=LEASE, now=NOW + SECOND, grace=GRACE) == [Pulse.HELD]
        extended = as_extended(task, until)
        assert await read(store, task) == extended
        assert await store.due(until - 1, 10) == []
        assert await store.due(until, 10) == [extended]
        assert (await store.tally()).next_alarm == until

    async def test_beats_add_up(self, store: Store) -> None:
        """H1: one more with every heartbeat, also within one call."""
        await add(store, a_task())
        task = await claim_one(store)
        until = NOW + MINUTE
        assert await store.extend([a_beat(task)] * 3, lease=MINUTE, now=NOW, grace=GRACE) == [Pulse.HELD] * 3
        assert await store.extend([a_beat(task)], lease=MINUTE, now=NOW, grace=GRACE) == [Pulse.HELD]
        assert await read(store, task) == as_extended(task, until, beats=4)

    async def test_a_lease_that_ends_later_than_its_length_from_now_is_cut(self, store: Store) -> None:
        """H1: or a worker that dies after the clock went back would not be noticed for as long as it went back."""
        await add(store, a_task())
        task = await claim_one(store)
        earlier = NOW - 60 * MINUTE
        assert await store.extend([a_beat(task)], lease=LEASE, now=earlier, grace=GRACE) == [Pulse.HELD]
        begun = Task(task.spec, replace(task.status, started_at=earlier))
        assert await read(store, task) == as_extended(begun, earlier + LEASE)
        assert await store.due(earlier + LEASE - 1, 10) == []
        assert ids(await store.due(earlier + LEASE, 10)) == [task.id]

    async def test_an_attempt_that_begins_ahead_of_the_clock_has_its_timeout_from_now(self, store: Store) -> None:
        """H1: a worker that hangs does not hold its task the longer for a clock that went back."""
        await add(store, a_task(timeout=5 * SECOND))
        task = await claim_one(store)
        earlier = NOW - 60 * MINUTE
        for beat in range(10):
            await store.extend([a_beat(task)], lease=LEASE, now=earlier + beat * 10 * SECOND, grace=SECOND)
        stored = await read(store, task)
        assert stored is not None
        assert (stored.status.started_at, stored.status.alarm) == (earlier, earlier + 6 * SECOND)

    async def test_a_lease_is_never_extended_past_the_timeout_and_its_grace(self, store: Store) -> None:
        """H1: so that a worker that hangs loses the task too."""
        await add(store, a_task(timeout=MINUTE))
        task = await claim_one(store, a_claim(now=NOW + SECOND))
        latest = NOW + SECOND + MINUTE + GRACE
        for until in (latest - 1, latest, latest + 1, latest + 60 * MINUTE):
            now = until - LEASE
            assert await store.extend([a_beat(task)], lease=LEASE, now=now, grace=GRACE) == [Pulse.HELD]
            stored = await read(store, task)
            assert stored is not None
            assert stored.status.alarm == min(until, latest)
        assert await read(store, task) == as_extended(task, latest, beats=4)

    async def test_a_smaller_grace_cuts_the_lease(self, store: Store) -> None:
        """H1: the cap is that of the heartbeat."""
        await add(store, a_task(timeout=5 * SECOND))
        task = await claim_one(store, a_claim(grace=20 * SECOND))
        assert task.status.alarm == NOW + 25 * SECOND
        assert await store.extend([a_beat(task)], lease=LEASE, now=NOW, grace=SECOND) == [Pulse.HELD]
        assert await read(store, task) == as_extended(task, NOW + 6 * SECOND)

    async def test_the_cap_follows_the_timeout_that_has_grown(self, store: Store) -> None:
        """H1: the status's timeout, not the spec's."""
        task = a_task(timeout=5 * SECOND)
        await add(store, Task(task.spec, replace(task.status, timeout=MINUTE)))
        claimed = await claim_one(store)
        await store.extend([a_beat(claimed)], lease=5 * MINUTE, now=NOW, grace=GRACE)
        assert await read(store, task) == as_extended(claimed, NOW + MINUTE + GRACE)

    async def test_a_progress_report_replaces_the_old_one(self, store: Store) -> None:
        """H1: and no report leaves it."""
        await add(store, a_task())
        task = await claim_one(store)
        first = Progress(percent=12.5, message="an eighth", at=NOW + 1)
        second = Progress(percent=0.0, message=ODD_TEXT)
        until = NOW + LEASE
        await store.extend([a_beat(task, progress=first)], lease=LEASE, now=NOW, grace=GRACE)
        await store.extend([a_beat(task)], lease=LEASE, now=NOW, grace=GRACE)
        assert await read(store, task) == as_extended(task, until, first, beats=2)
        await store.extend([a_beat(task, progress=second)], lease=LEASE, now=NOW, grace=GRACE)
        assert await read(store, task) == as_extended(task, until, second, beats=3)

    async def test_extending_nothing_answers_nothing(self, store: Store) -> None:
        """H1: an empty batch."""
        assert await store.extend([], lease=LEASE, now=NOW, grace=GRACE) == []

    async def test_a_large_batch_of_heartbeats_is_answered_in_order(self, store: Store) -> None:
        """H1: 1,500 beats, every third of a lost lease."""
        await add(store, *some_tasks(1_500))
        claimed = await store.claim(a_claim(limit=1_500))
        stranger = a_token()
        beats = [a_beat(task, token=stranger if at % 3 == 0 else None) for at, task in enumerate(claimed)]
        pulses = await store.extend(beats, lease=MINUTE, now=NOW, grace=GRACE)
        assert pulses == [Pulse.LOST, Pulse.HELD, Pulse.HELD] * 500
        alarms = [task.status.alarm for task in await contents(store)]
        assert alarms == [NOW + LEASE, NOW + MINUTE, NOW + MINUTE] * 500

    async def test_a_heartbeat_learns_that_cancel_was_asked(self, store: Store) -> None:
        """H2: the lease is held and extended all the same."""
        await add(store, a_task())
        task = await claim_one(store)
        asked = await ask_to_cancel(store, task)
        until = NOW + MINUTE
        assert await store.extend([a_beat(task)], lease=MINUTE, now=NOW, grace=GRACE) == [Pulse.CANCEL]
        assert await read(store, task) == as_extended(asked, until)

    async def test_answers_are_in_the_order_of_the_beats(self, store: Store) -> None:
        """H2: held, to be cancelled and lost ones mixed."""
        await add(store, *some_tasks(3))
        first, second, third = await store.claim(a_claim(limit=3))
        await ask_to_cancel(store, first)
        await settle(store, second, Completed())
        beats = [a_beat(third), a_beat(second), Beat(an_id(), a_token()), a_beat(first), a_beat(third)]
        pulses = await store.extend(beats, lease=MINUTE, now=NOW, grace=GRACE)
        assert pulses == [Pulse.HELD, Pulse.LOST, Pulse.LOST, Pulse.CANCEL, Pulse.HELD]

    async def test_a_lease_past_its_end_is_held_until_someone_decides_otherwise(self, store: Store) -> None:
        """H2: acceptance never compares clocks."""
        await add(store, a_task())
        task = await claim_one(store)
        later = NOW + 3 * LEASE
        assert await store.extend([a_beat(task)], lease=LEASE, now=later - LEASE, grace=GRACE) == [Pulse.HELD]
        assert await store.due(later - 1, 10) == []

    async def test_another_token_is_lost(self, store: Store) -> None:
        """H3: and changes nothing, its progress included."""
        await add(store, a_task())
        task = await claim_one(store)
        beat = a_beat(task, token=a_token(), progress=Progress(percent=99))
        assert await store.extend([beat], lease=MINUTE, now=NOW, grace=GRACE) == [Pulse.LOST]
        assert await contents(store) == [task]

    async def test_the_token_of_an_earlier_attempt_is_lost(self, store: Store) -> None:
        """H3: the task is held, but not by this attempt."""
        await add(store, a_task())
        first = await claim_one(store)
        await settle(store, first, HandedBack())
        second = await claim_one(store)
        beat = a_beat(first, progress=Progress(percent=99))
        assert await store.extend([beat], lease=MINUTE, now=NOW, grace=GRACE) == [Pulse.LOST]
        assert await contents(store) == [second]

    async def test_a_swept_lease_is_never_resurrected(self, store: Store) -> None:
        """H3: once a sweep has decided, the task waits and goes on waiting."""
        await add(store, a_task())
        task = await claim_one(store)
        change = a_decision(task, AlarmRang(), NOW + LEASE)
        await apply_one(store, change)
        before = await contents(store)
        beat = a_beat(task, progress=Progress(percent=99))
        assert await store.extend([beat], lease=MINUTE, now=NOW, grace=GRACE) == [Pulse.LOST]
        assert await contents(store) == before
        assert await store.find(Filter(worker=WORKER), limit=5) == []

    async def test_tasks_that_are_not_executing_or_not_there_are_lost(self, store: Store) -> None:
        """H3: queued, ended and removed ones."""
        queued, removed = a_task(), a_task()
        await add(store, a_task(), removed)
        held, removed = await store.claim(a_claim(limit=2))
        await add(store, queued)
        await apply_one(store, a_removal(removed))
        ended = await settle(store, held, Completed(b"1"))
        beats = [Beat(queued.id, a_token()), a_beat(held), a_beat(removed), Beat(an_id(), a_token())]
        assert await store.extend(beats, lease=MINUTE, now=NOW, grace=GRACE) == [Pulse.LOST] * 4
        assert sorted(ids(await contents(store))) == sorted(ids([ended, queued]))
        assert await store.get([held.id, queued.id]) == [ended, queued]


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
