"""One of several processes that share a file: it submits its share of the tasks and works on everybody's.

Run as `python -m tests.chaos.deckhand URL LEDGER NAME FIRST STEP TOTAL`; its share are the numbers FIRST, FIRST + STEP,
… below TOTAL. SIGTERM ends it. Whoever replaces a killed one is given the same ledger's share again: an idempotency key
for every number makes the repetition safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from fairlead.admin.engine import AdminEngine
from fairlead.admin.sweeper import Sweeper
from fairlead.core.errors import FairleadError, StoreUnavailable
from fairlead.core.events import Completed
from fairlead.core.identity import WorkerId
from fairlead.core.instant import MILLISECOND, SECOND
from fairlead.core.retry import Backoff
from fairlead.core.settings import Defaults, Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Task
from fairlead.engine.engine import Settlement
from fairlead.storage.open import open_store
from fairlead.storage.protocol import Store
from tests.chaos.children import end_with_parent
from tests.chaos.ledger import Ledger

SETTINGS = Settings(
    # However often its workers are killed, a task comes to its end.
    defaults=Defaults(max_crashes=1_000, backoff=Backoff(initial=100 * MILLISECOND, ceiling=SECOND)),
    lease=2 * SECOND,
    heartbeat=SECOND,
    grace=SECOND,
    sweep_interval=SECOND // 4,
)
_BATCH = 20

Answer = TypeVar("Answer")


class Deckhand:
    """The producer, worker and sweeper of one process."""

    def __init__(self, engine: AdminEngine, ledger: Ledger, name: str) -> None:
        self._engine = engine
        self._ledger = ledger
        self._name = name
        self._longest_wait = 0.0

    async def run(self, numbers: Sequence[int]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(Sweeper(self._engine).run())
            group.create_task(self._submit(numbers))
            group.create_task(self._work())

    async def _submit(self, numbers: Sequence[int]) -> None:
        for start in range(0, len(numbers), _BATCH):
            batch = numbers[start : start + _BATCH]
            wishes = [Submission(type="haul", idempotency_key=f"number-{number}") for number in batch]
            answers = await self._timed(partial(self._engine.submit_many, wishes))
            for number, answer in zip(batch, answers, strict=True):
                assert not isinstance(answer, FairleadError), answer
                self._ledger.write(("submitted", number, answer.task.id))

    async def _work(self) -> None:
        worker = WorkerId(self._name)
        while True:
            tasks = await self._timed(partial(self._engine.claim, worker, ["default"], limit=_BATCH))
            if not tasks:
                with contextlib.suppress(StoreUnavailable):
                    await self._engine.store.wait(["default"], 0.25)
                continue
            # The result says whose it is, so that the one that was accepted can be told from any other.
            said = Completed(f'"{self._name}"'.encode())
            settlements = [Settlement(task, said) for task in tasks]
            for answer in await self._timed(partial(self._engine.settle, settlements)):
                match answer:
                    case Task():
                        self._ledger.write(("accepted", answer.id, answer.status.attempts, self._name))
                    case FairleadError():
                        self._ledger.write(("refused", answer.task_id))

    async def _timed(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Repeat a call until it is answered: a disk may stall for longer than a call may take."""
        start = time.monotonic()
        try:
            while True:
                try:
                    return await call()
                except StoreUnavailable as error:
                    self._ledger.write(("unavailable", error))
        finally:
            wait = time.monotonic() - start
            if wait > self._longest_wait:
                self._longest_wait = wait
                self._ledger.write(("waited", wait))


async def _opened(url: str) -> Store:
    while True:
        with contextlib.suppress(StoreUnavailable):
            return await open_store(url)


async def main(url: str, ledger: str, name: str, first: int, step: int, total: int) -> None:
    engine = AdminEngine(await _opened(url), SETTINGS)
    work = asyncio.create_task(Deckhand(engine, Ledger(Path(ledger)), name).run(range(first, total, step)))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await work
    await engine.close()


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(main(*sys.argv[1:4], *map(int, sys.argv[4:7])))  # type: ignore[arg-type]
