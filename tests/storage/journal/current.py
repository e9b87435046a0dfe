"""A journal store whose listings are current: what the contract asks is what is found, not how soon."""

from __future__ import annotations

from fairlead.core.identity import TaskId
from fairlead.core.task import Task
from fairlead.storage.journal.duties import Flusher
from fairlead.storage.journal.rows import Search
from fairlead.storage.journal.store import JournalStore
from fairlead.storage.values import Tally


class CurrentStore(JournalStore):
    """Carries all notes to the journal before it searches, and tallies as the contract knows it."""

    async def tally(self) -> Tally:
        return await self.hot.tally()

    async def search(
        self, search: Search, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        await Flusher(self.hot, self.journal).all()
        return await super().search(search, limit=limit, newest_first=newest_first, after=after)
