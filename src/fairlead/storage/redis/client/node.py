"""One server, as the client sees it, and the patience with which it is tried again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias

from fairlead.storage.redis.client.resp import Greeting, Reply
from fairlead.storage.redis.url import Host

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0


class Interrupted(asyncio.CancelledError):
    """An exchange was cancelled, and these replies came nevertheless."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        super().__init__()
        self.replies = replies


Release: TypeAlias = Callable[[], Awaitable[object]]
"""Has the server go on with what it holds up."""


class Node(Protocol):
    """One server and the connections to it.

    Over the blocking transport the coroutines of a node never suspend.
    """

    host: Host
    greeted: Greeting | None
    """What the server said of itself when last connected to, if it ever was."""

    async def greeting(self) -> Greeting:
        """What the server said of itself when last connected to; connects if it never was."""
        ...

    async def exchange(
        self,
        payload: bytes,
        count: int,
        *,
        timeout: float | None = None,
        alone: bool = False,
        release: Release | None = None,
    ) -> list[Reply]:
        """Send packed commands and return their replies. Raises Broken.

        With `alone`, the connection is no one else's meanwhile: for commands that make the server hold it up. With
        `release`, what was done is known even if this is cancelled: the server is released, and Interrupted raised; or
        Broken, if it does not say.
        """
        ...

    def renew(self) -> None:
        """Use the connections that there are no more, because they are nobody's by now: the next call makes another."""
        ...

    def close(self) -> None:
        """Give the connections back."""
        ...


MakeNode: TypeAlias = Callable[[Host, bool], Node]
"""Makes the node of a host; the flag says that it is a sentinel."""

Sleep: TypeAlias = Callable[[float], Awaitable[None]]


class Patience:
    """How long to leave a server alone that cannot be reached: longer each time, and never in step with others."""

    def __init__(self) -> None:
        self._failures = 0
        self._not_before = 0.0

    def pause(self) -> float:
        """Seconds to wait before the next try."""
        return max(0.0, self._not_before - time.monotonic())

    def failed(self) -> None:
        """The server could not be reached."""
        longest = min(_FIRST_PAUSE * 2**self._failures, _LONGEST_PAUSE)
        self._failures = min(self._failures + 1, 10)
        self._not_before = time.monotonic() + longest * (0.5 + random.random() / 2)  # noqa: S311 - jitter, no secret

    def succeeded(self) -> None:
        """The server was reached."""
        self._failures = 0
        self._not_before = 0.0
