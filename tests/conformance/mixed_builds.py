"""What two builds do in turn with one store: this one, and one whose `Status` has a field more.

Run with the number of a turn and the place of the store, it takes that turn as the build that has the field.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.conformance.appended_field import DEFAULT, FIELD, SAID, append_field

if __name__ == "__main__":
    append_field()

from msgspec import structs

from fairlead.core.events import AlarmRang, Completed, Failed, HandedBack, Outcome
from fairlead.core.identity import LeaseToken
from fairlead.core.instant import AT_ONCE, HOUR
from fairlead.core.task import Progress, State, Status, Task
from fairlead.storage.open import open_store
from fairlead.storage.protocol import Store
from fairlead.storage.values import Pulse, Verdict
from fairlead.testing.builders import (
    GRACE,
    LEASE,
    NOW,
    a_beat,
    a_claim,
    a_decision,
    a_dependent,
    a_failure,
    a_settle,
    a_task,
    an_id,
)
from fairlead.testing.steps import add, ids

ROOT: Final = Path(__file__).parents[2]
PARENTS: Final = "parents"

HAS_FIELD: Final = FIELD in Status.__struct_fields__
BUILDS: Final = (0, 1)
"""The build without the field and the one with it."""


def parents() -> list[Task]:
    """The first build adds them."""
    return [a_task(id=an_id(PARENTS, number), queue=PARENTS) for number in (1, 2)]


def waiting(build: int) -> Task:
    return a_dependent(*parents(), id=an_id(number=10 + build))


def alone(build: int) -> Task:
    return a_task(id=an_id(number=20 + build))


def together(build: int) -> list[Task]:
    return [a_task(id=an_id(number=30 + 2 * build + each)) for each in (0, 1)]


def keyed(build: int) -> Task:
    return a_task(id=an_id(number=40 + build), key=f"key of {build}", concurrency_key=f"line of {build}")


def untouched(build: int) -> Task:
    return a_task(id=an_id(number=50 + build), state=State.SCHEDULED, ready_at=NOW + HOUR)


def all_tasks(*builds: int) -> list[Task]:
    own = [task for at in builds for task in (waiting(at), alone(at), *together(at), keyed(at), untouched(at))]
    return [*parents(), *own]


async def add_all(store: Store, build: int) -> None:
    """By every way that a store has for new tasks."""
    await add(store, waiting(build))
    await add(store, alone(build))
    await add(store, *together(build))
    await add(store, keyed(build), untouched(build))


async def begin(store: Store) -> None:
    """Without the field."""
    await add(store, *parents())
    await add_all(store, 0)


async def join(store: Store) -> None:
    """With it: what was added without is as it was, goes on, and counts for those of both builds."""
    given = [*parents(), alone(0), *together(0), keyed(0), untouched(0)]
    assert [known(task) for task in await read(store, given)] == [known(task) for task in given]
    assert {said(task) for task in await read(store, all_tasks(0))} == {DEFAULT}
    await add_all(store, 1)
    assert {said(task) for task in await read(store, [alone(1), *together(1), keyed(1), waiting(1)])} == {SAID}
    await end_parent(store)
    assert await counts(store) == [(1, 0), (1, 0)]


async def go_on(store: Store) -> None:
    """Without it: what was added with it is readable, and goes on."""
    given = [alone(1), *together(1), keyed(1), untouched(1)]
    assert [known(task) for task in await read(store, given)] == [known(task) for task in given]
    assert await counts(store) == [(1, 0), (1, 0)]
    held = await store.claim(a_claim(token=LeaseToken("of the rest"), limit=20))
    ready = [task for build in BUILDS for task in (alone(build), *together(build), keyed(build))]
    assert sorted(ids(held)) == sorted(ids(ready))
    await renew(store, held)
    outcomes: list[Outcome] = [HandedBack(), Completed(b"1"), Failed(failure=a_failure())]
    for build in BUILDS:
        now_held = await read(store, [alone(build), *together(build)])
        changes = [a_settle(task, outcome) for task, outcome in zip(now_held, outcomes, strict=True)]
        assert await store.apply(changes) == [Verdict.APPLIED] * 3
    await end_parent(store)
    assert await counts(store) == [(0, 0), (0, 0)]


async def finish(store: Store) -> None:
    """With it again: nothing was lost that was not written anew, and what waited is released."""
    assert [said(task) for task in await read(store, [untouched(0), untouched(1)])] == [DEFAULT, SAID]
    assert {said(task) for task in await read(store, all_tasks(*BUILDS))} == {DEFAULT, SAID}
    released = await store.due(AT_ONCE, 10)
    assert ids(released) == ids([waiting(0), waiting(1)])
    assert await store.apply([a_decision(task, AlarmRang()) for task in released]) == [Verdict.APPLIED] * 2
    held = await store.claim(a_claim(token=LeaseToken("of those released"), limit=20))
    assert sorted(ids(held)) == sorted(ids([waiting(0), waiting(1), alone(0), alone(1)]))
    held += await read(store, [keyed(0), keyed(1)])
    await renew(store, held)
    assert set(await store.apply([a_settle(task, Completed(b"2")) for task in await read(store, held)])) == {
        Verdict.APPLIED
    }


async def look_back(store: Store) -> None:
    """Without it: every task is there, as it was left."""
    waiting_still = ids([task for build in BUILDS for task in (together(build)[1], untouched(build))])
    for task in await read(store, all_tasks(*BUILDS)):
        assert task.state is (State.SCHEDULED if task.id in waiting_still else State.COMPLETED)


TURNS: Final[tuple[Callable[[Store], Awaitable[None]], ...]] = (begin, join, go_on, finish, look_back)


async def end_parent(store: Store) -> None:
    """Claim a task that others wait for, beat for it and complete it."""
    (held,) = await store.claim(a_claim(PARENTS, token=LeaseToken(f"of a parent, {HAS_FIELD}")))
    await renew(store, [held])
    (verdict,) = await store.apply([a_settle(held, Completed(b"\xc4\x00"))])
    assert verdict in (Verdict.APPLIED, Verdict.RELEASED)


async def renew(store: Store, tasks: Sequence[Task]) -> None:
    """Renew leases, with progress."""
    beats = [a_beat(task, progress=Progress(percent=5, message="so far", at=NOW)) for task in tasks]
    assert await store.extend(beats, lease=LEASE, grace=GRACE, now=NOW) == [Pulse.HELD] * len(tasks)


async def counts(store: Store) -> list[tuple[int, int]]:
    """What those that wait still wait for."""
    return [(task.status.pending, task.status.unmet) for task in await read(store, [waiting(0), waiting(1)])]


async def read(store: Store, tasks: Sequence[Task]) -> list[Task]:
    stored = [task for task in await store.get(ids(tasks)) if task is not None]
    assert len(stored) == len(tasks)
    return stored


def said(task: Task) -> str:
    """What a task has in the field."""
    value: str = getattr(task.status, FIELD)
    return value


def known(task: Task) -> tuple[Any, ...]:
    """A task without the field."""
    return task.spec, {name: value for name, value in structs.asdict(task.status).items() if name != FIELD}


async def take(turn: int, url: str, journal: str | None) -> None:
    store = await open_store(url, journal=journal)
    try:
        await TURNS[turn](store)
    finally:
        await store.close()


def take_with_field(turn: int, url: str, journal: str | None) -> None:
    """Take a turn as the build with the field, in a process of its own."""
    command = [sys.executable, "-m", "tests.conformance.mixed_builds", str(turn), url, *([journal] if journal else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    asyncio.run(take(int(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None))
