"""A process that submits numbered tasks until it is told to stop or is killed.

Run as `python -m tests.chaos.campaign.producer URL JOURNAL LINES FIRST STEP`, with `-` for no journal. Its numbers are
FIRST, FIRST + STEP, …; whoever replaces a killed one begins behind what that one had asked for, so that what was asked
and never answered stays so. SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import sys
from pathlib import Path

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import QueueFull, StoreUnavailable
from fairlead.core.submission import Submission
from fairlead.engine.engine import Submitted
from fairlead.storage.open import open_store
from tests.chaos.campaign.app import SETTINGS
from tests.chaos.campaign.history import Acknowledged, Asked, Refused, Scribe, moment
from tests.chaos.campaign.plan import MOST_RETRIES, plan
from tests.chaos.children import end_with_parent

_BATCH = 8
FAIR_KEYS = 7
"""How many there are; they count where fair keys share the queue."""
_PAUSE = 0.05
"""Between two batches: a queue that is always full would tell little of order."""


def submission(number: int) -> Submission:
    """What is asked for by this number."""
    asked = plan(number)
    return Submission(
        type=asked.type,
        parameters=b'{"number":%d}' % number,
        priority=asked.priority,
        delay=asked.delay or None,
        idempotency_key=str(number),
        max_retries=MOST_RETRIES,
        fair_key=f"key {number % FAIR_KEYS}",
    )


async def produce(engine: AdminEngine, scribe: Scribe, first: int, step: int) -> None:
    """Submit until cancelled: what is refused is asked again, what nobody knows of is not."""
    numbers = itertools.count(first, step)
    asked: list[int] = []
    while True:
        asked += itertools.islice(numbers, _BATCH - len(asked))
        scribe.write(*map(Asked, asked))
        try:
            answers = await engine.submit_many([submission(number) for number in asked])
        except StoreUnavailable:
            asked.clear()
            continue
        again: list[int] = []
        for number, answer in zip(asked, answers, strict=True):
            match answer:
                case Submitted():
                    scribe.write(Acknowledged(number, answer.task.id, moment()))
                case QueueFull():
                    scribe.write(Refused(number))
                    again.append(number)
                case StoreUnavailable():
                    pass
                case error:
                    raise error
        asked = again
        await asyncio.sleep(_PAUSE)


async def main(url: str, journal: str, lines: str, first: int, step: int) -> None:
    engine = AdminEngine(await open_store(url, journal=None if journal == "-" else journal), SETTINGS)
    await engine.follow_clock()
    work = asyncio.create_task(produce(engine, Scribe(Path(lines)), first, step))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await work
    await engine.close()


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(main(*sys.argv[1:4], *map(int, sys.argv[4:6])))  # type: ignore[arg-type]
