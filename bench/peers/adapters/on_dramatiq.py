"""Dramatiq on Redis: eight threads, a prefetch of 500, results kept."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import dramatiq
import harness
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

broker = RedisBroker(url=harness.URL)
broker.add_middleware(Results(backend=RedisBackend(url=harness.URL), store_results=True))
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="bench", priority=10)
def tick(number: int) -> int:
    harness.tick(number)
    return number


@dramatiq.actor(queue_name="bench", priority=0)
def urgent(number: int) -> int:
    harness.tick(number)
    return number


class OnDramatiq(harness.Peer):
    package = "dramatiq"

    def submit_sync(self, number: int) -> None:
        tick.send(number)

    async def submit_bulk(self, numbers: Sequence[int]) -> None:
        # There is no bulk submit: a group sends its messages one by one.
        for number in numbers:
            tick.send(number)

    async def submit_mixed(self, low: Sequence[int], high: Sequence[int]) -> None:
        for number in low:
            tick.send(number)
        for number in high:
            urgent.send(number)

    def work(self) -> None:
        os.environ["dramatiq_queue_prefetch"] = "500"  # noqa: SIM112 - its name
        os.chdir(Path(__file__).parent)
        program = ["dramatiq", "on_dramatiq", "--processes", "1", "--threads", "8"]
        os.execv(sys.executable, [sys.executable, "-m", *program])


if __name__ == "__main__":
    harness.main(OnDramatiq())
