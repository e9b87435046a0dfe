"""The jobs that crews are set to in races."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct

from fairlead.core.events import AlarmRang, CancelAsked, CancelConfirmed, Completed, Failed, HandedBack, Outcome
from fairlead.core.identity import LeaseToken, TaskId, WorkerId
from fairlead.core.instant import DAY, SECOND, Instant
from fairlead.core.queues.limits import Limits
from fairlead.core.task import Fair, State, Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Added, Change, Claim, KeyHeld, Known, Receipt, Verdict
from fairlead.testing.builders import (
    GRACE,
    NOW,
    a_beat,
    a_claim,
    a_decision,
    a_dependent,
    a_failure,
    a_settle,
    a_spec,
    a_status,
    a_token,
    an_id,
    held,
)
from fairlead.testing.steps import contents

Thing = TypeVar("Thing")

PATIENCE = 60.0
"""How long a job goes on before it gives up, in seconds."""
_UNREST = 60
"""How many times a sweeper takes tasks from workers that are alive."""


class Accepted(Struct, frozen=True):
    """A claim or change that the store accepted: the task is at this version since."""

    id: TaskId
    version: int
    ended: bool


def a_numbered_task(
    number: int,
    *,
    key: str | None = None,
    queue: str = "default",
    concurrency_key: str | None = None,
    fair: str | None = None,
) -> Task:
    """The same task in every process: ready, and with retries enough for any race."""
    spec = a_spec(
        id=an_id(queue, number),
        queue=queue,
        max_retries=10_000,
        max_crashes=10_000,
        key=key,
        concurrency_key=concurrency_key,
        fair=None if fair is None else Fair(fair),
    )
    return Task(spec, a_status())


def number_of(task: Task) -> int:
    """The number a task was made with."""
    return task_id_number(task.id)


def task_id_number(task_id: TaskId) -> int:
    """The number that a task of this id was made with."""
    return int(task_id[20:], 16)


async def claim_until_empty(store: Store, number: int, limit: int, limits: Limits | None = None) -> list[TaskId]:
    """The ids of all tasks that this member could get hold of."""
    taken: list[TaskId] = []
    while tasks := await store.claim(_claim(number, limit, limits)):
        assert len(tasks) <= limit
        taken += [task.id for task in tasks]
    return taken


async def work_under_limits(store: Store, number: int, count: int) -> list[int]:
    """Add tasks of a few concurrency keys, one by one, and work until all are done; how many of a key ran each time."""
    seen: list[int] = []
    left = [a_numbered_task(number * 1_000 + each, concurrency_key=f"key {each % 3}") for each in range(count)]
    deadline = time.monotonic() + PATIENCE
    while left or await _unfinished(store, deadline):
        if left:
            await store.add([left.pop()], now=NOW, bounds={})
        for task in await store.claim(_claim(number, 2)):
            used = await store.usage("default", task.spec.type, task.spec.concurrency_key)
            seen.append(used.key.running)
            await store.apply([a_settle(task, Completed())])
    return seen


async def add_to_a_line(store: Store, number: int, count: int) -> None:
    """Add fair tasks of one key, in batches of several sizes."""
    tasks = [a_numbered_task(number * 1_000 + at, fair="A") for at in range(count)]
    at = 0
    while at < count:
        size = 1 + (at + number) % 4
        await store.add(tasks[at : at + size], now=NOW, bounds={})
        at += size


async def work_on_a_line(store: Store, number: int, count: int) -> None:
    """Add fair tasks of several keys, one by one, and work until all are done, handing some back."""
    left = [a_numbered_task(number * 1_000 + each, fair=f"key {each % 5}") for each in range(count)]
    deadline = time.monotonic() + PATIENCE
    while left or await _unfinished(store, deadline):
        if left:
            await store.add([left.pop()], now=NOW, bounds={})
        for task in await store.claim(_claim(number, 3)):
            back = task.status.attempts == 1 and number_of(task) % 4 == 0
            await store.apply([a_settle(task, HandedBack() if back else Completed())])


async def add_with_keys(store: Store, number: int, keys: int) -> list[tuple[TaskId, Receipt]]:
    """Add a task of one's own for each key."""
    answers: list[tuple[TaskId, Receipt]] = []
    for key in _shuffled(number, range(keys)):
        task = a_numbered_task(number * 1_000 + key, key=f"key-{key}")
        (receipt,) = await store.add([task], now=NOW, bounds={})
        answers.append((task.id, receipt))
    return answers


