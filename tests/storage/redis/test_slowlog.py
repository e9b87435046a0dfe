"""No call keeps the server from others for long, however many tasks wait.

The server's slow log tells how long each call took by the clock on the wall. That counts the moments in which another
process had the processor, so on a busy machine its largest values say little about the store; what is asserted is the
median, and how many commands a call runs, which is the same everywhere.

`python -m tests.storage.redis.test_slowlog [tasks]` is the long form: 1,000,000 tasks by default.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from msgspec import Struct

from fairlead.core.events import Completed
from fairlead.core.instant import DAY, SECOND
from fairlead.core.queues.order import Promote
from fairlead.core.task import Priority, State, Task
from fairlead.storage.journal.outbox import Done
from fairlead.storage.redis.outbox import open_noting_redis
from fairlead.storage.redis.scripts import CHUNK, CLAIM_CHUNK
from fairlead.storage.redis.store import RedisStore, open_redis
from fairlead.storage.values import Claim, Filter
from fairlead.testing.builders import LEASE, NOW, WORKER, a_beat, a_claim, a_removal, a_settle, a_task
from tests.servers.redis import RedisServer, started_single

_MOST_COMMANDS: Final = 450
"""That a call may run: a settle of scattered tasks needs some 300."""

_LONGEST_MEDIAN: Final = 5_000
"""Microseconds, on a machine that is a few times slower and busier than a server's."""

_CAPABILITIES: Final = ((), ("gpu",), ("eu", "gpu"))
"""With four priorities: twelve lanes."""

_PARAMETERS: Final = b'{"video":"%s"}' % (b"x" * 86)
_OURS: Final = frozenset({"EVALSHA", "EVAL", "MGET", "BLPOP"})
"""The commands that a store sends and no script runs."""

_NOT_OURS: Final = frozenset({"CONFIG", "SLOWLOG", "INFO", "HELLO", "AUTH", "SELECT", "CLIENT"})
_LOGGED: Final = 100
"""Microseconds from which on a call is logged. Logging all, and all that scripts run, would cost more than they do."""


class Cost(Struct):
    """What one kind of work took the server; times are in microseconds."""

    calls: int = 0
    took: list[int] = []
    """Of the calls that took longer than `_LOGGED`, by the clock on the wall."""
    worked: list[float] = []
    """Processor time of the server, per call, for each time the work was done; with reading and answering."""
    commands: float = 0.0
    """That a call runs within, at most."""

    def took_quantile(self, share: float) -> int:
        """So large a share of the calls took no longer than this; 0 for what is not worth logging."""
        at = math.ceil(share * self.calls) - 1 - (self.calls - len(self.took))
        return sorted(self.took)[at] if at >= 0 else 0

    def worked_quantile(self, share: float) -> float:
        return sorted(self.worked)[math.ceil(share * len(self.worked)) - 1]


class Watch:
    """Reads a server's slow log and counters."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._clock = Path(f"/proc/{server.pid}/schedstat")
        self.costs: dict[str, Cost] = {}
        server.ask("CONFIG", "SET", "slowlog-max-len", 10_000)

    async def during(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Note what the calls take that this work makes."""
        self._server.ask("SLOWLOG", "RESET")
        self._server.ask("CONFIG", "RESETSTAT")
        self._server.ask("CONFIG", "SET", "slowlog-log-slower-than", _LOGGED)
        before = self._worked()
        await work()
        worked = self._worked() - before
        self._server.ask("CONFIG", "SET", "slowlog-log-slower-than", -1)
        entries = self._server.ask("SLOWLOG", "GET", 10_000)
        calls, commands = self._counts()
        cost = self.costs.setdefault(name, Cost())
        cost.calls += calls
        cost.took += [took for _, _, took, words, *_ in entries if words[0].decode().upper() in _OURS]
        cost.worked.append(worked / calls)
        cost.commands = max(cost.commands, commands / calls)

    def _worked(self) -> float:
        return int(self._clock.read_text().split()[0]) / 1_000 if self._clock.exists() else 0.0

    def _counts(self) -> tuple[int, int]:
        """How many calls were made, and how many commands they ran within."""
        counts: dict[str, int] = {}
        for line in self._server.ask("INFO", "commandstats").decode().splitlines():
            name, _, rest = line.removeprefix("cmdstat_").partition(":calls=")
            if rest:
                word = name.partition("|")[0].upper()
                counts[word] = counts.get(word, 0) + int(rest.partition(",")[0])
        calls = sum(count for name, count in counts.items() if name in _OURS)
        return calls, sum(count for name, count in counts.items() if name not in _OURS | _NOT_OURS)


def a_batch(count: int = CHUNK, state: State = State.QUEUED) -> list[Task]:
    """Tasks spread over twelve lanes."""
    return [
        a_task(
            parameters=_PARAMETERS,
            priority=Priority(number % 4),
            requires=_CAPABILITIES[number % 3],
            state=state,
            ready_at=NOW + number,
        )
        for number in range(count)
    ]


