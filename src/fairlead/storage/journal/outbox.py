"""What the journal asks of a hot store beyond the storage contract: to note which tasks have changed.

An outbox holds ids, not values: a task that is claimed and settled before anyone looks is written to the journal once.
A noted id is read by one reader at a time; if that one dies, another gets it some seconds later. Nothing is lost by
reading twice, because the journal only takes a higher version.

    O1  A claim or change that is made is noted, in one step with it, and so is a task that an end was counted for; a
        removal is noted as such. Heartbeats, adds and
        `leave` are not.
    O2  What `read` gave is hidden from other reads for `HIDDEN` microseconds, unless it is noted again. A note that is
        hidden for more than twice as long from now is of a clock that has gone back since: it is read at once.
    O3  `done` takes out a task that is still at the version given, and a removal; a task that has changed since stays.
    O4  An add with a `mark` stores a task with an idempotency key only if its slot bears that mark, in one step with
        the comparison; else it is answered `KeyUnknown`, and the other tasks of the call are stored all the same.
        `marks` says what slots bear, and the store itself as `ROOT`; `put_mark` compares and sets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol, runtime_checkable

from msgspec import Struct

from fairlead.core.identity import TaskId
from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.task import State, Task
from fairlead.storage.protocol import Examined, Quarantining, Sharing, Store
from fairlead.storage.values import Change, Receipt, Verdict

ROOT: Final = -1
"""Stands for the store as a whole, where slots are named."""

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

    async def slots(self) -> set[int]:
        """The slots that may have tasks."""
        ...

    async def marks(self, slots: Collection[int]) -> dict[int, str | None]:
        """What these slots bear."""
        ...

    async def put_mark(self, mark: str, slots: Collection[int], *, over: str | None) -> set[int]:
        """Have those of the slots bear a mark that bear this one, or none; which of them bear it now."""
        ...

    async def leave(self, changes: Sequence[Change]) -> list[Verdict]:
        """Remove tasks without noting it: the journal keeps them."""
        ...


@runtime_checkable
class HotStore(Store, Outbox, Examined, Quarantining, Sharing, Protocol):
    """A store that can have a journal behind it."""

    async def add(
        self,
        tasks: Sequence[Task],
        *,
        now: Instant | None = None,
        bounds: Mapping[str, int],
        elsewhere: Mapping[TaskId, State] | None = None,
        mark: str | None = None,
    ) -> list[Receipt]:
        """Store new tasks; `elsewhere` is how those stand that they may wait for and that are not in this store.

        With a mark, tasks with idempotency keys are stored only in slots that bear it (O4).

        One of those that has not ended is waited for: it will be put back, or `count_ends` will say that it has ended.
        """
        ...

    async def count_ends(self, ended: Mapping[TaskId, State]) -> bool:
        """Count the ends of tasks that are not in this store; whether anyone has nothing left to wait for (D2)."""
        ...