async def add_same_ids(store: Store, number: int, count: int) -> dict[TaskId, bool]:
    """Add the tasks that everyone adds; whether each was Added."""
    tasks = [a_numbered_task(at) for at in _shuffled(number, range(count))]
    receipts: list[Receipt] = []
    for at in range(0, count, 5):
        receipts += await store.add(tasks[at : at + 5], now=NOW, bounds={})
    assert all(isinstance(receipt, Added | Known) for receipt in receipts)
    return {task.id: isinstance(receipt, Added) for task, receipt in zip(tasks, receipts, strict=True)}


async def add_up_to_bound(store: Store, number: int, count: int, bound: int) -> int:
    """How many of one's own tasks were let in, in batches of several sizes."""
    tasks = [a_numbered_task(number * 1_000 + at) for at in range(count)]
    added = at = 0
    while at < count:
        size = 1 + (at + number) % 4
        receipts = await store.add(tasks[at : at + size], now=NOW, bounds={"default": bound})
        added += receipts.count(Added())
        at += size
    return added


async def count_up(store: Store, number: int, times: int) -> int:
    """Add one to a record as many times; how often someone else was faster."""
    beaten = 0
    for _ in range(times):
        while True:
            records = await store.scan("counter")
            value, version = (int(records[0].value), records[0].version) if records else (0, 0)
            if await store.put("counter", "one", b"%d" % (value + 1), expected=version) is not None:
                break
            beaten += 1
    return beaten


async def feed_and_follow(store: Store, number: int, members: int, count: int) -> list[bytes]:
    """Publish so many values, some by one and some together; the first member reads what all others publish."""
    if number > 0:
        for at in range(0, count, 5):
            values = [b"%d %d" % (number, each) for each in range(at, at + 5)]
            await store.publish(values[:1], now=NOW, keep=10_000)
            await store.publish(values[1:], now=NOW, keep=10_000)
        await store.put("done", str(number), b"")
        return []
    read: list[bytes] = []
    position, done, deadline = None, False, time.monotonic() + PATIENCE
    while True:
        entries = await store.feed(position, 7)
        read += [entry.value for entry in entries]
        position = entries[-1].position if entries else position
        if done and not entries:
            return read
        assert time.monotonic() < deadline, f"the publishers are not done after {PATIENCE:g} s"
        done = len(await store.scan("done")) == members - 1


async def sweep_the_same(store: Store, number: int, now: Instant) -> list[Accepted]:
    """Look at all alarms at once, then act on each."""
    tasks = _shuffled(number, await store.due(now, 1_000))
    return await _apply(store, [a_decision(task, AlarmRang(), now) for task in tasks])


async def end_and_depend(store: Store, number: int, parents: int) -> int:
    """Settle the numbered tasks that one can get hold of, and add tasks that wait for half of them; how many."""
    named = [a_numbered_task(at).id for at in range(parents)][number % 2 :: 2]
    added = 0
    while claimed := await store.claim(_claim(number, 3)):
        task = a_dependent(*named, id=an_id(number=(number + 1) * 1_000 + added))
        assert await store.add([task], now=NOW, bounds={}) == [Added()]
        added += 1
        await store.apply([a_settle(one, _end_of(one)) for one in claimed])
    return added


def _end_of(task: Task) -> Outcome:
    """How a numbered task ends: one in five is rejected."""
    return Completed(b"1") if number_of(task) % 5 else Failed(failure=a_failure(), retriable=False)


