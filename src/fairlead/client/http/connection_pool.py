"""Connections that wait for the next request."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections import deque
from typing import Final, Generic, Protocol, TypeVar

_KEPT: Final = 5.0
"""How many seconds a connection is kept that nobody uses: servers and proxies keep theirs for no less."""


class Connection(Protocol):
    """What can wait here."""

    used: float
    """When a reply last came, by the monotonic clock."""

    def is_alive(self) -> bool:
        """Whether the server has, as far as can be seen from here, not hung up."""
        ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Connection)


class Idle(Generic[C]):
    """The connections to one server that nobody uses; safe for threads."""

    def __init__(self) -> None:
        self._connections: deque[C] = deque()
        self._process = os.getpid()

    def take(self) -> C | None:
        """The one that was used last and is still good; None if a new one is needed."""
        if self._process != os.getpid():
            # A fork shares its parent's sockets; talking on them would mix up both conversations.
            self._connections, self._process = deque(), os.getpid()
        with contextlib.suppress(IndexError):
            while True:
                connection = self._connections.pop()
                if time.monotonic() - connection.used < _KEPT and connection.is_alive():
                    return connection
                connection.close()
        return None

    def put(self, connection: C) -> None:
        """Keep one for a while, and let go of those that were not needed for long."""
        connection.used = time.monotonic()
        self._connections.append(connection)
        with contextlib.suppress(IndexError):
            while connection.used - self._connections[0].used > _KEPT:
                self._connections.popleft().close()

    def close(self) -> None:
        """Let go of all."""
        with contextlib.suppress(IndexError):
            while True:
                self._connections.pop().close()


def has_news(fileno: int) -> bool:
    """Whether there is something to read from a socket. Where nothing is due, it is a farewell."""
    if not hasattr(select, "poll"):
        return bool(select.select([fileno], [], [], 0)[0])
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    return bool(poll.poll(0))
