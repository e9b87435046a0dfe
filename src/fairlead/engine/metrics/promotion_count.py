"""How many tasks were promoted, by day: counted where they are claimed, and added to one record for each day."""

from __future__ import annotations

from collections import Counter
from typing import Final

from fairlead.core.instant import DAY, Instant
from fairlead.engine.records import DecodedRecord, Form, Records, Unread

KIND: Final = "promoted"
"""The kind of record that a day's count is, by the number of the day since 1970."""

FORM: Final = Form(kind=KIND, decode=int, encode=lambda count: b"%d" % count)

_KEPT_DAYS: Final = 2
_TRIES: Final = 20


class Promotions:
    """The tasks that were served as more urgent than they are, because they had waited, by day of UTC."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._store = records.store
        self._counts: Counter[int] = Counter()
        """By day: what was counted here and not yet shared."""

    def count(self, at: Instant) -> None:
        """Count one more."""
        self._counts[at // DAY] += 1

    async def share(self) -> None:
        """Add what was counted here to what all processes have counted, and forget days long past."""
        counts, self._counts = self._counts, Counter()
        for day, count in counts.items():
            if await self._add(day, count):
                await self._forget(day)
            else:
                # Others were always quicker: it is added next time.
                self._counts[day] += count

    async def today(self, now: Instant) -> int:
        """How many were promoted since midnight UTC; what other processes counted may be a heartbeat behind."""
        day = now // DAY
        found = await self._records.find(FORM, str(day))
        return self._counts[day] + (found.value if isinstance(found, DecodedRecord) else 0)

    async def _add(self, day: int, count: int) -> bool:
        for _ in range(_TRIES):
            found = await self._records.find(FORM, str(day))
            if isinstance(found, Unread):
                return False
            number, version = (0, 0) if found is None else (found.value, found.version)
            value = FORM.write(number + count)
            if await self._store.put(KIND, str(day), value, expected=version) is not None:
                return True
        return False

    async def _forget(self, day: int) -> None:
        for each in (await self._records.read(FORM)).kept:
            if int(each.name) <= day - _KEPT_DAYS:
                await self._store.drop(KIND, each.name)