async def live(store: Store, number: int) -> list[Accepted]:
    """Sweep, cancel or work until every task has ended; all that was accepted of it."""
    match number:
        case 0:
            return await _sweep(store)
        case 1:
            return await _cancel_and_work(store, number)
        case _:
            return await _work(store, number)


async def _sweep(store: Store) -> list[Accepted]:
    accepted: list[Accepted] = []
    far, rounds, deadline = NOW + 400 * DAY, 0, time.monotonic() + PATIENCE
    while await _unfinished(store, deadline):
        rounds += 1
        tasks = [task for task in await store.due(far, 20) if not task.state.ended]
        if rounds > _UNREST:
            tasks = [task for task in tasks if task.state is State.SCHEDULED]
        accepted += await _apply(store, [a_decision(task, AlarmRang(), NOW) for task in tasks])
    return accepted


async def _cancel_and_work(store: Store, number: int) -> list[Accepted]:
    tasks = _shuffled(number, await contents(store))
    changes = [a_decision(task, CancelAsked()) for task in tasks[::4] if not task.state.ended]
    return await _apply(store, changes) + await _work(store, number)


async def _work(store: Store, number: int) -> list[Accepted]:
    accepted: list[Accepted] = []
    chance = random.Random(number)  # noqa: S311 - the same choices at every run
    deadline = time.monotonic() + PATIENCE
    while await _unfinished(store, deadline):
        tasks = await store.claim(_claim(number, 3))
        accepted += [Accepted(task.id, task.status.version, ended=False) for task in tasks]
        if chance.random() < 0.5:
            await store.extend([a_beat(task) for task in tasks], lease=SECOND, now=NOW, grace=GRACE)
        accepted += await _apply(store, [a_settle(task, _outcome(chance)) for task in tasks])
        accepted += await _confirm_cancels(store, tasks)
    return accepted


async def _confirm_cancels(store: Store, tasks: Sequence[Task]) -> list[Accepted]:
    """Settle anew what someone asked to cancel while it was held."""
    tokens = {task.id: held(task).token for task in tasks}
    fresh = [task for task in await store.get(list(tokens)) if task is not None and task.status.lease is not None]
    mine = [task for task in fresh if held(task).token == tokens[task.id]]
    return await _apply(store, [a_settle(task, CancelConfirmed()) for task in mine])


async def _apply(store: Store, changes: list[Change]) -> list[Accepted]:
    verdicts = await store.apply(changes)
    return [
        Accepted(change.id, change.status.version, ended=change.status.state.ended)
        for change, verdict in zip(changes, verdicts, strict=True)
        if verdict is Verdict.APPLIED and change.status is not None
    ]


async def _unfinished(store: Store, deadline: float) -> bool:
    assert time.monotonic() < deadline, f"the tasks are not done after {PATIENCE:g} s"
    tally = await store.tally()
    return any(not state.ended for line in tally.lanes for state in line.counts)


def _outcome(chance: random.Random) -> Outcome:
    outcomes: list[Outcome] = [Completed(b"1"), Completed(b"2"), Failed(failure=a_failure(), after=0), HandedBack()]
    return chance.choice(outcomes)


def _claim(number: int, limit: int, limits: Limits | None = None) -> Claim:
    # Tokens are counted in each process by itself, so the process's number must be part of them.
    token = LeaseToken(f"{number}/{a_token()}")
    return a_claim(limit=limit, worker=WorkerId(f"worker-{number}"), token=token, limits=limits)


def _shuffled(number: int, things: Sequence[Thing]) -> list[Thing]:
    """The things in an order that a member shares with its neighbour, so that some meet head-on and some cross."""
    chosen = list(things)
    random.Random(number // 2).shuffle(chosen)  # noqa: S311 - the same order at every run
    return chosen


def holders(answers: Sequence[tuple[TaskId, Receipt]]) -> list[TaskId]:
    """Which task holds the key after each answer."""
    return [receipt.holder if isinstance(receipt, KeyHeld) else task_id for task_id, receipt in answers]
