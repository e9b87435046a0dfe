"""How the queues stood lately: a sample every few seconds, so that a page that is opened has a past to show."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Final

from fairlead.admin.engine import AdminEngine
from fairlead.admin.stats.api import Sample, sample
from fairlead.core.errors import StoreError
from fairlead.server.live.queue_depths import Depths

INTERVAL: Final = 10.0
"""Seconds between two samples."""
KEPT: Final = 360
"""How many samples are kept: an hour of them."""


class Recorder:
    """Keeps the samples of one server; others have their own, and all are lost when it ends."""

    def __init__(self, engine: AdminEngine, depths: Depths) -> None:
        self._engine = engine
        self._depths = depths
        self.samples: deque[Sample] = deque(maxlen=KEPT)

    async def run(self) -> None:
        """Take samples for as long as this is not cancelled; what the store cannot say is left out."""
        while True:
            with contextlib.suppress(StoreError):
                await self.take()
            await asyncio.sleep(INTERVAL)

    async def take(self) -> None:
        """Take a sample."""
        self.samples.append(sample(await self._depths.stats(), self._engine.clock.now()))
