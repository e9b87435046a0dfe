"""What the servers do with nothing in front of them: no queue can be faster than that."""

from __future__ import annotations

from msgspec import Struct


class Ceiling(Struct, frozen=True):
    """One figure of a bare server."""

    work: str
    rate: float
    """Tasks, or rows, or commands a second."""
    like: str | None = None
    """The work of a queue that it bounds."""
