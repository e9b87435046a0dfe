"""Whether anyone could run what is submitted: looked up seldom, asked often."""

from __future__ import annotations

from typing import Final

from fairlead.core.errors import StoreError
from fairlead.core.explanation import Cause
from fairlead.core.instant import SECOND, Span
from fairlead.core.task import Task
from fairlead.engine.ability import obstacle
from fairlead.engine.clock import Clock
from fairlead.engine.presence import Presence, WorkerPresence

FRESH: Final[Span] = 5 * SECOND
"""How long what was read of the workers is used without another look."""


class Lookout:
    """The workers as one engine last saw them."""

    def __init__(self, presence: Presence, clock: Clock) -> None:
        self._presence = presence
        self._clock = clock
        self._looked_at: Span | None = None
        self._workers: list[WorkerPresence] | None = None
        self._doubts: dict[tuple[str, str, tuple[str, ...]], tuple[Cause, ...]] = {}
        """By queue, type and capability set."""

    async def doubts(self, task: Task) -> tuple[Cause, ...]:
        """Why no live worker could run a task; none if one could, or if the store cannot tell.

        One look at the workers serves all who ask within five seconds; who asks during the look gets the answer before.
        """
        now = self._clock.monotonic()
        if self._looked_at is None or now - self._looked_at >= FRESH:
            self._looked_at = now
            await self._look()
        if self._workers is None:
            return ()
        spec = task.spec
        kind = spec.queue, spec.type, spec.requires
        found = self._doubts.get(kind)
        if found is None:
            cause = obstacle(self._workers, task.lane)
            found = self._doubts[kind] = () if cause is None else (cause,)
        return found

    async def _look(self) -> None:
        try:
            self._workers = await self._presence.workers()
        except StoreError:
            self._workers = None
        self._doubts.clear()
