"""Leases as workers elsewhere hold them: one opaque string, which is all that a fenced settle needs beside the task."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.identity import LeaseToken, WorkerId
from fairlead.core.task import Lease, State, Task

_SEALED: Final = re.compile(r"([0-9]{1,15})\.([A-Za-z0-9_=-]{1,64})")
_NOBODYS: Final = LeaseToken("none")


class Grip(Struct, frozen=True):
    """What a sealed lease says: the version that the task had when it was claimed, and the claim's token."""

    version: int
    token: LeaseToken


def seal(task: Task) -> str:
    """The lease of a task that was just claimed."""
    lease = task.status.lease
    if lease is None:
        raise ValueError(f"task {task.id} is {task.state}: only one that was just claimed has a lease to give out")
    return f"{task.status.version}.{lease.token}"


def unseal(text: str) -> Grip:
    """What a lease says. A text that is no lease is one that nobody holds: it is lost like any other that has ended."""
    found = _SEALED.fullmatch(text)
    return Grip(int(found[1]), LeaseToken(found[2])) if found else Grip(0, _NOBODYS)


def as_claimed(task: Task, grip: Grip, worker: WorkerId) -> Task:
    """A stored task as the holder of a lease knows it.

    If the lease still stands, that is the task as it is stored. Otherwise it is one that the store will not take a
    change for, unless it is the very change that ended the lease.
    """
    held = task.status.lease
    if held is not None and held.token == grip.token:
        return task
    lease = Lease(token=grip.token, worker=worker, until=0)
    return Task(task.spec, replace(task.status, state=State.EXECUTING, version=grip.version, lease=lease))
