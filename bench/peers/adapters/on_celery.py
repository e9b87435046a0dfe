"""Celery on Redis: threads rather than processes, events and remote control off, results kept."""

from __future__ import annotations

from collections.abc import Sequence

import harness
from celery import Celery

app = Celery("bench", broker=harness.URL, backend=harness.URL)
app.conf.update(
    task_default_queue="bench",
    broker_transport_options={"queue_order_strategy": "priority", "priority_steps": [0, 9]},
    worker_prefetch_multiplier=64,
    result_expires=3600,
    worker_send_task_events=False,
)


@app.task(name="tick")
def tick(number: int) -> int:
    harness.tick(number)
    return number


class OnCelery(harness.Peer):
    package = "celery"

    def submit_sync(self, number: int) -> None:
        tick.delay(number)

    async def submit_bulk(self, numbers: Sequence[int]) -> None:
        # There is no bulk submit; a connection and a producer that are kept are the nearest.
        with app.producer_pool.acquire(block=True) as producer:
            for number in numbers:
                tick.apply_async((number,), producer=producer)

    async def submit_mixed(self, low: Sequence[int], high: Sequence[int]) -> None:
        for number in low:
            tick.apply_async((number,), priority=9)
        for number in high:
            tick.apply_async((number,), priority=0)

    def work(self) -> None:
        options = ["--pool", "threads", "--concurrency", "8", "--loglevel", "ERROR"]
        app.worker_main(["worker", *options, "--without-gossip", "--without-mingle", "--without-heartbeat"])


if __name__ == "__main__":
    harness.main(OnCelery())
