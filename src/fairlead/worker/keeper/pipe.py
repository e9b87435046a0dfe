"""What a worker and its keeper process tell each other over pipes, and how.

A keeper that dozes has imported no more than this and its own module, so nothing large is imported here.
"""

from __future__ import annotations

import marshal
import os

TYPE_CHECKING = False
"""As typing has it, which would be the largest import here."""

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from fairlead.core.identity import LeaseToken, TaskId

HEADER = 4
"""The bytes before each message, which say how long it is."""


def frame(message: tuple[Any, ...]) -> bytes:
    """A message as it goes over a pipe, in the interpreter's own format: both ends are the same interpreter."""
    packed = marshal.dumps(message)
    return len(packed).to_bytes(HEADER, "big") + packed


class Orders:
    """What a keeper process must know."""

    def __init__(self, worker: int, moment: float, rest: float, at_once: bool, brief: bytes) -> None:
        self.worker = worker
        """The process whose leases it keeps."""
        self.moment = moment
        """How long, in seconds, a lease may be held before it is looked after."""
        self.rest = rest
        """After so many seconds with nothing to keep it gives back what it took for that."""
        self.at_once = at_once
        """Whether it opens the store first of all, and says that it is there when it has."""
        self.brief = brief
        """How to open the store: a packed `fairlead.worker.keeper.lease_renewal.Brief`."""


def hand_over(orders: Orders) -> int:
    """A file from which orders can be read once: they hold secrets, which the arguments of a process would show."""
    reading, writing = os.pipe()
    # A few hundred bytes, where a pipe holds thousands: it need not be read for this to end.
    os.write(writing, marshal.dumps((orders.worker, orders.moment, orders.rest, orders.at_once, orders.brief)))
    os.close(writing)
    return reading


def take_over(file: int) -> Orders:
    """The orders that were handed over."""
    with open(file, "rb") as stream:
        return Orders(*marshal.load(stream))  # noqa: S302 - from the process that started this one


def forget(held: dict[TaskId, LeaseToken], leases: Mapping[TaskId, LeaseToken], *notes: dict[TaskId, float]) -> None:
    """Hold these leases no more; a task may be held anew while the end of its last attempt is still told."""
    for task_id, token in leases.items():
        if held.get(task_id) == token:
            held.pop(task_id, None)
            for note in notes:
                note.pop(task_id, None)
