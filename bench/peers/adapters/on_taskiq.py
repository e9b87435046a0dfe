"""Taskiq on Redis streams, which acknowledge; results kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import harness
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

URL = harness.URL or "redis://127.0.0.1"
broker = RedisStreamBroker(url=URL, xread_count=100).with_result_backend(
    RedisAsyncResultBackend(redis_url=URL, result_ex_time=3600)
)


@broker.task(task_name="tick")
async def tick(number: int) -> int:
    harness.tick(number)
    return number


class OnTaskiq(harness.Peer):
    package = "taskiq"

    async def open(self) -> None:
        await broker.startup()

    async def close(self) -> None:
        await broker.shutdown()

    async def submit(self, number: int) -> None:
        await tick.kiq(number)

    def work(self) -> None:
        os.chdir(Path(__file__).parent)
        program = ["taskiq", "worker", "on_taskiq:broker", "--workers", "1", "--log-level", "ERROR"]
        bounds = ["--max-async-tasks", "200", "--max-prefetch", "200"]
        os.execv(sys.executable, [sys.executable, "-m", *program, *bounds])


if __name__ == "__main__":
    harness.main(OnTaskiq())
