"""Clauses Q1 to Q5: tasks whose bytes cannot be decoded.

They are held against stores that keep tasks as bytes, whose test class has a fixture `vandal` that damages them; a
store that keeps values has nothing to set aside.
"""

from __future__ import annotations

import contextlib

import pytest
from msgspec.structs import replace

from fairlead.core.errors import RestoreRefused, StoreUnavailable
from fairlead.core.events import AlarmRang, Completed
from fairlead.core.health.quarantine import QUARANTINE, Fault, Quarantined, capability
from fairlead.core.identity import TaskId
from fairlead.core.instant import AT_ONCE, HOUR, MINUTE
from fairlead.core.lifecycle import rebuilt
from fairlead.core.queues.limits import Limit, Limits
from fairlead.core.queues.order import Weighted
from fairlead.core.settings import Rules
from fairlead.core.task import State, Task
from fairlead.engine.restore import restore
from fairlead.storage.protocol import Lagging, Quarantining, Store
from fairlead.storage.values import Added, Filter, KeyHeld, Missing, Pulse, Verdict
from fairlead.testing.builders import (
    LEASE,
    NOW,
    a_beat,
    a_claim,
    a_decision,
    a_dependent,
    a_removal,
    a_settle,
    a_task,
    some_tasks,
)
from fairlead.testing.steps import add, claim_one, contents, ids, read
from fairlead.testing.vandalism import (
    DAMAGES,
    InterruptedRecords,
    Part,
    Spoiler,
    UnreachableRecords,
    Vandal,
    assert_tallied,
    flipped,
    newer,
    records_kept,
)

LATER = NOW + HOUR
DONE = Completed(b"1")


