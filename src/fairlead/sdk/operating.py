"""What an app's owner does with what is in its store. Each is a thin face of one engine function."""

from __future__ import annotations

from fairlead.core.diagnosis import Diagnosis
from fairlead.engine.inline import run_inline
from fairlead.engine.stats import Stats
from fairlead.sdk.connection import Link
from fairlead.sdk.fleet import AppWorkers
from fairlead.sdk.operations import AppOperations
from fairlead.sdk.queues import AppQueues
from fairlead.sdk.tasks import AppDeadLetters, AppTasks


class Operated:
    """An app as those who operate it see it."""

    def connection(self) -> Link:
        """The way to the store, or to the server in front of it."""
        raise NotImplementedError

    @property
    def tasks(self) -> AppTasks:
        """The tasks: to search, cancel, replay and discard."""
        return AppTasks(self.connection)

    @property
    def dead_letters(self) -> AppDeadLetters:
        """The dead letters: to search and to group by error."""
        return AppDeadLetters(self.connection)

    @property
    def operations(self) -> AppOperations:
        """Actions on many tasks: to preview, start, follow, pause, resume and cancel."""
        return AppOperations(self.connection)

    @property
    def queues(self) -> AppQueues:
        """The queues: to pause, resume, change and purge."""
        return AppQueues(self.connection)

    @property
    def workers(self) -> AppWorkers:
        """The workers, wherever they run: to look at and to drain."""
        return AppWorkers(self.connection)

    async def stats(self) -> Stats:
        """How the queues stand, and the workers; costs the same however many tasks there are."""
        return await (await self.connection().engine()).stats()

    async def diagnose(self) -> Diagnosis:
        """Whether all is as it should be, and what to do if it is not; what `fairlead doctor` shows."""
        return await (await self.connection().engine()).diagnose()

    def stats_sync(self) -> Stats:
        """`stats`, from synchronous code."""
        return run_inline(self.connection().inline().stats())

    def diagnose_sync(self) -> Diagnosis:
        """`diagnose`, from synchronous code."""
        return run_inline(self.connection().inline().diagnose())
