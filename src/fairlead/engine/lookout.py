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

    @property
    def stale(self) -> bool:
        """Whether it is time to look again: one look at the workers serves all who ask within five seconds."""
        return self._looked_at is None or self._clock.monotonic() - self._looked_at >= FRESH

    def doubts(self, task: Task) -> tuple[Cause, ...]:
        """Why no live worker could run a task; none if one could, or if the store could not tell."""
        if self._workers is None:
            return ()
        spec = task.spec
        kind = spec.queue, spec.type, spec.requires
        found = self._doubts.get(kind)
        if found is None:
            cause = obstacle(self._workers, task.lane)
            found = self._doubts[kind] = () if cause is None else (cause,)
        return found

    async def look(self) -> None:
        """Look at the workers; who asks meanwhile gets the answer before."""
        self._looked_at = self._clock.monotonic()
        try:
            self._workers = await self._presence.workers()
        except StoreError:
            self._workers = None
        self._doubts.clear()
