"""Queues that share a worker, as an app says it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from fairlead import Fairlead, InvalidSettings
from fairlead.worker.worker import WorkerSettings


async def test_a_worker_takes_of_its_queues_by_weight(tmp_path: Path) -> None:
    app = Fairlead(f"sqlite:///{tmp_path}/tasks.db")
    started: list[str] = []

    @app.task
    async def note(queue: str) -> None:
        started.append(queue)

    for _ in range(20):
        await note.options(queue="bulk").submit("bulk")
    handles = [await note.options(queue="web").submit("web") for _ in range(20)]
    settings = WorkerSettings(concurrency=1)
    worker = await app.worker(queues=["web=3", "bulk"], settings=settings, keeper_process=False)
    working = asyncio.create_task(worker.run())
    await handles[-1].result(timeout=30)
    worker.leave()
    await working
    await app.close()
    assert abs(Counter(started[:20])["web"] - 15) <= 2


async def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    app = Fairlead(f"sqlite:///{tmp_path}/tasks.db")

    @app.task
    async def nothing() -> None: ...

    with pytest.raises(InvalidSettings, match="weight of queue web 'x' is not a weight"):
        await app.worker(queues=["web=x", "bulk"])
    with pytest.raises(InvalidSettings, match="share 'none' is unknown"):
        await app.worker(queues=["web", "bulk"], share="none")  # type: ignore[arg-type]
    await app.close()


async def test_over_http_weights_are_refused() -> None:
    app = Fairlead("http://127.0.0.1:9")

    @app.task
    async def nothing() -> None: ...

    with pytest.raises(InvalidSettings, match="leave weights and share out, or give the worker the store's own URL"):
        await app.worker(queues=["web=3", "bulk"])
    await app.close()
