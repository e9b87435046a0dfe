"""What all requests of one server process share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.core.errors import StoreUnavailable
from fairlead.core.explain.explanation import Cause
from fairlead.core.queues.order import Table
from fairlead.engine.engine import Submitted
from fairlead.engine.metrics.collector import Metrics
from fairlead.engine.worker_tasks import HeldTasks
from fairlead.server.admission import Admission
from fairlead.server.auth.gate import Gate
from fairlead.server.http.bodies import BodyReader, Deadlines
from fairlead.server.live.broadcast import Broadcast, Endings
from fairlead.server.live.queue_depths import Ages, Depths, Recorder, StatsAnswers
from fairlead.server.settings import ServerSettings
from fairlead.server.worker_protocol.dispatch import Dispatcher
from fairlead.server.worker_protocol.registry import RegisteredWorkers
from fairlead.storage.deadline import GRACE, patience_of
from fairlead.wire.explanations import CauseShown, cause_shown

Result = TypeVar("Result")

_LOOKS: Final = 16
"""How often it is looked, within the time of one call to the store, whether requests are late."""


class Allowance:
    """How long the store may keep one request waiting, over all that it is asked for it, from the caller's key on.

    The time counts within `with`, again and again; when it is over StoreUnavailable is raised there.
    """

    __slots__ = ("_deadlines", "_end", "_patience", "_rest", "_task")

    _end: float
    _task: asyncio.Task[Any]

    def __init__(self, patience: float, deadlines: Deadlines) -> None:
        self._patience = patience
        self._rest = patience + GRACE
        self._deadlines = deadlines

    def __enter__(self) -> None:
        self._end = time.monotonic() + self._rest
        self._task = self._deadlines.begin(self._end)

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._rest = self._end - time.monotonic()
        late = kind is asyncio.CancelledError and self._deadlines.is_late(self._task)
        self._deadlines.end(self._task)
        if late:
            self._task.uncancel()
            raise StoreUnavailable(
                f"the store did not answer within {self._patience:g} s; whether anything was done is unknown"
            ) from None


class ServerState:
    """The engine, and what the server keeps beside it."""

    def __init__(
        self,
        engine: AdminEngine,
        settings: ServerSettings | None = None,
        gate: Gate | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.engine = engine
        self.metrics = metrics
        """What this process counts, if it does."""
        self.settings = settings or ServerSettings()
        self.gate = gate or Gate(Keyring(engine), self.settings)
        self.stopping = asyncio.Event()
        """Set when the server is asked to leave: whatever waits or streams then comes to its end."""
        self.registered = RegisteredWorkers(engine)
        self.held = HeldTasks(engine.store, engine.settings, engine.clock)
        self.dispatcher = Dispatcher(engine, self.stopping)
        self.broadcast = Broadcast(engine, self.stopping)
        self.bodies = BodyReader(self.settings.body_seconds)
        self.depths = Depths(engine)
        self.admission = Admission(engine, self.settings.admission, metrics)
        self.ages = Ages(engine)
        self.stats_answers = StatsAnswers()
        self.history = Recorder(engine, self.depths)
        self.endings = Endings(engine, self.stopping)
        self._patience = patience_of(engine.store)
        self._deadlines = Deadlines(self._patience / _LOOKS)
        self._doubts: tuple[Cause, ...] = ()
        self._warnings: Sequence[CauseShown] = ()

    def allowance(self) -> Allowance:
        """The time of one call to the store, for a request that has just come."""
        return Allowance(self._patience, self._deadlines)

    async def in_time(self, answer: Awaitable[Result]) -> Result:
        """An answer, within the time of one call to the store: none takes the sum of the calls that it makes."""
        with self.allowance():
            return await answer

    async def warnings(self, submitted: Submitted, tenant: str | None) -> Sequence[CauseShown]:
        """Why no live worker could run a task that was just submitted, as it is told to this tenant, or to anybody.

        Mostly that is what was told before.
        """
        doubts = await self.engine.doubts(submitted, tenant)
        if doubts is not self._doubts:
            self._doubts, self._warnings = doubts, [cause_shown(cause) for cause in doubts]
        return self._warnings

    async def tables(self) -> Callable[[str], Table]:
        """What says, by queue, how the wait of a task counts."""
        queue_cache = self.engine.queue_cache
        if queue_cache.stale:
            await queue_cache.refresh()
        return queue_cache.table_of
