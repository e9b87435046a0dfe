"""A worker and its sweep meet damaged tasks, and those of a newer version, and go on: real processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fairlead.core.health.quarantine import capability
from fairlead.core.identity import LeaseToken
from fairlead.core.instant import SECOND
from fairlead.core.task import State, Task
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.open import open_store
from fairlead.storage.protocol import Store
from fairlead.storage.values import Filter
from fairlead.testing.builders import NOW, a_claim, a_task, an_id
from fairlead.testing.vandalism import DAMAGES, Vandal, newer
from tests.cli.running import Folder, until
from tests.conformance.test_sqlite import FileVandal
from tests.servers.redis import RedisServer, started_single
from tests.storage.redis.vandal import ServerVandal

APP = """
from fairlead import Fairlead, Settings

app = Fairlead("{url}", settings=Settings(lease={lease}, heartbeat={heartbeat}))

@app.task(queue="{queue}")
async def work() -> str:
    return "done"
"""


class Place(NamedTuple):
    """A store that is shared with a worker, and someone who damages its tasks."""

    url: str
    store: Store
    vandal: Vandal


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    yield from started_single()


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    vandal: Vandal = FileVandal(tmp_path / "tasks.db")
    if request.param == "redis":
        server, prefix = request.getfixturevalue("server"), f"d{abs(hash(tmp_path))}"
        url, vandal = server.url(prefix=prefix), ServerVandal([server], prefix)
    else:
        url = f"sqlite:///{tmp_path}/tasks.db"
    store = run_inline(open_store(url, blocking=True))
    yield Place(url, store, vandal)
    run_inline(store.close())


def listed(place: Place) -> set[str]:
    return {task.id for task in run_inline(place.store.find(Filter(), limit=100))}


def states(place: Place, *tasks: Task) -> set[State | None]:
    """How these tasks stand. To look at others would set aside what is damaged."""
    return {
        None if found is None else found.state for found in run_inline(place.store.get([task.id for task in tasks]))
    }


def wait_for(place: Place, *good: Task) -> None:
    """Wait until the worker has done these."""
    until(lambda: states(place, *good) == {State.COMPLETED})


def test_a_worker_takes_what_is_behind_damage_and_stays(folder: Folder, place: Place) -> None:
    folder.write("tasks.py", APP.format(url=place.url, queue="default", lease=30, heartbeat=10))
    bad = [a_task() for _ in DAMAGES]
    good = [a_task() for _ in range(3)]
    run_inline(place.store.add([*bad, *good], now=NOW, bounds={}))
    for task, (change, tidy) in zip(bad, DAMAGES.values(), strict=True):
        asyncio.run(place.vandal(task.id, "spec", change, tidy=tidy))
    ahead = a_task(requires=[capability(2)])
    run_inline(place.store.add([ahead], now=NOW, bounds={}))
    asyncio.run(place.vandal(ahead.id, "status", newer, tidy=True))
    with folder.start("worker", "tasks:app", "--log-format", "text") as worker:
        wait_for(place, *good)
        said = worker.find("damaged and was moved to quarantine", len(bad))
        assert all(any(task.id in line for line in said) for task in bad)
        later = a_task()
        run_inline(place.store.add([later], now=NOW, bounds={}))
        wait_for(place, later)
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    assert listed(place) == {task.id for task in (*good, later)}
    kept = folder.quick("quarantine", "list", "--json", "--store", place.url).lines
    assert {each["name"] for each in kept} == {task.id for task in bad}


def test_the_sweep_of_a_worker_of_another_queue_goes_on(folder: Folder, place: Place) -> None:
    """A lease that has ended, a due time and a retention that has: each task behind them is seen to."""
    folder.write("tasks.py", APP.format(url=place.url, queue="other", lease=2, heartbeat=1))
    store = place.store
    executing = [a_task(), a_task()]
    run_inline(store.add(executing, now=NOW, bounds={}))
    claim = a_claim(limit=2, token=LeaseToken("gone"), now=None, lease=SECOND // 10)
    assert len(run_inline(store.claim(claim))) == 2
    scheduled = [a_task(state=State.SCHEDULED, ready_at=1), a_task(state=State.SCHEDULED, ready_at=2)]
    ended = [a_task(state=State.CANCELLED, alarm=1), a_task(state=State.CANCELLED, alarm=2)]
    run_inline(store.add([*scheduled, *ended], now=NOW, bounds={}))
    for task, (change, tidy) in zip((executing[0], scheduled[0], ended[0]), DAMAGES.values(), strict=False):
        asyncio.run(place.vandal(task.id, "status", change, tidy=tidy))
    with folder.start("worker", "tasks:app", "--queues", "other", "--log-format", "text") as worker:
        worker.find("damaged and was moved to quarantine", 3)
        until(lambda: states(place, scheduled[1]) == {State.QUEUED} and states(place, ended[1]) == {None})
        good = a_task(queue="other", id=an_id("other"))
        run_inline(store.add([good], now=NOW, bounds={}))
        wait_for(place, good)
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
