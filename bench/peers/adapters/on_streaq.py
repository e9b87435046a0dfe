"""streaQ on Redis streams, on uvloop."""

from __future__ import annotations

from collections.abc import Sequence

import harness
from streaq import Worker

worker = Worker(
    redis_url=harness.URL or "redis://127.0.0.1",
    concurrency=16,
    priorities=["low", "high"],
    anyio_kwargs={"use_uvloop": True},
)


@worker.task
async def tick(number: int) -> int:
    harness.tick(number)
    return number


class OnStreaq(harness.Peer):
    package = "streaq"

    async def open(self) -> None:
        await worker.__aenter__()

    async def close(self) -> None:
        await worker.__aexit__(None, None, None)

    async def submit(self, number: int) -> None:
        await tick.enqueue(number)

    async def submit_bulk(self, numbers: Sequence[int]) -> None:
        await worker.enqueue_many([tick.enqueue(number) for number in numbers])

    async def submit_mixed(self, low: Sequence[int], high: Sequence[int]) -> None:
        for first in range(0, len(low), harness.BULK):
            part = low[first : first + harness.BULK]
            await worker.enqueue_many([tick.enqueue(number).start(priority="low") for number in part])
        await worker.enqueue_many([tick.enqueue(number).start(priority="high") for number in high])

    def work(self) -> None:
        worker.run_sync()


if __name__ == "__main__":
    harness.main(OnStreaq())
