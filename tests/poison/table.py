"""The app of the poisons: one task for each place, which takes a poison by its name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from fairlead import Backoff, Defaults, Fairlead, Settings

SETTINGS: Final = Settings(
    defaults=Defaults(backoff=Backoff(initial=0.01)),
    # Short where a worker is to be lost; long where none is, however busy the machine.
    lease=int(os.environ.get("FLEET_LEASE", "30")),
    heartbeat=0.2,
    # The keeper of a worker whose loop is held up has the last fifth of it to say so, and may have to wait for its turn
    # among others.
    grace=int(os.environ.get("POISON_GRACE", "60")),
    sweep_interval=0.1,
)

app = Fairlead("sqlite:///poison.db", settings=SETTINGS)

POISONS: Final[dict[str, Callable[[], Any]]] = {}
"""By name. One that returns a coroutine has it awaited, where there is a loop; elsewhere one is started for it."""


def poison(function: Callable[[], Any]) -> Callable[[], Any]:
    POISONS[function.__name__] = function
    return function


@app.task
async def on_loop(poison: str) -> Any:
    taken = POISONS[poison]()
    return await taken.coroutine if isinstance(taken, Awaited) else taken


@app.task
def in_thread(poison: str) -> Any:
    taken = POISONS[poison]()
    return asyncio.run(taken.coroutine) if isinstance(taken, Awaited) else taken


@app.task(isolate=True)
def in_process(poison: str) -> Any:
    taken = POISONS[poison]()
    return asyncio.run(taken.coroutine) if isinstance(taken, Awaited) else taken


@app.task
async def good_on_loop(number: int) -> int:
    await asyncio.sleep(0)
    return number


@app.task
def good_in_thread(number: int) -> int:
    return number


@app.task(isolate=True)
def good_in_process(number: int) -> int:
    return number


@dataclass
class Awaited:
    """What is to be awaited, and not returned."""

    coroutine: Coroutine[Any, Any, Any]
