"""Clauses G1, G2 and G4: compare and set."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from fairlead.core.events import AlarmRang, CancelAsked, Completed, Expired, Failed, HandedBack, Replayed
from fairlead.core.instant import SECOND, Instant
from fairlead.core.lifecycle import decide
from fairlead.core.settings import Rules
from fairlead.core.task import OwnRetention, Priority, Progress, State, Task
from fairlead.core.transitions import is_late
from fairlead.storage.protocol import Store
from fairlead.storage.values import Change, Filter, Held, Seen, Verdict
from fairlead.testing.builders import (
    GRACE,
    LEASE,
    NOW,
    a_beat,
    a_claim,
    a_decision,
    a_dependent,
    a_failure,
    a_removal,
    a_settle,
    a_task,
    a_token,
    after,
    held,
    seen,
    some_tasks,
)
from fairlead.testing.steps import add, apply_one, ask_to_cancel, claim_one, contents, ids, read, settle

APPLIED, STALE, MISSING = Verdict.APPLIED, Verdict.STALE, Verdict.MISSING


class ChangingClauses:
    """When a change is made, and how."""

    async def test_a_holder_settles_its_task(self, store: Store) -> None:
        """G1: the whole status is as the change says."""
        await add(store, a_task())
        task = await claim_one(store)
        change = a_settle(task, Completed(b'{"done": 1.0}'))
        assert await store.apply([change]) == [APPLIED]
        assert await contents(store) == [after(task, change)]

    async def test_the_whole_status_is_replaced(self, store: Store) -> None:
        """G1: nothing of the old one is left, neither progress nor result nor failure."""
        task = a_task()
        await add(store, task)
        claimed = await claim_one(store)
        await store.extend([a_beat(claimed, progress=Progress(percent=50))], lease=LEASE, now=NOW, grace=GRACE)
        failed = await settle(store, claimed, Failed(failure=a_failure(), after=0))
        assert await contents(store) == [failed]
        bare = replace(task.status, version=99)
        await apply_one(store, Change(task.id, seen(failed), bare))
        assert await contents(store) == [Task(task.spec, bare)]

    async def test_a_change_is_seen_by_every_operation(self, store: Store) -> None:
        """G1: a scheduled task that becomes due is queued everywhere."""
        task = a_task(state=State.SCHEDULED, ready_at=NOW + SECOND)
        await add(store, task)
        await apply_one(store, a_decision(task, AlarmRang(), NOW + SECOND))
        assert await store.due(NOW + 9 * SECOND, 5) == []
        assert await store.find(Filter(states=frozenset({State.SCHEDULED})), limit=5) == []
        assert ids(await store.find(Filter(states=frozenset({State.QUEUED})), limit=5)) == [task.id]
        assert (await store.tally()).next_alarm is None
        assert ids(await store.claim(a_claim())) == [task.id]

    async def test_a_cancelled_task_is_not_claimed(self, store: Store) -> None:
        """G1: it has left its line."""
        first, second = some_tasks(2)
        await add(store, first, second)
        await apply_one(store, a_decision(first, CancelAsked()))
        assert ids(await store.claim(a_claim(limit=5))) == [second.id]

    async def test_a_task_that_waits_again_is_in_its_line_once(self, store: Store) -> None:
        """G1: however often it came and went."""
        await add(store, a_task())
        for turn in range(5):
            claimed = await claim_one(store, a_claim(now=NOW + turn))
            await settle(store, claimed, HandedBack(), NOW + turn)
        assert len(await store.claim(a_claim(limit=5))) == 1
        assert await store.claim(a_claim(limit=5)) == []

    async def test_a_change_of_priority_moves_the_task_to_another_lane(self, store: Store) -> None:
        """G1: it is not left behind in the old one."""
        task = a_task(priority=Priority.LOW)
        await add(store, task)
        moved = replace(task.status, priority=Priority.HIGH, version=2)
        await apply_one(store, Change(task.id, seen(task), moved))
        tally = await store.tally()
        assert [(lane.lane.priority, lane.counts) for lane in tally.lanes] == [(Priority.HIGH, {State.QUEUED: 1})]
        assert len(await store.claim(a_claim(limit=5))) == 1
        assert await store.claim(a_claim(limit=5)) == []

    async def test_a_change_of_ready_at_moves_the_task_in_its_line(self, store: Store) -> None:
        """G1: and keeps it there once."""
        first, second = a_task(ready_at=NOW - 9), a_task(ready_at=NOW - 5)
        await add(store, first, second)
        moved = replace(first.status, ready_at=NOW - 1, version=2)
        await apply_one(store, Change(first.id, seen(first), moved))
        assert [lane.oldest_ready for lane in (await store.tally()).lanes] == [NOW - 5]
        assert ids(await store.claim(a_claim(limit=5))) == ids([second, first])

    async def test_applying_nothing_answers_nothing(self, store: Store) -> None:
        """G1: an empty batch."""
        assert await store.apply([]) == []

    async def test_a_large_batch_of_changes_is_answered_in_order(self, store: Store) -> None:
        """G1: 1,500 settles, newest task first, every third of them stale."""
        await add(store, *some_tasks(1_500))
        claimed = await store.claim(a_claim(limit=1_500))
        changes = [a_settle(task, Completed(b"%d" % at)) for at, task in enumerate(claimed)]
        forged = [
            replace(change, guard=Held(2, a_token())) if at % 3 == 0 else change for at, change in enumerate(changes)
        ]
        assert await store.apply(forged[::-1]) == [APPLIED, APPLIED, STALE] * 500
        results = [task.status.result for task in await contents(store)]
        assert results == [None if at % 3 == 0 else b"%d" % at for at in range(1_500)]

    async def test_an_old_token_settles_nothing(self, store: Store) -> None:
        """G2: the fence, when someone else holds the task at any version the old holder may name."""
        await add(store, a_task())
        old = await claim_one(store)
        lost = a_decision(old, AlarmRang(), NOW + LEASE)
        await apply_one(store, lost)
        await apply_one(store, a_decision(after(old, lost), AlarmRang(), NOW + 2 * LEASE))
        new = await claim_one(store, a_claim(now=NOW + 2 * LEASE))
        change = a_settle(old, Completed(b'"late"'))
        guesses = [replace(change, guard=Held(version, held(old).token)) for version in range(1, 9)]
        assert await store.apply(guesses) == [STALE] * 8
        assert await contents(store) == [new]

    async def test_a_settle_at_another_version_is_stale(self, store: Store) -> None:
        """G2: a decision was made that the holder has not seen."""
        await add(store, a_task())
        task = await claim_one(store)
        asked = await ask_to_cancel(store, task)
        assert await store.apply([a_settle(task, Failed(failure=a_failure()))]) == [STALE]
        assert await contents(store) == [asked]
        ended = await settle(store, asked, Failed(failure=a_failure()))
        assert ended.state is State.CANCELLED

    async def test_a_holders_guard_needs_an_executing_task(self, store: Store) -> None:
        """G2: neither a lost lease nor one that never was will do."""
        await add(store, a_task(), a_task())
        task, other = await store.claim(a_claim(limit=2))
        handed_back = await settle(store, task, HandedBack())
        late = Change(task.id, Held(handed_back.status.version, held(task).token), a_settle(task, Completed()).status)
        assert await store.apply([late]) == [STALE]
        ended = await settle(store, other, Completed())
        late = Change(other.id, Held(ended.status.version, held(other).token), a_settle(other, HandedBack()).status)
        assert await store.apply([late]) == [STALE]
        assert await contents(store) == [handed_back, ended]

    async def test_heartbeats_do_not_stand_in_a_holders_way(self, store: Store) -> None:
        """G2: its guard does not look at beats."""
        await add(store, a_task())
        task = await claim_one(store)
        await store.extend([a_beat(task)] * 3, lease=LEASE, now=NOW, grace=GRACE)
        assert await store.apply([a_settle(task, Completed())]) == [APPLIED]

    async def test_an_ended_lease_still_settles_until_it_is_swept(self, store: Store) -> None:
        """G2: acceptance never compares clocks."""
        await add(store, a_task())
        task = await claim_one(store)
        assert await store.apply([a_settle(task, Completed(), NOW + 1_000 * LEASE)]) == [APPLIED]

    async def test_an_onlooker_must_have_seen_the_version(self, store: Store) -> None:
        """G2: neither an older nor a newer one will do."""
        task = a_task()
        await add(store, task)
        status = a_decision(task, CancelAsked()).status
        for version in (0, 2, 3):
            assert await store.apply([Change(task.id, Seen(version, 0), status)]) == [STALE]
        assert await contents(store) == [task]
        assert await store.apply([Change(task.id, Seen(1, 0), status)]) == [APPLIED]

    async def test_a_heartbeat_between_look_and_act_makes_the_act_stale(self, store: Store) -> None:
        """G2: so that a sweep never takes a task from a worker that is alive."""
        await add(store, a_task())
        task = await claim_one(store)
        looked = task
        assert await store.due(NOW + LEASE, 5) == [looked]
        await store.extend([a_beat(task)], lease=2 * LEASE, now=NOW, grace=GRACE)
        assert await store.apply([a_decision(looked, AlarmRang(), NOW + LEASE)]) == [STALE]
        fresh = await read(store, task)
        assert fresh is not None
        assert fresh.state is State.EXECUTING
        assert await store.apply([a_decision(fresh, AlarmRang(), NOW + 2 * LEASE)]) == [APPLIED]

    async def test_even_a_heartbeat_that_moves_nothing_makes_the_act_stale(self, store: Store) -> None:
        """G2: beats tell them apart, not the end of the lease."""
        await add(store, a_task())
        task = await claim_one(store)
        await store.extend([a_beat(task)], lease=0, now=NOW, grace=GRACE)
        assert await store.apply([a_decision(task, AlarmRang(), NOW + LEASE)]) == [STALE]

    async def test_of_two_decisions_on_one_look_one_is_applied(self, store: Store) -> None:
        """G2: two sweeps may run at once."""
        await add(store, a_task())
        task = await claim_one(store)
        sweep = a_decision(task, AlarmRang(), NOW + LEASE)
        assert await store.apply([sweep]) == [APPLIED]
        assert await store.apply([sweep]) == [STALE]

    async def test_of_concurrent_decisions_on_one_look_one_is_applied(self, store: Store) -> None:
        """G2: the comparison and the change are one step."""
        tasks = some_tasks(3)
        await add(store, *tasks)
        changes = [a_decision(task, CancelAsked()) for task in tasks]
        answers = await asyncio.gather(*(store.apply(changes) for _ in range(8)))
        for at in range(3):
            assert sorted(answer[at] for answer in answers) == [APPLIED] + [STALE] * 7
        assert [task.status for task in await contents(store)] == [change.status for change in changes]

    async def test_of_concurrent_settles_and_sweeps_one_is_applied(self, store: Store) -> None:
        """G2: whichever comes first, the others come too late."""
        await add(store, a_task())
        task = await claim_one(store)
        sweep, settle = a_decision(task, AlarmRang(), NOW + LEASE), a_settle(task, Completed())
        answers = await asyncio.gather(*(store.apply([change]) for change in (sweep, settle) * 4))
        assert [verdict for answer in answers for verdict in answer].count(APPLIED) == 1
        assert await contents(store) in ([after(task, sweep)], [after(task, settle)])

    async def test_changes_to_one_task_take_effect_in_their_order(self, store: Store) -> None:
        """G4: each sees what the one before it left."""
        task, other = some_tasks(2)
        await add(store, task, other)
        cancel = a_decision(task, CancelAsked())
        replay = a_decision(after(task, cancel), Replayed(priority=Priority.HIGH), NOW + 1)
        again = a_decision(after(task, replay), CancelAsked(), NOW + 2)
        verdicts = await store.apply([cancel, a_decision(other, CancelAsked()), replay, again])
        assert verdicts == [APPLIED] * 4
        assert await read(store, task) == after(task, again)

    async def test_changes_in_the_wrong_order_are_stale(self, store: Store) -> None:
        """G4: a store must not sort them."""
        first, task = some_tasks(2)
        await add(store, first, task)
        cancel = a_decision(task, CancelAsked())
        replay = a_decision(after(task, cancel), Replayed(), NOW + 1)
        verdicts = await store.apply([replay, a_decision(first, CancelAsked()), cancel, cancel])
        assert verdicts == [STALE, APPLIED, APPLIED, STALE]
        assert await read(store, task) == after(task, cancel)

    async def test_a_removal_ends_the_changes_to_a_task(self, store: Store) -> None:
        """G4: what follows finds nothing."""
        task = a_task()
        await add(store, task)
        verdicts = await store.apply([a_removal(task), a_decision(task, CancelAsked()), a_removal(task)])
        assert verdicts == [APPLIED, MISSING, MISSING]
        assert await contents(store) == []

    async def test_how_long_a_task_may_wait_and_is_kept_stays_with_it(self, store: Store) -> None:
        """A1, C3, G1: through a claim, a heartbeat, a retry and its end."""
        task = an_expiring_task(until=NOW + 99 * SECOND)
        await add(store, task)
        assert await contents(store) == [task]
        for turn in range(2):
            claimed = await claim_one(store, a_claim(now=NOW + turn))
            await store.extend([a_beat(claimed)], lease=LEASE, now=NOW + turn, grace=GRACE)
            left = await settle(store, claimed, Failed(failure=a_failure(), after=0), NOW + turn)
            assert (left.spec, left.status.expires_at) == (task.spec, task.status.expires_at)
        done = await settle(store, await claim_one(store, a_claim(now=NOW + 9)), Completed(b"1"), NOW + 9)
        assert await contents(store) == [done]
        assert done.status.alarm == NOW + 9 + SECOND, "kept as long as it says itself"
        assert ids(await store.due(NOW + 9 + SECOND, 5)) == [task.id]

    async def test_a_task_that_is_claimed_too_late_ends_as_if_it_had_never_been_taken(self, store: Store) -> None:
        """G1, G2: in one step, by the lease of that claim, and it counts for those who wait for it."""
        task, child = an_expiring_task(until=NOW + SECOND), a_task(ready_at=NOW + SECOND)
        waiting = a_dependent(task)
        await add(store, task, child, waiting)
        late = NOW + SECOND + 1
        claimed = await claim_one(store, a_claim(now=late))
        assert claimed.id == task.id
        assert is_late(claimed, late)
        change = Change(claimed.id, held(claimed), decide(claimed, Expired(), late, rules=Rules()))
        assert await store.apply([change]) == [Verdict.RELEASED]
        ended = after(claimed, change)
        assert await read(store, claimed) == ended
        assert (ended.state, ended.status.attempts, ended.status.lease) == (State.CANCELLED, 0, None)
        assert await store.apply([change]) != [APPLIED], "its lease is gone"
        assert ids(await store.claim(a_claim(limit=5, now=late))) == [child.id]
        counted = await read(store, waiting)
        assert counted is not None
        assert counted.status.unmet == 1

    async def test_a_task_that_is_due_too_late_ends(self, store: Store) -> None:
        """G1: a retry, or a delayed task that nobody swept, is looked at when its alarm rings."""
        task = an_expiring_task(until=NOW + SECOND)
        await add(store, task)
        failed = await settle(store, await claim_one(store), Failed(failure=a_failure(), after=5 * SECOND))
        assert failed.state is State.SCHEDULED
        rung = a_decision(failed, AlarmRang(), NOW + 5 * SECOND)
        await apply_one(store, rung)
        ended = after(failed, rung)
        assert await read(store, task) == ended
        assert (ended.state, ended.status.failure and ended.status.failure.type) == (State.CANCELLED, "Expired")
        await apply_one(store, a_decision(ended, Replayed(), NOW + 9 * SECOND))
        assert ids(await store.claim(a_claim(now=NOW + 9 * SECOND))) == [task.id]


def an_expiring_task(*, until: Instant) -> Task:
    """A task that may be started until then, and is kept for a second once it has completed."""
    task = a_task()
    return Task(
        replace(task.spec, expires=until - NOW, retention=OwnRetention(completed=SECOND)),
        replace(task.status, expires_at=until),
    )
