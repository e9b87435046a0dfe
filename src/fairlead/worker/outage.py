"""A store that fails for a while."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

from fairlead.core.errors import StoreError, StoreReadOnly
from fairlead.engine.runtime.logger import Logger

log = Logger("fairlead.worker")

_RETRY_FIRST: Final = 0.1
_RETRY_MOST: Final = 5.0


class Outage:
    """A store that fails: said once, waited out with growing pauses, said when it is over."""

    def __init__(self, intent: str) -> None:
        self._intent = intent
        self._pause = _RETRY_FIRST
        self._began: float | None = None

    async def wait(self, error: StoreError) -> None:
        """Let some time pass; raises what will never pass."""
        if isinstance(error, StoreReadOnly) and error.lasting:
            raise error
        if self._began is None:
            self._began = time.monotonic()
            log.warning("cannot %s, retrying until it works: %s", self._intent, error)
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries, guards nothing
        self._pause = min(self._pause * 2, _RETRY_MOST)

    def end(self) -> None:
        if self._began is not None:
            log.warning("can %s again after %.1f s", self._intent, time.monotonic() - self._began)
            self._began = None
            self._pause = _RETRY_FIRST
