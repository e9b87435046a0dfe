"""What the journal asks of a hot store beyond the storage contract: to note which tasks have changed.

An outbox holds ids, not values: a task that is claimed and settled before anyone looks is written to the journal once.
A noted id is read by one reader at a time; if that one dies, another gets it some seconds later. Nothing is lost by
reading twice, because the journal only takes a higher version.

    O1  A claim or change that is made is noted, in one step with it; a removal is noted as such. Heartbeats, adds and
        `leave` are not.
    O2  What `read` gave is hidden from other reads for `HIDDEN` microseconds, unless it is noted again.
    O3  `done` takes out a task that is still at the version given, and a removal; a task that has changed since stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

from msgspec import Struct

from fairlead.core.identity import TaskId
from fairlead.core.instant import SECOND, Span
from fairlead.storage.protocol import Examined, Store
from fairlead.storage.values import Change, Verdict

HIDDEN: Final[Span] = 10 * SECOND
"""How long what one reader got is hidden from the others."""


class Note(Struct, frozen=True, gc=False):
    """A task that has changed, or was removed."""

    id: TaskId
    removed: bool = False


class Done(Struct, frozen=True, gc=False):
    """A note that the journal has taken: of a task at this version, or of a removal."""

    note: Note
    version: int = 0


@runtime_checkable
class Outbox(Protocol):
    """The notes of a hot store."""

    async def note(self, ids: Sequence[TaskId], *, after: Span = 0) -> None:
        """Note tasks, to be read once so much time has passed."""
        ...

    async def read(self, limit: int) -> list[Note]:
        """Some notes, hidden from other readers for a while."""
        ...

    async def done(self, done: Sequence[Done]) -> None:
        """Take out what the journal has."""
        ...

    async def size(self) -> int:
        """How many notes there are, hidden ones included."""
        ...

    async def leave(self, changes: Sequence[Change]) -> list[Verdict]:
        """Remove tasks without noting it: the journal keeps them."""
        ...


class HotStore(Store, Outbox, Examined, Protocol):
    """A store that can have a journal behind it."""
