"""A process that sweeps a store, and so fires its schedules: `python -m tests.chaos.sweeper URL`. SIGTERM ends it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from fairlead.admin.engine import AdminEngine
from fairlead.admin.sweeper import Sweeper
from fairlead.core.instant import MILLISECOND
from fairlead.core.settings import Settings
from fairlead.storage.open import open_store
from tests.chaos.children import end_with_parent


async def sweep(url: str) -> None:
    engine = AdminEngine(await open_store(url), Settings(sweep_interval=50 * MILLISECOND))
    await engine.follow_clock()
    sweeping = asyncio.ensure_future(Sweeper(engine).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, sweeping.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await sweeping
    await engine.close()


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(sweep(sys.argv[1]))
