"""Huey, on Redis or in a SQLite file with full synchronisation; four threads."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import harness
from huey import PriorityRedisHuey, SqliteHuey
from huey.consumer_options import ConsumerConfig

if harness.URL.startswith("redis:"):
    queue = PriorityRedisHuey("bench", url=harness.URL)
else:
    queue = SqliteHuey("bench", filename=harness.URL.removeprefix("sqlite:///"), fsync=True)


@queue.task()
def tick(number: int) -> int:
    harness.tick(number)
    return number


class OnHuey(harness.Peer):
    package = "huey"

    def submit_sync(self, number: int) -> None:
        tick(number)

    async def submit_bulk(self, numbers: Sequence[int]) -> None:
        # There is no bulk submit.
        for number in numbers:
            tick(number)

    async def submit_mixed(self, low: Sequence[int], high: Sequence[int]) -> None:
        for number in low:
            queue.enqueue(tick.s(number, priority=1))
        for number in high:
            queue.enqueue(tick.s(number, priority=10))

    def work(self) -> None:
        sys.argv = sys.argv[:1]
        config = ConsumerConfig(workers=4, worker_type="thread", initial_delay=0.001, max_delay=0.1, periodic=False)
        config.validate()
        queue.create_consumer(**config.values).run()


if __name__ == "__main__":
    harness.main(OnHuey())
