"""A deckhand of tests/chaos whose store has a journal.

Run as `python -m tests.storage.journal.hand REDIS JOURNAL LEDGER NAME FIRST STEP TOTAL`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from fairlead.admin.engine import AdminEngine
from fairlead.storage.open import open_store
from tests.chaos.children import end_with_parent
from tests.chaos.deckhand import SETTINGS, Deckhand
from tests.chaos.ledger import Ledger


async def main(redis: str, journal: str, ledger: str, name: str, first: int, step: int, total: int) -> None:
    engine = AdminEngine(await open_store(redis, journal=journal), SETTINGS)
    await engine.follow_clock()
    work = asyncio.create_task(Deckhand(engine, Ledger(Path(ledger)), name).run(range(first, total, step)))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await work
    await engine.close()


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(main(*sys.argv[1:5], *map(int, sys.argv[5:8])))  # type: ignore[arg-type]