class QuarantineClauses:
    """One bad record is one bad record."""

    remembered = False
    """Whether a task that the store cannot decode is known elsewhere, and can go back as it was last known there."""

    @pytest.fixture
    def vandal(self) -> Vandal:
        """What damages tasks of this store."""
        raise NotImplementedError

    @pytest.fixture(params=DAMAGES)
    def damage(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture(params=["spec", "status"])
    def part(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def spoiler(self, store: Store, vandal: Vandal, part: Part, damage: str) -> Spoiler:
        assert isinstance(store, Quarantining)
        return Spoiler(store, vandal, part, damage)

    async def test_a_claim_takes_what_is_behind_a_damaged_head(self, store: Store, spoiler: Spoiler) -> None:
        """Q1, Q2, Q3: of one lane, and the claim is as long as if it had not been there."""
        bad, *good = some_tasks(4)
        await add(store, bad, *good)
        await spoiler.spoil(bad)
        assert ids(await store.claim(a_claim(limit=2))) == ids(good[:2])
        await spoiler.assert_aside(bad)
        assert ids(await store.claim(a_claim(limit=5))) == ids(good[2:])

    async def test_a_claim_takes_all_but_the_damaged(self, store: Store, spoiler: Spoiler) -> None:
        """Q1, Q2: in the midst of a batch over several lanes, and of a batch by turns."""
        tasks = [a_task(type=f"type-{number % 3}") for number in range(12)]
        await add(store, *tasks)
        await spoiler.spoil(tasks[2], tasks[3], tasks[7])
        good = [task.id for number, task in enumerate(tasks) if number not in (2, 3, 7)]
        assert ids(await store.claim(a_claim(limit=5))) == good[:5]
        assert sorted(ids(await store.claim(a_claim(limit=12, policy=Weighted())))) == good[5:]
        await spoiler.assert_aside(tasks[2], tasks[3], tasks[7])

    async def test_a_claim_of_nothing_but_damaged_tasks_takes_nothing(self, store: Store, spoiler: Spoiler) -> None:
        """Q1, Q2."""
        tasks = some_tasks(3)
        await add(store, *tasks)
        await spoiler.spoil(*tasks)
        assert await store.claim(a_claim(limit=2)) == []
        assert await store.claim(a_claim(limit=2)) == []
        await spoiler.assert_aside(*tasks)

    async def test_a_claim_that_cannot_set_damage_aside_gives_what_it_took(
        self, store: Store, spoiler: Spoiler
    ) -> None:
        """Q1, C2: or nobody would run it. Whoever looks next meets the damage."""
        first, bad, second = some_tasks(3)
        await add(store, first, bad, second)
        await spoiler.spoil(bad)
        records = spoiler.store.quarantine.records
        spoiler.store.quarantine.records = UnreachableRecords()
        claimed: list[Task] = []
        with contextlib.suppress(StoreUnavailable):
            claimed = await store.claim(a_claim(limit=3))
        spoiler.store.quarantine.records = records
        found = await store.get(ids([first, bad, second]))
        held = [task for task in found if task is not None and task.state is State.EXECUTING]
        assert ids(held) == ids(claimed)
        assert ids(claimed + await store.claim(a_claim(limit=3))) == ids([first, second])
        await spoiler.assert_aside(bad)

    async def test_damage_holds_up_no_concurrency_key(self, store: Store, spoiler: Spoiler) -> None:
        """Q1, Q2: at the head of a key."""
        bad, good, other = (a_task(concurrency_key=key) for key in ("a", "a", "b"))
        await add(store, bad, good, other)
        await spoiler.spoil(bad)
        # While it was not known for what it is, it may have held its key.
        assert sorted(ids(await store.claim(a_claim(limit=3)))) == [good.id, other.id]
        await spoiler.assert_aside(bad)

    async def test_damage_holds_no_place_of_a_limit(self, store: Store, spoiler: Spoiler) -> None:
        """Q2, L1: neither of its queue nor of its key, once the sweep has met it."""
        limits = Limits(queue=Limit(running=1))
        bad, good = a_task(concurrency_key="a"), a_task(concurrency_key="a")
        await add(store, bad, good)
        assert ids(await store.claim(a_claim(limit=2, limits=limits))) == [bad.id]
        assert await store.claim(a_claim(limit=2, limits=limits)) == []
        await spoiler.spoil(bad)
        assert await store.due(NOW + LEASE, 10) == []
        await spoiler.assert_aside(bad)
        assert ids(await store.claim(a_claim(limit=2, limits=limits, now=NOW + LEASE))) == [good.id]

    async def test_the_sweep_passes_over_damage(self, store: Store, spoiler: Spoiler) -> None:
        """Q1, Q2, Q3: of what is executing and of what is scheduled, and answers as many as it is asked for."""
        executing = some_tasks(4)
        await add(store, *executing)
        await store.claim(a_claim(limit=4))
        scheduled = [a_task(state=State.SCHEDULED, ready_at=NOW + MINUTE + number) for number in range(4)]
        await add(store, *scheduled)
        await spoiler.spoil(executing[0], executing[2], scheduled[0], scheduled[3])
        assert ids(await store.due(LATER, 3)) == [executing[1].id, executing[3].id, scheduled[1].id]
        assert ids(await store.due(LATER, 10)) == [executing[1].id, executing[3].id, scheduled[1].id, scheduled[2].id]
        await spoiler.assert_aside(executing[0], executing[2], scheduled[0], scheduled[3])

    async def test_leases_beside_damage_are_cut(self, store: Store, spoiler: Spoiler) -> None:
        """Q1: by a clock that has gone back."""
        await add(store, *some_tasks(3))
        tasks = await store.claim(a_claim(limit=3, now=LATER))
        await spoiler.spoil(tasks[1])
        assert await store.curtail(lease=LEASE, limit=10, now=NOW) in (2, 3)
        assert ids(await store.due(NOW + LEASE, 10)) == [tasks[0].id, tasks[2].id]
        await store.due(LATER + LEASE, 10)
        await spoiler.assert_aside(tasks[1])

    async def test_a_listing_passes_over_damage(self, store: Store, spoiler: Spoiler) -> None:
        """Q1, Q2: and is as long as if it had not been there."""
        tasks = [*some_tasks(4), *[a_task(state=State.FAILED) for _ in range(4)]]
        await add(store, *tasks)
        await spoiler.spoil(tasks[1], tasks[5])
        if isinstance(store, Lagging):
            # It lists what it last heard of a task, until someone has looked at the task itself.
            assert await store.get([tasks[1].id, tasks[5].id]) == [None, None]
        assert ids(await store.find(Filter(), limit=4, newest_first=False)) == ids(
            [tasks[0], tasks[2], tasks[3], tasks[4]]
        )
        failed = await store.find(Filter(states=frozenset({State.FAILED})), limit=10)
        assert ids(failed) == ids([tasks[7], tasks[6], tasks[4]])
        await spoiler.assert_aside(tasks[1], tasks[5])

    async def test_a_damaged_task_is_not_found_by_its_id(self, store: Store, spoiler: Spoiler) -> None:
        """Q1, Q2: whatever state it was in; the others are."""
        tasks = [a_task(state=state) for state in State if state is not State.EXECUTING]
        await add(store, *tasks)
        executing = await claim_one(store)
        good = some_tasks(2)
        await add(store, *good)
        bad = [executing if task.id == executing.id else task for task in tasks]
        await spoiler.spoil(*bad)
        assert await store.get(ids([good[0], *bad, good[1]])) == [good[0], *[None] * len(bad), good[1]]
        await spoiler.assert_aside(*bad)

    async def test_a_holder_of_a_damaged_task_is_not_stopped(self, store: Store, spoiler: Spoiler) -> None:
        """Q1: its word is taken or refused, as that of a holder whose task is gone; the others' are taken."""
        await add(store, *some_tasks(4))
        first, second, *good = await store.claim(a_claim(limit=4))
        spoiler.store.quarantine.observer = lambda _: None
        await spoiler.spoil(first, second)
        beats = [a_beat(task) for task in (good[0], first, good[1])]
        pulses = await store.extend(beats, lease=LEASE, now=NOW, grace=0)
        assert pulses in ([Pulse.HELD, Pulse.LOST, Pulse.HELD], [Pulse.HELD] * 3)
        changes = [a_settle(task, DONE) for task in (good[0], first, second, good[1])]
        verdicts = await store.apply(changes)
        assert (verdicts[0], verdicts[3]) == (Verdict.APPLIED, Verdict.APPLIED)
        assert {verdicts[1], verdicts[2]} <= {Verdict.APPLIED, Verdict.MISSING}
        found = await store.get(ids([first, second]))
        kept = [each.name for each in await store.scan(QUARANTINE)]
        for task, stored in zip((first, second), found, strict=True):
            assert (stored is None) == (f"task/{task.id}" in kept)
        await assert_tallied(store)

    async def test_a_damaged_task_that_is_to_be_removed_is_gone(self, store: Store, spoiler: Spoiler) -> None:
        """Q1, Q2: removed or set aside, and its key is free."""
        bad, good = a_task(key="one", state=State.FAILED), a_task(state=State.FAILED)
        await add(store, bad, good)
        await spoiler.spoil(bad)
        verdicts = await store.apply([a_removal(bad), a_removal(good)])
        assert verdicts[1] is Verdict.APPLIED
        assert await store.get([bad.id, good.id]) == [None, None]
        await assert_tallied(store)
        assert await store.add([a_task(key="one")], now=NOW, bounds={}) == [Added()]

    async def test_the_key_of_a_damaged_task_is_free(self, store: Store, spoiler: Spoiler) -> None:
        """Q2."""
        bad = a_task(key="one")
        await add(store, bad)
        await spoiler.spoil(bad)
        assert await store.claim(a_claim()) == []
        await spoiler.assert_aside(bad)
        again = a_task(key="one")
        await add(store, again)
        assert await store.add([a_task(key="one")], now=NOW, bounds={}) == [KeyHeld(again.id)]

    async def test_the_place_of_a_damaged_task_in_its_queue_is_free(self, store: Store, spoiler: Spoiler) -> None:
        """Q2, A5."""
        bad, good = some_tasks(2)
        await add(store, bad, good)
        await spoiler.spoil(bad)
        assert await read(store, bad) is None
        assert await store.add([a_task()], now=NOW, bounds={"default": 2}) == [Added()]

    async def test_those_that_wait_for_a_damaged_task_are_told(self, store: Store, spoiler: Spoiler) -> None:
        """Q2, D2: it has ended, other than completed."""
        bad, other = some_tasks(2)
        await add(store, bad, other)
        alone, both = a_dependent(bad), a_dependent(bad, other)
        await add(store, alone, both)
        await spoiler.spoil(bad)
        assert ids(await store.claim(a_claim(limit=5))) == [other.id]
        await spoiler.assert_aside(bad)
        stored = [task for task in await store.get([alone.id, both.id]) if task is not None]
        assert [(task.status.pending, task.status.unmet) for task in stored] == [(0, 1), (1, 1)]
        assert ids(await store.due(AT_ONCE, 5)) == [alone.id]

    async def test_a_damaged_task_cannot_be_waited_for(self, store: Store, spoiler: Spoiler) -> None:
        """Q1: it is as unknown as one that never was, by the next call at the latest."""
        bad = a_task()
        await add(store, bad)
        await spoiler.spoil(bad)
        dependent = a_dependent(bad)
        if await store.add([dependent], now=NOW, bounds={}) == [Added()]:
            # Its bytes were not looked at: it ends for those who wait for it when they are.
            assert await store.claim(a_claim()) == []
            assert ids(await store.due(AT_ONCE, 5)) == [dependent.id]
        else:
            assert await store.add([dependent], now=NOW, bounds={}) == [Missing(bad.id)]
        await spoiler.assert_aside(bad)

    async def test_a_damaged_dependent_holds_up_nobody(self, store: Store, spoiler: Spoiler) -> None:
        """Q1, Q2: what it waits for ends, and the others that wait for that are told."""
        parent = a_task()
        bad, good = a_dependent(parent), a_dependent(parent)
        await add(store, parent)
        await add(store, bad, good)
        held = await claim_one(store)
        await spoiler.spoil(bad)
        assert await store.apply([a_settle(held, DONE)]) == [Verdict.RELEASED]
        assert ids(await store.due(AT_ONCE, 5)) == [good.id]
        await spoiler.assert_aside(bad)

    async def test_what_was_set_aside_is_met_no_more(self, store: Store, spoiler: Spoiler) -> None:
        """Q1: however often it is looked for."""
        bad, good = some_tasks(2)
        await add(store, bad, good)
        await spoiler.spoil(bad)
        assert await read(store, bad) is None
        assert await read(store, bad) is None
        assert ids(await contents(store)) == [good.id]
        await spoiler.assert_aside(bad)

    @pytest.mark.parametrize("part", ["spec", "status"])
    async def test_damage_that_others_mend_before_it_is_removed_is_left(
        self, store: Store, vandal: Vandal, part: Part
    ) -> None:
        """Q1, Q3: only the bytes that were read are removed, and else nothing is kept or told."""
        assert isinstance(store, Quarantining)
        told: list[Quarantined] = []
        store.quarantine.observer = told.append
        task = a_task(key="one")
        await add(store, task)
        await vandal(task.id, part, flipped)
        mended: list[TaskId] = []

        async def mend() -> None:
            mended.append(task.id)
            await vandal(task.id, part, flipped)

        store.quarantine.records = InterruptedRecords(store.quarantine.records, mend)
        await store.get([task.id])
        assert mended == [task.id]
        assert await store.scan(QUARANTINE) == []
        assert told == []
        assert await read(store, task) == task
        await assert_tallied(store)
        assert ids(await store.claim(a_claim())) == [task.id]

    async def test_what_cannot_be_decoded_is_not_put_back(self, store: Store, spoiler: Spoiler) -> None:
        """Q5: it stays where it is kept."""
        bad = a_task(key="one", tags=("a",), parameters=b'{"a": 1}')
        failed = a_task(state=State.FAILED)
        await add(store, bad, failed)
        await spoiler.spoil(bad, failed)
        assert await store.get([bad.id, failed.id]) == [None, None]
        for quarantined in [] if self.remembered else await records_kept(store):
            with pytest.raises(RestoreRefused, match=f"task {quarantined.name} cannot be restored: its bytes"):
                await restore(store, quarantined, LATER, Rules())
        await spoiler.assert_aside(bad, failed)

    @pytest.mark.parametrize("part", ["spec", "status"])
    async def test_what_was_mended_is_put_back(self, store: Store, vandal: Vandal, part: Part) -> None:
        """Q5: once, with all that it is; what was executing waits again."""
        held, waits = a_task(key="one", tags=("a",), parameters=b'{"a": 1}'), a_task(concurrency_key="c")
        await add(store, held)
        await claim_one(store)
        ended = a_task(state=State.DEAD_LETTER)
        await add(store, waits, ended)
        before = [task for task in await store.get(ids([held, waits, ended])) if task is not None]
        for task in before:
            await vandal(task.id, part, flipped)
        assert await store.get(ids(before)) == [None] * 3
        kept = {each.name: each for each in await records_kept(store)}
        for task in before:
            mended = replace(kept[task.id], parts=vandal.mended(kept[task.id].parts, part, flipped))
            for _ in range(2):
                await restore(store, mended, LATER, Rules())
            expected = Task(task.spec, rebuilt(task, LATER, rules=Rules()))
            assert await read(store, task) == expected
        await assert_tallied(store)
        assert await store.add([a_task(key="one")], now=NOW, bounds={}) == [KeyHeld(held.id)]
        claimed = await store.claim(a_claim(limit=5, now=LATER))
        assert sorted(ids(claimed)) == sorted([held.id, waits.id])

    # Q4: a newer format

    async def test_a_task_of_a_newer_format_stays_where_it_is(self, store: Store, vandal: Vandal) -> None:
        """Q4: nobody claims, lists, expires, changes or removes it; the others are not held up."""
        assert isinstance(store, Quarantining)
        told: list[Quarantined] = []
        store.quarantine.observer = told.append
        queued, scheduled = (a_task(requires=[capability(2)], state=state) for state in (State.QUEUED, State.SCHEDULED))
        good, due = a_task(), a_task(state=State.SCHEDULED, ready_at=LATER)
        await add(store, queued, scheduled, good, due)
        before = await store.tally()
        for task in (queued, scheduled):
            await vandal(task.id, "status", newer, tidy=True)
        assert await store.get([queued.id, scheduled.id]) == [None, None]
        assert ids(await store.due(LATER, 1)) == [due.id]
        assert ids(await store.find(Filter(), limit=10, newest_first=False)) == [good.id, due.id]
        assert await store.apply([a_removal(queued), a_decision(scheduled, AlarmRang())]) in (
            [Verdict.MISSING] * 2,
            [Verdict.STALE] * 2,
        )
        assert await store.tally() == before
        assert ids(await store.claim(a_claim(limit=5))) == [good.id]
        assert await store.claim(a_claim(limit=5)) == []
        assert await store.scan(QUARANTINE) == []
        assert sorted(each.name for each in told) == [queued.id, scheduled.id]
        assert {each.fault for each in told} == {Fault.NEWER}
        await vandal(queued.id, "status", lambda packed: packed[2:], tidy=True)
        await vandal(scheduled.id, "status", lambda packed: packed[2:], tidy=True)
        assert await store.get([queued.id, scheduled.id]) == [queued, scheduled]

    async def test_leases_of_a_newer_format_are_not_cut_again_and_again(self, store: Store, vandal: Vandal) -> None:
        """Q4, T2: they are counted once at most, or a sweep would never see an end of them."""
        await add(store, a_task(requires=[capability(2)]), a_task())
        claimed = await store.claim(a_claim(limit=2, now=LATER, capabilities=[capability(2)]))
        ahead = next(task for task in claimed if task.spec.requires)
        await vandal(ahead.id, "status", newer, tidy=True)
        assert await store.curtail(lease=LEASE, limit=10, now=NOW) in (1, 2)
        assert await store.curtail(lease=LEASE, limit=10, now=NOW) == 0
        await vandal(ahead.id, "status", lambda packed: packed[2:], tidy=True)
        assert await read(store, ahead) is not None
