"""A worker that is killed after its settle is stored and before whom that released is let go.

Run as `python -m tests.e2e.last_breath STORE`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from fairlead.admin.engine import AdminEngine
from fairlead.core.events import Completed
from fairlead.core.identity import WorkerId
from fairlead.engine.engine import Settlement
from fairlead.storage.open import open_store
from fairlead.storage.protocol import Store


class Deadly:
    """A store that its user does not live to ask for alarms."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def due(self, *_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str) -> None:
    engine = AdminEngine(Deadly(await open_store(url)))
    (task,) = await engine.claim(WorkerId("doomed"), ["default"], limit=1)
    await engine.settle([Settlement(task, Completed(b"1"))])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
