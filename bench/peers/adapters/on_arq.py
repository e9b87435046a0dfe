"""arq, with a short poll delay and many jobs at once."""

from __future__ import annotations

from typing import Any

import arq
import harness
from arq.connections import RedisSettings
from arq.worker import Worker

SETTINGS = RedisSettings.from_dsn(harness.URL or "redis://127.0.0.1")


async def tick(context: dict[str, Any], number: int) -> int:
    harness.tick(number)
    return number


class OnArq(harness.Peer):
    package = "arq"

    async def open(self) -> None:
        self._pool = await arq.create_pool(SETTINGS)

    async def close(self) -> None:
        await self._pool.aclose()

    async def submit(self, number: int) -> None:
        await self._pool.enqueue_job("tick", number)

    def work(self) -> None:
        async def serve() -> None:
            await Worker(
                [tick], redis_settings=SETTINGS, max_jobs=100, poll_delay=0.01, keep_result=3600, handle_signals=True
            ).async_run()

        harness.run(serve())


if __name__ == "__main__":
    harness.main(OnArq())