def the_claim() -> Claim:
    return a_claim(limit=CLAIM_CHUNK, capabilities={"gpu", "eu"}, policy=Promote(), now=NOW + SECOND)


async def run(server: RedisServer, backlog: int, rounds: int) -> dict[str, Cost]:
    """What every kind of work takes with so many tasks waiting, a tenth as many scheduled and a thousand executing."""
    store = await open_redis(server.url())
    for first in range(0, backlog, 1_000):
        await store.add(a_batch(min(1_000, backlog - first)), now=NOW, bounds={})
    for first in range(0, backlog // 10, 1_000):
        await store.add(a_batch(min(1_000, backlog // 10 - first), State.SCHEDULED), now=NOW, bounds={})
    for _ in range(10):
        await store.claim(the_claim())
    watch = Watch(server)
    for _ in range(rounds):
        await _add(store, watch)
        await _settle(store, watch)
        await _sweep(store, watch)
        await _look(store, watch)
        await _note(server, watch)
    await store.close()
    return watch.costs


async def _add(store: RedisStore, watch: Watch) -> None:
    keyed = [a_task(key=f"key {task.id}") for task in a_batch()]
    await watch.during("add", partial(store.add, a_batch(), now=NOW, bounds={}))
    await watch.during("add within a bound", partial(store.add, a_batch(), now=NOW, bounds={"default": 10**9}))
    await watch.during("add with keys", partial(store.add, keyed, now=NOW, bounds={}))
    await watch.during("add one", partial(store.add, [a_task()], now=NOW, bounds={}))


async def _settle(store: RedisStore, watch: Watch, how: str = "") -> None:
    taken: list[Task] = []

    async def claim() -> None:
        taken.extend(await store.claim(the_claim()))

    await watch.during(f"claim{how}", claim)
    assert len(taken) == CLAIM_CHUNK
    beats = [a_beat(task) for task in taken]
    await watch.during("extend", partial(store.extend, beats, lease=2 * LEASE, now=NOW, grace=0))
    await watch.during(f"settle{how}", partial(store.apply, [a_settle(task, Completed(b"42")) for task in taken]))


async def _sweep(store: RedisStore, watch: Watch) -> None:
    due: list[Task] = []

    async def look(after: Task | None = None) -> None:
        mark = None if after is None else (after.status.alarm or 0, after.id)
        due.extend(await store.due(NOW + 2 * DAY, 500, mark))

    await watch.during("due", look)
    await watch.during("due, further on", partial(look, due[-1]))
    await watch.during("remove", partial(store.apply, [a_removal(task) for task in due[:CHUNK]]))


async def _look(store: RedisStore, watch: Watch) -> None:
    page = await store.find(Filter(), limit=100)
    await watch.during("find", partial(store.find, Filter(), limit=100))
    await watch.during("find, further on", partial(store.find, Filter(), limit=100, after=page[-1].id))
    await watch.during("find, oldest first", partial(store.find, Filter(), limit=100, newest_first=False))
    await watch.during("find by worker", partial(store.find, Filter(worker=WORKER), limit=100))
    scheduled = Filter(states=frozenset({State.SCHEDULED}), type="none")
    await watch.during("tally", store.tally)
    await watch.during("wait", partial(store.wait, ["default"], 0.01))
    await watch.during("find what is not", partial(store.find, scheduled, limit=100))


async def _note(server: RedisServer, watch: Watch) -> None:
    """What a store with a journal does, too."""
    store = await open_noting_redis(server.url())
    await _settle(store, watch, ", noted")

    async def carry() -> None:
        notes = await store.read(500)
        tasks = await store.get([note.id for note in notes])
        versions = [0 if task is None else task.status.version for task in tasks]
        await store.done([Done(note, version) for note, version in zip(notes, versions, strict=True)])

    await watch.during("carry notes", carry)
    await store.close()


def show(costs: dict[str, Cost]) -> str:
    return "\n".join(
        f"{name:<20} {cost.calls:>6,} calls, {cost.commands:>5,.0f} commands within; "
        f"processor p50 {cost.worked_quantile(0.5):>5,.0f}, p99 {cost.worked_quantile(0.99):>5,.0f} µs; "
        f"slow log p50 {cost.took_quantile(0.5):>5,}, p99 {cost.took_quantile(0.99):>5,}, "
        f"most {cost.took_quantile(1):>6,} µs"
        for name, cost in costs.items()
    )


@pytest.mark.slow
async def test_no_call_keeps_the_server_for_long() -> None:
    for server in started_single():
        costs = await run(server, 50_000, 20)
        assert {name: cost.commands for name, cost in costs.items() if cost.commands > _MOST_COMMANDS} == {}, show(
            costs
        )
        slow = {
            name: cost.took_quantile(0.5) for name, cost in costs.items() if cost.took_quantile(0.5) > _LONGEST_MEDIAN
        }
        assert slow == {}, show(costs)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    for started in started_single():
        print(show(asyncio.run(run(started, count, 100))))
