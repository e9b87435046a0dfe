"""SAQ on Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import harness
from saq import Queue, Worker


async def tick(context: dict[str, Any], *, number: int) -> int:
    harness.tick(number)
    return number


class OnSaq(harness.Peer):
    package = "saq"

    async def open(self) -> None:
        self._queue = Queue.from_url(harness.URL, name="bench")
        await self._queue.connect()

    async def close(self) -> None:
        await self._queue.disconnect()

    async def submit(self, number: int) -> None:
        await self._queue.enqueue("tick", number=number)

    async def submit_mixed(self, low: Sequence[int], high: Sequence[int]) -> None:
        raise NotImplementedError

    def work(self) -> None:
        async def serve() -> None:
            await self.open()
            await Worker(self._queue, functions=[tick], concurrency=100, dequeue_timeout=1).start()

        harness.run(serve())


if __name__ == "__main__":
    harness.main(OnSaq())
