"""fairlead, as anybody would use it."""

from __future__ import annotations

from collections.abc import Sequence

import harness

from fairlead import Fairlead

app = Fairlead(harness.URL)


@app.task
async def tick(number: int) -> int:
    harness.tick(number)
    return number


class OnFairlead(harness.Peer):
    package = "fairlead"

    async def open(self) -> None:
        # It opens when it is first used: connect and make the tables before the clock runs, as the other queues do.
        await app.stats()

    async def close(self) -> None:
        await app.close()

    def submit_sync(self, number: int) -> None:
        tick.submit_sync(number)

    async def submit(self, number: int) -> None:
        await tick.submit(number)

    async def submit_bulk(self, numbers: Sequence[int]) -> None:
        await tick.submit_many([tick.call(number) for number in numbers])

    async def submit_mixed(self, low: Sequence[int], high: Sequence[int]) -> None:
        slow, urgent = tick.options(priority="low"), tick.options(priority="high")
        for first in range(0, len(low), harness.BULK):
            await slow.submit_many([slow.call(number) for number in low[first : first + harness.BULK]])
        await urgent.submit_many([urgent.call(number) for number in high])

    def work(self) -> None:
        app.run_worker()


if __name__ == "__main__":
    harness.main(OnFairlead())
