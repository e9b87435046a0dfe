"""RQ, with the worker that does not fork for every task."""

from __future__ import annotations

from collections.abc import Sequence

import harness
import redis
import rq

HIGH, LOW = "high", "low"


class OnRq(harness.Peer):
    package = "rq"

    def open_sync(self) -> None:
        self._connection = redis.Redis.from_url(harness.URL)
        self._queue = rq.Queue(LOW, connection=self._connection)

    async def open(self) -> None:
        self.open_sync()

    def submit_sync(self, number: int) -> None:
        self._queue.enqueue(harness.tick, number)

    async def submit_bulk(self, numbers: Sequence[int]) -> None:
        self._many(self._queue, numbers)

    async def submit_mixed(self, low: Sequence[int], high: Sequence[int]) -> None:
        for first in range(0, len(low), harness.BULK):
            self._many(self._queue, low[first : first + harness.BULK])
        self._many(rq.Queue(HIGH, connection=self._connection), high)

    def _many(self, queue: rq.Queue, numbers: Sequence[int]) -> None:
        queue.enqueue_many([rq.Queue.prepare_data(harness.tick, (number,)) for number in numbers])

    def work(self) -> None:
        self.open_sync()
        rq.SimpleWorker([HIGH, LOW], connection=self._connection).work(logging_level="WARNING")


if __name__ == "__main__":
    harness.main(OnRq())
