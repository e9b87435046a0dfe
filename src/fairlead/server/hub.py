"""What all requests of one server process share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from fairlead.core.explanation import Cause
from fairlead.core.order import Table
from fairlead.engine.engine import Engine, Submitted
from fairlead.engine.keys import Keyring
from fairlead.engine.metrics import Metrics
from fairlead.server.bodies import Reader
from fairlead.server.broadcast import Broadcast
from fairlead.server.dispatch import Dispatcher
from fairlead.server.endings import Endings
from fairlead.server.gate import Gate
from fairlead.server.history import Recorder
from fairlead.server.roster import Roster
from fairlead.server.settings import ServerSettings
from fairlead.server.standing import Depths
from fairlead.wire.explanations import CauseShown, cause_shown


class Hub:
    """The engine, and what the server keeps beside it."""

    def __init__(
        self,
        engine: Engine,
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
        self.roster = Roster(engine)
        self.dispatcher = Dispatcher(engine, self.stopping)
        self.broadcast = Broadcast(engine, self.stopping)
        self.bodies = Reader(self.settings.body_seconds)
        self.depths = Depths(engine)
        self.history = Recorder(engine, self.depths)
        self.endings = Endings(engine, self.stopping)
        self._doubts: tuple[Cause, ...] = ()
        self._warnings: Sequence[CauseShown] = ()

    async def warnings(self, submitted: Submitted) -> Sequence[CauseShown]:
        """Why no live worker could run a task that was just submitted, as it is told; mostly what was told before."""
        doubts = await self.engine.doubts(submitted)
        if doubts is not self._doubts:
            self._doubts, self._warnings = doubts, [cause_shown(cause) for cause in doubts]
        return self._warnings

    async def tables(self) -> Callable[[str], Table]:
        """What says, by queue, how the wait of a task counts."""
        await self.engine.book.refresh()
        return self.engine.book.table_of
