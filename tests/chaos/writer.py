"""A process that submits, claims and settles as fast as it can until it is killed.

Run as `python -m tests.chaos.writer URL LEDGER`. The ledger says what the engine had acknowledged.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import FairleadError
from fairlead.core.events import Completed
from fairlead.core.identity import WorkerId
from fairlead.core.submission import Submission
from fairlead.core.task import Task
from fairlead.engine.engine import Settlement
from fairlead.storage.open import open_store
from tests.chaos.children import end_with_parent
from tests.chaos.ledger import Ledger

_SUBMISSION = Submission(type="write", parameters=b'{"text":"' + b"x" * 200 + b'"}')


async def main(url: str, ledger: Ledger) -> None:
    engine = AdminEngine(await open_store(url))
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(submit_one_by_one(engine, ledger))
        group.create_task(submit_many(engine, ledger))
        for number in range(2):
            group.create_task(work(engine, ledger, WorkerId(f"worker-{number}")))


async def submit_one_by_one(engine: AdminEngine, ledger: Ledger) -> None:
    while True:
        submitted = await engine.submit(_SUBMISSION)
        ledger.write(("submitted", submitted.task.id))


async def submit_many(engine: AdminEngine, ledger: Ledger) -> None:
    while True:
        answers = await engine.submit_many([_SUBMISSION] * 20)
        assert not any(isinstance(answer, FairleadError) for answer in answers)
        ledger.write(*(("submitted", answer.task.id) for answer in answers if not isinstance(answer, FairleadError)))


async def work(engine: AdminEngine, ledger: Ledger, worker: WorkerId) -> None:
    while True:
        tasks = await engine.claim(worker, ["default"], limit=10)
        ledger.write(*(("claimed", task.id, task.status.attempts) for task in tasks))
        answers = await engine.settle([Settlement(task, Completed(task.id.encode())) for task in tasks])
        ledger.write(*(("settled", answer.id, answer.status.version) for answer in answers if isinstance(answer, Task)))


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(main(sys.argv[1], Ledger(Path(sys.argv[2]))))
