"""Turns: how long work over many things shares its event loop with what else runs there."""

from __future__ import annotations

import asyncio
from typing import Final

LENGTH: Final = 0.002
"""Seconds that one turn takes, or hardly more."""
FEW: Final = 8
"""How many things are done in one turn, however long each takes."""


class Turn:
    """A turn of the running event loop; where there is none, because the engine is driven without one, it never ends.

    After each thing that is done ask `is_over`, and if it is, `await next()`. Of a few things, to ask would take longer
    than to do them: their turn does not end.
    """

    __slots__ = ("_end", "_loop")

    def __init__(self, things: int, *, looped: bool = True) -> None:
        self._loop = asyncio.get_running_loop() if looped and things > FEW else None
        self._end = 0.0 if self._loop is None else self._loop.time() + LENGTH

    @property
    def is_over(self) -> bool:
        """Whether others are to have their turn now."""
        return self._loop is not None and self._loop.time() >= self._end

    async def next(self) -> None:
        """Let others have their turn."""
        await asyncio.sleep(0)
        if self._loop is not None:
            self._end = self._loop.time() + LENGTH
