"""Bringing a hot store back that has lost what the journal knows of, by itself or because someone asks."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from fairlead.core.errors import StoreError
from fairlead.core.instant import SECOND, Span
from fairlead.core.settings import Rules
from fairlead.storage.journal.incarnation import Condition, Incarnation
from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.outbox import HotStore
from fairlead.storage.journal.rebuild import Rebuilding, Rebuilt

log = logging.getLogger("fairlead.store")

_DUTY: Final = "rebuild"
_LENGTH: Final[Span] = 15 * SECOND
"""After this long another process takes over from one that died."""
_RENEW: Final = 5.0

Tell = Callable[[int, int], None]


class Recovery:
    """Puts everything back. Any number of processes may try; what one does twice changes nothing."""

    def __init__(self, hot: HotStore, journal: Journal, incarnation: Incarnation) -> None:
        self._hot = hot
        self._journal = journal
        self._incarnation = incarnation

    async def once(self, rules: Rules) -> int:
        """Look, and rebuild a store that has lost everything, if that may be and no one else does; how many tasks."""
        condition = await self._incarnation.look()
        if not self._journal.address.rebuild or condition not in (Condition.EMPTY, Condition.REBUILDING):
            return 0
        place = await self._journal.take_duty(_DUTY, _LENGTH)
        if place is None:
            return 0
        try:
            async with self._kept():
                done = await self.run(rules)
        finally:
            await self._journal.give_duty(_DUTY, place)
        log.warning("the Redis store was rebuilt: %d of %d tasks put back", done.put_back, done.looked_at)
        return done.put_back

    async def run(self, rules: Rules, tell: Tell = lambda looked_at, total: None) -> Rebuilt:
        """Put back whatever is missing, and have the store bear the mark; what is lost meanwhile is put back again."""
        incarnation = self._incarnation
        put_back = 0
        while True:
            mark = await incarnation.begin_rebuild()
            now = await self._hot.time() or 0
            open_slots = functools.partial(incarnation.open_slots, mark)
            done = await Rebuilding(self._hot, self._journal, now=now, rules=rules, open_slots=open_slots).run(tell)
            put_back += done.put_back
            if await incarnation.end_rebuild(mark):
                return Rebuilt(done.looked_at, min(put_back, done.looked_at))
            log.warning("the Redis store lost data during the rebuild: rebuilding again")

    @contextlib.asynccontextmanager
    async def _kept(self) -> AsyncIterator[None]:
        """Keep the duty for as long as it takes."""

        async def keep() -> None:
            while True:
                await asyncio.sleep(_RENEW)
                with contextlib.suppress(StoreError):
                    await self._journal.keep_duty(_DUTY, _LENGTH)

        keeping = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeping.cancel()
