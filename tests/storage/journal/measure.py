"""Numbers for docs/adr/0040: `python -m tests.storage.journal.measure [rows]`. Starts servers of its own."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time

from msgspec.structs import replace

from fairlead.admin.engine import AdminEngine
from fairlead.core.events import Completed, Failed
from fairlead.core.identity import WorkerId
from fairlead.core.instant import DAY, SECOND
from fairlead.core.lifecycle import decide
from fairlead.core.settings import Rules
from fairlead.core.submission import Submission
from fairlead.core.task import Lease, Priority, State, Task
from fairlead.storage.journal.duties import Flusher
from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.rows import Search
from fairlead.storage.journal.store import JournalStore
from fairlead.storage.journal.url import parse_journal
from fairlead.storage.redis.outbox import open_noting_redis
from fairlead.storage.values import Filter
from fairlead.testing.builders import NOW, a_claim, a_failure, a_settle, a_task, a_token
from tests.servers.postgres import started
from tests.servers.redis import started_single

CHANCE = random.Random(1)


def a_past_task(number: int) -> Task:
    task = a_task(
        queue=f"queue-{number % 20}" if number % 1000 else "rare",
        type=f"type-{number % 50}",
        priority=Priority(number % 4),
        tags=(f"customer-{number % 5000}",),
        parameters=json.dumps({"order": number, "customer": number % 5000, "kind": "invoice"}).encode(),
        created_at=NOW - 30 * DAY + number * SECOND,
    )
    status = replace(
        task.status,
        state=State.EXECUTING,
        version=2,
        attempts=1,
        started_at=NOW,
        lease=Lease(token=a_token(), worker=WorkerId(f"worker-{number % 200}"), until=NOW),
    )
    held = Task(task.spec, status)
    error = a_failure(f"no answer from host {number % 1000}", "ConnectionError")
    event = Completed(b"1") if number % 20 else Failed(failure=error, retriable=False)
    ended = decide(held, event, NOW, rules=Rules())
    assert ended is not None
    return Task(task.spec, ended)


async def fill(journal: Journal, rows: int) -> None:
    began = time.perf_counter()
    for first in range(0, rows, 2_000):
        await journal.store([a_past_task(number) for number in range(first, first + 2_000)])
    print(f"filled {rows:,} rows at {rows / (time.perf_counter() - began):,.0f}/s")


async def search(journal: Journal) -> None:
    searches = {
        "newest": Search(),
        "state failed": Search(matching=Filter(states=frozenset({State.FAILED}))),
        "state + type": Search(matching=Filter(states=frozenset({State.FAILED}), type="type-40")),
        "type": Search(matching=Filter(type="type-7")),
        "rare queue": Search(matching=Filter(queue="rare")),
        "rare queue + state": Search(matching=Filter(queue="rare", states=frozenset({State.COMPLETED}))),
        "queue": Search(matching=Filter(queue="queue-3")),
        "priority": Search(matching=Filter(priority=Priority.CRITICAL)),
        "ran by": Search(ran_by="worker-77"),
        "tag": Search(matching=Filter(tag="customer-4321")),
        "an hour": Search(
            matching=Filter(
                created_from=NOW - 30 * DAY + 5_000 * SECOND, created_before=NOW - 30 * DAY + 8_600 * SECOND
            )
        ),
        "error words": Search(error="connectionerror 500"),
        "one order": Search(parameters=b'{"order": 123456}'),
        "a customer": Search(parameters=b'{"customer": 1234}'),
        "every invoice": Search(parameters=b'{"kind": "invoice"}'),
    }
    for name, asked in searches.items():
        times: list[float] = []
        found: list[Task] = []
        for _ in range(5):
            began = time.perf_counter()
            found = await journal.search(asked, 50, True, None)
            times.append((time.perf_counter() - began) * 1e3)
        page = found[-1].id if found else None
        began = time.perf_counter()
        await journal.search(asked, 50, True, page)
        next_page = (time.perf_counter() - began) * 1e3
        median, worst = statistics.median(times), max(times)
        print(
            f"  {name:20} {len(found):3} found, median {median:.1f} ms, worst {worst:.1f} ms, next {next_page:.1f} ms"
        )


async def rates(store: JournalStore, count: int) -> None:
    engine = AdminEngine(store)
    began = time.perf_counter()
    for _ in range(0, count, 500):
        await engine.submit_many([Submission(type="work", parameters=b'{"a": 1}') for _ in range(500)])
    print(f"submit in batches of 500: {count / (time.perf_counter() - began):,.0f}/s")
    claimed: list[Task] = []
    began = time.perf_counter()
    while len(claimed) < count // 2:
        tasks = await store.claim(a_claim(limit=100, now=time.time_ns() // 1000))
        claimed += tasks
        await store.apply([a_settle(task, Completed(b"1")) for task in tasks])
    print(f"claim and settle in batches of 100, noted: {count / 2 / (time.perf_counter() - began):,.0f}/s")
    began = time.perf_counter()
    carried = await Flusher(store.hot, store.journal).all()
    print(f"flush: {carried / (time.perf_counter() - began):,.0f}/s")


async def measure(rows: int) -> None:
    for postgres in started():
        for redis in started_single():
            url = postgres.url(postgres.create_database())
            store = JournalStore(await open_noting_redis(redis.url()), Journal(parse_journal(url)))
            count = min(rows, 50_000)
            await rates(store, count)
            redis.ask("FLUSHALL")
            await store.close()
            store = JournalStore(await open_noting_redis(redis.url()), Journal(parse_journal(url)))
            began = time.perf_counter()
            done = await store.rebuild(Rules())
            print(f"rebuild: {done} {done.put_back / (time.perf_counter() - began):,.0f}/s")
            began = time.perf_counter()
            done = await store.rebuild(Rules())
            print(f"again: {done} {done.looked_at / (time.perf_counter() - began):,.0f}/s")
            await fill(store.journal, rows)
            with postgres.admin(url.rpartition("/")[2]) as admin:
                admin.execute("VACUUM ANALYZE")
            await search(store.journal)
            await store.close()


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
