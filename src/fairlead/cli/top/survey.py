"""All that a person watches, at one moment: how the queues stand, who works, what runs long and what failed."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from fairlead.core.instant import Instant
from fairlead.core.task import State, Task
from fairlead.engine.facade import Facade
from fairlead.engine.presence import WorkerPresence
from fairlead.engine.stats import Stats
from fairlead.storage.values import Filter

SHOWN: Final = 20
"""How many tasks of each kind are kept."""
LOOKED_AT: Final = 200
"""Of how many they are chosen. A look must stay cheap however many tasks there are, so those that have run longest are
chosen among the running tasks that were submitted first, and the newest errors among those submitted last."""


class Survey(Struct, frozen=True, kw_only=True):
    """How everything stands."""

    at: Instant
    stats: Stats
    workers: tuple[WorkerPresence, ...]
    running: tuple[Task, ...]
    """Those that have run longest, the longest first."""
    failed: tuple[Task, ...]
    """The latest that ended as failed or as a dead letter, the latest first."""


async def survey(engine: Facade) -> Survey:
    """Look at everything once."""
    running = await engine.find(Filter(states=frozenset({State.EXECUTING})), limit=LOOKED_AT, newest_first=False)
    failed = await engine.find(Filter(states=frozenset({State.FAILED, State.DEAD_LETTER})), limit=LOOKED_AT)
    return Survey(
        at=engine.clock.now(),
        stats=await engine.stats(),
        workers=tuple(await engine.workers.all()),
        running=tuple(sorted(running, key=lambda task: task.status.started_at or 0)[:SHOWN]),
        failed=tuple(sorted(failed, key=lambda task: -(task.status.ended_at or 0))[:SHOWN]),
    )
