"""Clauses A1 to A4, and receipts: what is stored, what is stored already, and idempotency keys."""

from __future__ import annotations

import asyncio

from fairlead.core.events import Completed
from fairlead.core.instant import DAY, LATEST, SECOND
from fairlead.core.retry import Backoff, RetryRule
from fairlead.core.task import Entry, Failure, Priority, Progress, Reason, Spec, State, Status, Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Added, Filter, KeyHeld, Known
from fairlead.testing.builders import NOW, WORKER, a_claim, a_removal, a_spec, a_status, a_task, an_id, some_tasks
from fairlead.testing.steps import add, apply_one, claim_one, contents, ids, read, settle

ODD_TEXT = "quote ' \" back\\slash \x00 nul \n newline % {brace} é ß 漢字 🚢 \u202e \ufeff \u2028"
ODD_BYTES = (
    b"{}",
    b"",
    b'{"z":1,"a":2,"a":3}',
    b'{ "space" :  [ ] , "empty": {} }',
    b'{"big":123456789012345678901234567890,"beyond":9007199254740993}',
    b'{"digits":1.10,"exponent":1E+2,"tiny":5e-324,"minus":-0.0}',
    b'{"escaped":"\\u0000\\ud83d\\ude00\\/"}',
    '{"text":"é ß 漢字 🚢"}'.encode(),
    b'{"raw":"\x00\x01\x7f\x80\xff"}',
    bytes(range(256)),
    b"\r\n\t ",
)
LARGE = b'{"blob":"' + b"\x00\xffx'\"" * 40_960 + b'"}'


