"""The app of a campaign: handlers in all three places, which write down when they begin and end.

CAMPAIGN_LINES names the file they write to.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Final

from fairlead import Backoff, Fairlead, Settings, current_task
from fairlead.core.settings import Defaults
from tests.chaos.campaign.history import Ended, Scribe, Started, moment
from tests.chaos.campaign.plan import MOST_RETRIES

SETTINGS: Final = Settings(
    # However often its workers are killed, a task comes to its end; the budgets of retries are the tasks' own.
    defaults=Defaults(max_crashes=1_000, backoff=Backoff(initial=0.1, ceiling=1)),
    lease=2,
    heartbeat=0.5,
    grace=1,
    sweep_interval=0.25,
    queue_bound=400,
)
_LASTS: Final = 0.05
"""How long a handler takes, in seconds."""

app = Fairlead("sqlite:///campaign.db", settings=SETTINGS)
_scribes: dict[int, Scribe] = {}


def scribe() -> Scribe:
    """This process's own: a forked child must not share it."""
    process = os.getpid()
    if process not in _scribes:
        _scribes[process] = Scribe(Path(os.environ["CAMPAIGN_LINES"]))
    return _scribes[process]


def begin(number: int) -> None:
    scribe().write(Started(number, current_task().attempt, os.getpid(), moment()))


def end(number: int) -> int:
    """The attempt, which is the handler's result."""
    attempt = current_task().attempt
    scribe().write(Ended(number, attempt, os.getpid(), moment()))
    return attempt


@app.task(max_retries=MOST_RETRIES)
async def in_coroutine(number: int) -> int:
    begin(number)
    await asyncio.sleep(_LASTS)
    return end(number)


@app.task(max_retries=MOST_RETRIES)
def in_thread(number: int) -> int:
    begin(number)
    time.sleep(_LASTS)
    return end(number)


@app.task(max_retries=MOST_RETRIES, isolate=True)
def isolated(number: int) -> int:
    begin(number)
    time.sleep(_LASTS)
    return end(number)


@app.task(max_retries=MOST_RETRIES)
async def stumble(number: int) -> int:
    """Fails at its first attempt."""
    begin(number)
    if end(number) == 1:
        raise ValueError("the first attempt always fails")
    return current_task().attempt


@app.task(max_retries=MOST_RETRIES)
async def never(number: int) -> int:
    begin(number)
    end(number)
    raise ValueError("every attempt fails")
