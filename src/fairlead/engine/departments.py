"""The parts of an engine that have a page of their own.

Each is made when it is first asked for: a worker's keeper of leases needs none of them, and should not pay for them.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from fairlead.core.identity import TaskId
from fairlead.core.settings import Settings
from fairlead.core.task import Task
from fairlead.engine.clock import Clock
from fairlead.engine.identity import IdMaker
from fairlead.engine.ledger import Ledger
from fairlead.engine.presence import Presence
from fairlead.storage.protocol import Store

if TYPE_CHECKING:
    from fairlead.engine.circuits import Circuits
    from fairlead.engine.dead_letters import DeadLetters
    from fairlead.engine.explaining import Explainer
    from fairlead.engine.fleet import Fleet
    from fairlead.engine.lookout import Lookout
    from fairlead.engine.operations import Operations
    from fairlead.engine.queues import Queues
    from fairlead.engine.scheduling import Schedules
    from fairlead.engine.searching import Searcher


class Departments(ABC):
    """What an engine has beside its own use cases."""

    store: Store
    settings: Settings
    clock: Clock
    presence: Presence
    _ledger: Ledger
    _ids: IdMaker
    _batching: bool

    @abstractmethod
    async def cancel(self, task_id: TaskId) -> Task:
        """Cancel a task: what a schedule does that replaces its last run."""

    @functools.cached_property
    def workers(self) -> Fleet:
        """The workers and their tasks."""
        from fairlead.engine.fleet import Fleet

        return Fleet(self.store, self.clock, self.presence)

    @functools.cached_property
    def queues(self) -> Queues:
        """What is said of single queues, and of task types that are paused."""
        from fairlead.engine.queues import Queues

        return Queues(self._ledger)

    @functools.cached_property
    def circuits(self) -> Circuits:
        """The circuits of task types."""
        from fairlead.engine.circuits import Circuits

        return Circuits(self._ledger)

    @functools.cached_property
    def schedules(self) -> Schedules:
        """The schedules, and their firing."""
        from fairlead.engine.firing import Firing
        from fairlead.engine.scheduling import Schedules

        firing = Firing(self._ledger, self._ids.task_ids, self.cancel, batching=self._batching)
        return Schedules(self._ledger, firing, self._ids.task_id)

    @functools.cached_property
    def dead_letters(self) -> DeadLetters:
        """The dead letters, grouped."""
        from fairlead.engine.dead_letters import DeadLetters

        return DeadLetters(self._searcher, self.settings, self.clock)

    @functools.cached_property
    def operations(self) -> Operations:
        """Actions on all tasks that a query means."""
        from fairlead.engine.operations import Operations
        from fairlead.engine.searching import Searcher

        return Operations(self._ledger, Searcher(self.store, batching=self._batching, current=True), self._ids)

    @functools.cached_property
    def _explainer(self) -> Explainer:
        from fairlead.engine.explaining import Explainer

        return Explainer(self._ledger, self.presence)

    @functools.cached_property
    def _lookout(self) -> Lookout:
        from fairlead.engine.lookout import Lookout

        return Lookout(self.presence, self.clock)

    @functools.cached_property
    def _searcher(self) -> Searcher:
        from fairlead.engine.searching import Searcher

        return Searcher(self.store, batching=self._batching)
