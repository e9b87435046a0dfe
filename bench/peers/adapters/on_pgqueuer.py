"""PgQueuer on PostgreSQL through asyncpg, claiming 100 at once."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta

import asyncpg
import harness
from pgqueuer import Job, PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver


class OnPgQueuer(harness.Peer):
    package = "pgqueuer"

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(harness.URL, min_size=4, max_size=20)
        self._queries = Queries(AsyncpgPoolDriver(self._pool))
        with contextlib.suppress(asyncpg.DuplicateObjectError, asyncpg.DuplicateTableError):
            await self._queries.install()

    async def close(self) -> None:
        await self._pool.close()

    async def submit(self, number: int) -> None:
        await self._queries.enqueue("tick", b"%d" % number, 0)

    async def submit_bulk(self, numbers: Sequence[int]) -> None:
        await self._many(numbers, 0)

    async def submit_mixed(self, low: Sequence[int], high: Sequence[int]) -> None:
        for first in range(0, len(low), harness.BULK):
            await self._many(low[first : first + harness.BULK], 0)
        await self._many(high, 10)

    async def _many(self, numbers: Sequence[int], priority: int) -> None:
        payloads = [b"%d" % number for number in numbers]
        await self._queries.enqueue(["tick"] * len(numbers), payloads, [priority] * len(numbers))

    def work(self) -> None:
        async def serve() -> None:
            await self.open()
            queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(harness.URL)))

            @queue.entrypoint("tick")
            async def tick(job: Job) -> None:
                assert job.payload is not None
                harness.tick(int(job.payload))

            await queue.run(batch_size=100, dequeue_timeout=timedelta(seconds=1))

        harness.run(serve())


if __name__ == "__main__":
    harness.main(OnPgQueuer())