class AddingClauses:
    """What `add` stores."""

    async def test_retry_rules_come_back_as_given_and_in_their_order(self, store: Store) -> None:
        """A1: a field that holds one of two kinds of value."""
        rules = {
            "z.Error": RetryRule(max_retries=3, backoff=Backoff(initial=1, factor=1.5)),
            "AError": RetryRule(reject=True),
            "*": RetryRule(backoff=Backoff(jitter=0.0)),
        }
        task = Task(a_spec(backoff=rules), a_status())
        await store.add([task], now=NOW, bounds={})
        (stored,) = await store.get([task.id])
        assert stored == task
        assert isinstance(stored.spec.backoff, dict) and list(stored.spec.backoff) == list(rules)

    async def test_a_stored_task_comes_back_exactly_as_given(self, store: Store) -> None:
        """A1: every field."""
        spec = Spec(
            id=an_id("ships"),
            queue="ships",
            type="sail.around:the-world_1",
            parameters=b'{"knots": 7.0}',
            requires=("gpu", "x-ray"),
            created_at=NOW - 7,
            timeout=11 * SECOND,
            max_retries=9,
            max_crashes=8,
            backoff=Backoff(initial=3, factor=1.7, ceiling=5, jitter=0.3),
            idempotency_key="a key",
            key_until=NOW + DAY,
            tenant="the tenant",
            tags=("z", "a", "z"),
            trace="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        )
        status = Status(
            state=State.SCHEDULED,
            priority=Priority.HIGH,
            ready_at=NOW + 5,
            timeout=13 * SECOND,
            version=4,
            beats=6,
            attempts=3,
            retries=2,
            crashes=1,
            alarm=NOW + 5,
            reason=Reason.WORKER_LOST,
            failure=Failure(type="WorkerLost", message="gone", traceback="line 1\nline 2"),
            result=b"[1, 2]",
            progress=Progress(percent=33.3, message="a third", at=NOW - 1),
            settled="token:complete:00000000",
            history=(
                Entry(at=NOW - 9, state=State.QUEUED, reason=Reason.SUBMITTED),
                Entry(
                    at=NOW - 8,
                    state=State.SCHEDULED,
                    reason=Reason.WORKER_LOST,
                    attempt=3,
                    worker=WORKER,
                    started_at=NOW - 9,
                    failure=Failure(type="WorkerLost"),
                ),
            ),
        )
        task = Task(spec, status)
        await add(store, task)
        assert await read(store, task) == task
        assert await store.find(Filter(), limit=10) == [task]
        assert await store.due(NOW + 5, 10) == [task]

    async def test_parameters_survive_byte_for_byte(self, store: Store) -> None:
        """A1: never decoded, never encoded again, from the submitter to the handler."""
        tasks = [a_task(parameters=parameters) for parameters in ODD_BYTES]
        await add(store, *tasks)
        assert await contents(store) == tasks
        claimed = await store.claim(a_claim(limit=len(tasks)))
        assert [task.spec.parameters for task in claimed] == list(ODD_BYTES)

    async def test_large_parameters_survive(self, store: Store) -> None:
        """A1: 200 KB of bytes that are no text."""
        task = a_task(parameters=LARGE)
        await add(store, task)
        assert await read(store, task) == task
        assert (await claim_one(store)).spec.parameters == LARGE

    async def test_results_survive_byte_for_byte(self, store: Store) -> None:
        """A1: a result is as opaque as parameters are."""
        results = (*ODD_BYTES, LARGE, b"null", None)
        await add(store, *some_tasks(len(results)))
        claimed = await store.claim(a_claim(limit=len(results)))
        settled = [await settle(store, task, Completed(result)) for task, result in zip(claimed, results, strict=True)]
        assert [task.status.result for task in settled] == list(results)
        assert await store.get(ids(claimed)) == settled

    async def test_odd_text_survives(self, store: Store) -> None:
        """A1: text that a submitter or an error message may well contain."""
        failure = Failure(type="Ünicode\x00Error", message=ODD_TEXT, traceback=ODD_TEXT * 50)
        task = Task(
            a_spec(key=ODD_TEXT, tenant=ODD_TEXT, trace=ODD_TEXT), a_status(reason=Reason.FAILED, failure=failure)
        )
        await add(store, task)
        assert await read(store, task) == task
        assert (await claim_one(store)).status.failure == failure

    async def test_names_with_every_allowed_character_survive(self, store: Store) -> None:
        """A1: names may hold separators, differ in case only, and be 200 characters long."""
        names = ("a", "A", "a:b", "a.b", "a-b", "a_b", ":", "..", "--", "0", "a" * 200, "a:" * 100)
        tasks = [a_task(queue=name, type=name, requires=(name, "a:a"), tags=(name,)) for name in names]
        await add(store, *tasks)
        assert await contents(store) == tasks
        for name, task in zip(names, tasks, strict=True):
            claimed = await store.claim(a_claim(name, limit=9, capabilities=(name, "a:a"), types=(name,)))
            assert ids(claimed) == [task.id]

    async def test_the_latest_and_the_earliest_instants_survive(self, store: Store) -> None:
        """A1: instants are exact up to 2^53."""
        early = a_task(state=State.SCHEDULED, ready_at=0, created_at=0)
        late = a_task(state=State.SCHEDULED, ready_at=LATEST, created_at=LATEST - 1)
        later = a_task(ready_at=LATEST, priority=Priority.LOW)
        await add(store, early, late, later)
        assert await contents(store) == [early, late, later]
        assert await store.due(LATEST - 1, 10) == [early]
        assert await store.due(LATEST, 10) == [early, late]

    async def test_a_task_that_has_ended_can_be_stored(self, store: Store) -> None:
        """A1: whatever its state, but for executing."""
        tasks = [a_task(state=state) for state in State if state.ended]
        await add(store, *tasks)
        assert await contents(store) == tasks
        assert await store.claim(a_claim(limit=10)) == []

    async def test_adding_nothing_answers_nothing(self, store: Store) -> None:
        """A1: an empty batch."""
        assert await store.add([], now=NOW, bounds={}) == []
        assert await store.add([], now=NOW, bounds={"default": 1}) == []
        assert await contents(store) == []

    async def test_a_large_batch_is_stored_whole(self, store: Store) -> None:
        """A1: 1,500 tasks in one call, over many queues, given newest first."""
        tasks = [a_task(queue=f"queue-{number % 7}", parameters=b"[%d]" % number) for number in range(1_500)]
        assert await store.add(tasks[::-1], now=NOW, bounds={}) == [Added()] * 1_500
        assert await contents(store) == tasks

    async def test_adding_a_stored_id_changes_nothing(self, store: Store) -> None:
        """A2: in a later call."""
        task = a_task(parameters=b'{"first": true}')
        other = a_task(id=task.id, parameters=b'{"second": true}', priority=Priority.CRITICAL, tags=("x",))
        await add(store, task)
        assert await store.add([other], now=NOW + 1, bounds={}) == [Known()]
        assert await contents(store) == [task]
        assert ids(await store.claim(a_claim(limit=5))) == [task.id]

    async def test_an_id_twice_in_one_call_is_stored_once(self, store: Store) -> None:
        """A2: within one call."""
        task, between = a_task(parameters=b'{"first": true}'), a_task()
        twin = a_task(id=task.id, parameters=b'{"second": true}', state=State.SCHEDULED, ready_at=NOW + 1)
        receipts = await store.add([task, between, twin, task], now=NOW, bounds={})
        assert receipts == [Added(), Added(), Known(), Known()]
        assert await contents(store) == [task, between]
        assert await store.due(NOW + DAY, 10) == []

    async def test_adding_a_task_that_has_moved_on_changes_nothing(self, store: Store) -> None:
        """A2: a repeated submit must not set a running or ended task back."""
        first, second = a_task(), a_task()
        await add(store, first, second)
        claimed = await store.claim(a_claim(limit=2))
        ended = await settle(store, claimed[0], Completed(b"1"))
        assert await store.add([first, second], now=NOW, bounds={}) == [Known(), Known()]
        assert await contents(store) == [ended, claimed[1]]

    async def test_a_stored_id_is_known_before_its_key_is_looked_at(self, store: Store) -> None:
        """A2: a repeated submit is answered as itself, not as held by itself."""
        task = a_task(key="once")
        await add(store, task)
        assert await store.add([task], now=NOW, bounds={}) == [Known()]
        assert await store.add([task], now=NOW + 2 * DAY, bounds={}) == [Known()]

    async def test_the_store_tells_its_own_time_or_none(self, store: Store) -> None:
        """A1: an instant like any other."""
        time = await store.time()
        assert time is None or 0 < time < LATEST


class KeyClauses:
    """What an idempotency key does."""

    async def test_a_held_key_answers_with_its_holder(self, store: Store) -> None:
        """A3: nothing is stored."""
        holder, late = a_task(key="once"), a_task(key="once")
        await add(store, holder)
        assert await store.add([late], now=NOW, bounds={}) == [KeyHeld(holder.id)]
        assert await read(store, late) is None
        assert await contents(store) == [holder]
        assert ids(await store.claim(a_claim(limit=5))) == [holder.id]

    async def test_a_key_twice_in_one_call_is_taken_once(self, store: Store) -> None:
        """A3: the first of them takes it."""
        tasks = [a_task(key="once"), a_task(), a_task(key="once"), a_task(key="twice"), a_task(key="once")]
        held = KeyHeld(tasks[0].id)
        assert await store.add(tasks, now=NOW, bounds={}) == [Added(), Added(), held, Added(), held]
        assert await contents(store) == [tasks[0], tasks[1], tasks[3]]

    async def test_a_refused_task_may_be_added_again_when_the_key_is_free(self, store: Store) -> None:
        """A3: what is answered KeyHeld leaves no trace, not even its id."""
        holder, late = a_task(key="once"), a_task(key="once")
        await store.add([holder, late], now=NOW, bounds={})
        await apply_one(store, a_removal(holder))
        assert await store.add([late], now=NOW, bounds={}) == [Added()]

    async def test_a_key_is_held_whatever_the_state_of_its_holder(self, store: Store) -> None:
        """A3: scheduled, executing and ended tasks hold their keys as queued ones do."""
        waiting = a_task(key="scheduled", state=State.SCHEDULED, ready_at=NOW + SECOND)
        await add(store, waiting, a_task(key="executing"), a_task(key="ended"))
        claimed = {task.spec.idempotency_key: task for task in await store.claim(a_claim(limit=2))}
        await settle(store, claimed["ended"], Completed())
        receipts = await store.add(
            [a_task(key="scheduled"), a_task(key="executing"), a_task(key="ended")], now=NOW, bounds={}
        )
        assert receipts == [KeyHeld(waiting.id), KeyHeld(claimed["executing"].id), KeyHeld(claimed["ended"].id)]

    async def test_the_holder_of_a_key_is_told(self, store: Store) -> None:
        """A7: by queue and key, until the first moment at which the key is free; and nothing changes."""
        holder = a_task(queue="a", key="once", key_until=NOW + SECOND)
        await add(store, holder, a_task(queue="b"))
        assert await store.holder("a", "once", now=NOW) == holder.id
        assert await store.holder("a", "once", now=NOW + SECOND - 1) == holder.id
        assert await store.holder("a", "once", now=NOW + SECOND) is None
        assert await store.holder("b", "once", now=NOW) is None
        assert await store.holder("a", "twice", now=NOW) is None
        await apply_one(store, a_removal(holder))
        assert await store.holder("a", "once", now=NOW) is None

    async def test_the_holder_of_a_key_is_told_by_the_store_s_own_clock(self, store: Store) -> None:
        """A7, T1."""
        await add(store, holder := a_task(key="held", key_until=LATEST), a_task(key="free", key_until=1))
        assert await store.holder(holder.spec.queue, "held") == holder.id
        assert await store.holder(holder.spec.queue, "free") is None

    async def test_keys_of_different_queues_are_different(self, store: Store) -> None:
        """A3: a key is (queue, idempotency_key), whatever characters either has."""
        tasks = [
            a_task(queue="a", key="b:c"),
            a_task(queue="a:b", key="c"),
            a_task(queue="a", key="b"),
            a_task(queue="a", key="B"),
            a_task(queue="A", key="b"),
            a_task(queue="a", key=" b"),
            a_task(queue="a", key="b "),
            a_task(queue="a", key="b\x00"),
            a_task(queue="a", key=ODD_TEXT),
            a_task(queue="a", key="é"),
            a_task(queue="a", key="e\u0301"),
            a_task(queue="a", key="k" * 500),
        ]
        await add(store, *tasks)
        again = [a_task(queue=task.spec.queue, key=task.spec.idempotency_key) for task in tasks]
        assert await store.add(again, now=NOW, bounds={}) == [KeyHeld(task.id) for task in tasks]

    async def test_concurrent_adds_of_one_key_store_one_task(self, store: Store) -> None:
        """A3: exactly one of them is Added, and all others name it."""
        tasks = [a_task(key="once") for _ in range(12)]
        answers = await asyncio.gather(*(store.add([task], now=NOW, bounds={}) for task in tasks))
        stored = await contents(store)
        assert len(stored) == 1
        holder = stored[0].id
        expected = [[Added()] if task.id == holder else [KeyHeld(holder)] for task in tasks]
        assert list(answers) == expected

    async def test_a_key_is_held_until_its_end_and_not_at_it(self, store: Store) -> None:
        """A4: `key_until` is the first moment at which the key is free."""
        holder = a_task(key="once", key_until=NOW + SECOND)
        await add(store, holder)
        late = a_task(key="once", key_until=NOW + DAY)
        assert await store.add([late], now=NOW + SECOND - 1, bounds={}) == [KeyHeld(holder.id)]
        assert await store.add([late], now=NOW + SECOND, bounds={}) == [Added()]

    async def test_taking_over_a_key_leaves_its_old_holder_alone(self, store: Store) -> None:
        """A4: the old task is still there and still runs."""
        old = a_task(key="once", key_until=NOW + SECOND)
        new = a_task(key="once", key_until=NOW + DAY)
        await add(store, old)
        assert await store.add([new], now=NOW + SECOND, bounds={}) == [Added()]
        assert await contents(store) == [old, new]
        assert await store.add([a_task(key="once")], now=NOW + SECOND, bounds={}) == [KeyHeld(new.id)]
        assert await store.add([old], now=NOW + SECOND, bounds={}) == [Known()]
        assert ids(await store.claim(a_claim(limit=5))) == [old.id, new.id]

    async def test_a_key_taken_over_is_held_at_once(self, store: Store) -> None:
        """A4: by the first of several takers in one call."""
        old = a_task(key="once", key_until=NOW + SECOND)
        await add(store, old)
        first, second = a_task(key="once"), a_task(key="once")
        receipts = await store.add([first, second], now=NOW + SECOND, bounds={})
        assert receipts == [Added(), KeyHeld(first.id)]

    async def test_removing_an_old_holder_does_not_free_the_key(self, store: Store) -> None:
        """A4: the key is the new holder's."""
        old = a_task(key="once", key_until=NOW + SECOND)
        new = a_task(key="once", key_until=NOW + DAY)
        await add(store, old)
        await store.add([new], now=NOW + SECOND, bounds={})
        await apply_one(store, a_removal(old))
        assert await store.add([a_task(key="once")], now=NOW + SECOND, bounds={}) == [KeyHeld(new.id)]

    async def test_removing_the_holder_frees_its_key(self, store: Store) -> None:
        """A4: at once, long before `key_until`."""
        holder, next_holder = a_task(key="once"), a_task(key="once")
        await add(store, holder)
        await apply_one(store, a_removal(holder))
        assert await store.add([next_holder], now=NOW, bounds={}) == [Added()]
        assert await store.add([a_task(key="once")], now=NOW, bounds={}) == [KeyHeld(next_holder.id)]

    async def test_an_expired_key_stays_free_while_its_holder_runs(self, store: Store) -> None:
        """A4: claiming and settling the old holder does not renew its key."""
        old = a_task(key="once", key_until=NOW + SECOND)
        await add(store, old)
        ended = await settle(store, await claim_one(store), Completed())
        new = a_task(key="once", key_until=NOW + DAY)
        assert await store.add([new], now=NOW + SECOND, bounds={}) == [Added()]
        assert await contents(store) == [ended, new]
