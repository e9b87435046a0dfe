"""Procrastinate on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

import harness
import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=harness.URL, min_size=4, max_size=20))


@app.task(name="tick", queue="bench")
async def tick(number: int) -> int:
    harness.tick(number)
    return number


class OnProcrastinate(harness.Peer):
    package = "procrastinate"

    async def open(self) -> None:
        await app.open_async()
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()

    async def close(self) -> None:
        await app.close_async()

    async def submit(self, number: int) -> None:
        await tick.defer_async(number=number)

    async def submit_bulk(self, numbers: Sequence[int]) -> None:
        await tick.batch_defer_async(*({"number": number} for number in numbers))

    async def submit_mixed(self, low: Sequence[int], high: Sequence[int]) -> None:
        for first in range(0, len(low), harness.BULK):
            await self.submit_bulk(low[first : first + harness.BULK])
        await tick.configure(priority=10).batch_defer_async(*({"number": number} for number in high))

    def work(self) -> None:
        async def serve() -> None:
            await self.open()
            await app.run_worker_async(queues=["bench"], concurrency=100, fetch_job_polling_interval=0.1)

        harness.run(serve())


if __name__ == "__main__":
    harness.main(OnProcrastinate())
