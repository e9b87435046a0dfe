"""One deadline for each call of a store, over all that the call does: tries, waits for a connection, further servers.

A limit on each step would let a call take the sum of its steps. So the operations of a store that reaches for something
which may hang are `timed`: the deadline is set where the call comes in, and whatever waits below asks how much of it is
`left`. A call within a call has the deadline of the outer one. On an event loop somebody looks in behind that, for what
asks nobody: at all calls under way together, every so often, because a timer for each would cost each of them more than
the rest of what is here.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct

from fairlead.core.errors import FairleadError, StoreMismatch, StoreUnavailable
from fairlead.storage.quarantine import UNDECODABLE

PATIENCE: Final = 5.0
"""Seconds after which a call is given up, unless the store's URL says otherwise."""

GRACE: Final = 0.25
"""How much longer what asks nobody is left alone: whoever knows what was waited for should say it."""

_LOOK_EVERY: Final = 0.25
"""Seconds between two looks at the calls under way; a call is cut off that much after its grace at the most."""

_SLACK: Final = 0.05
"""A limit that is nearly all there is left as it is: to set another one costs a socket a system call."""

OPERATIONS: Final = (
    "add", "claim", "extend", "apply", "get", "due", "find", "search", "find_current", "history", "holder", "tally",
    "count", "usage", "put", "drop", "scan", "publish", "feed", "feed_end", "time", "check", "note", "read", "done",
    "size", "leave", "count_ends", "forget_unused", "curtail", "line_keys",
)  # fmt: skip
"""What a store does of its own accord and at once. Waiting for work and examining a store take as long as they take."""

_LOOKS: Final = frozenset(
    (
        "claim", "extend", "get", "due", "find", "holder", "tally", "count", "usage", "scan", "feed", "feed_end",
        "curtail", "examine", "line_keys",
    )
)  # fmt: skip
"""Operations that are given nothing which might not be stored: what they cannot make sense of, the store holds."""


class _Deadline(Struct, eq=False):
    """When a call ends. Never, once it is over: tasks that it has started may go on after it."""

    end: float
    rang: bool = False
    """Whether the call was cut off."""
    watched: bool = False
    """Whether somebody looks in behind it."""
    task: asyncio.Task[Any] = None  # type: ignore[assignment]
    """The task that makes the call, on an event loop."""
    asked_before: int = 0
    """How often that was asked to stop before."""

    @property
    def cut_off(self) -> bool:
        """Whether the call was cut off and nobody asked it to stop besides: then that is theirs to see."""
        return self.rang and self.task.cancelling() <= self.asked_before + 1


class _Watch:
    """Looks at the calls under way on one event loop, and cuts off those that are over."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._under_way: set[_Deadline] = set()
        self._awake = False

    def begin(self, deadline: _Deadline) -> None:
        """Look at the call that this task begins, until it ends."""
        task = asyncio.current_task(self.loop)
        if task is None:
            raise RuntimeError("a store on an event loop is called from its tasks only")
        deadline.task, deadline.asked_before, deadline.watched = task, task.cancelling(), True
        self._under_way.add(deadline)
        if not self._awake:
            self._awake = True
            self.loop.call_later(_LOOK_EVERY, self._look)

    def end(self, deadline: _Deadline) -> None:
        """Leave a call alone that has ended."""
        self._under_way.discard(deadline)
        if deadline.rang:
            deadline.task.uncancel()

    def _look(self) -> None:
        over = time.monotonic() - GRACE
        for deadline in [deadline for deadline in self._under_way if deadline.end <= over]:
            self._under_way.discard(deadline)
            deadline.rang = True
            deadline.task.cancel()
        self._awake = bool(self._under_way)
        if self._awake:
            self.loop.call_later(_LOOK_EVERY, self._look)


_current: ContextVar[_Deadline | None] = ContextVar("deadline", default=None)

Class = TypeVar("Class", bound=type)
Operation = TypeVar("Operation", bound=Callable[..., Awaitable[Any]])


class Budget:
    """How long the calls of a store may take."""

    def __init__(self, seconds: float, place: object, *, blocking: bool) -> None:
        self.seconds = seconds
        self.place = place
        self.blocking = blocking
        self._watch: _Watch | None = None

    def watch(self) -> _Watch:
        """Who looks at the calls on this event loop; nearly always the store is used from one."""
        loop, watch = asyncio.get_running_loop(), self._watch
        if watch is None or watch.loop is not loop:
            watch = self._watch = _Watch(loop)
        return watch

    def spent(self) -> StoreUnavailable:
        """Our error for a call that took too long."""
        return StoreUnavailable(
            f"{self.place} did not answer within {self.seconds:g} s; whether the call took effect is unknown, "
            f"repeating it is safe. A longer limit is ?timeout=seconds in the store URL"
        )

    def unsound(self, error: Exception) -> StoreMismatch:
        """Our error for what can be no task and no record, and cannot be set aside: an index, or a count."""
        return StoreMismatch(
            f"{self.place} is damaged beside its tasks and records: {type(error).__name__}: {error}; restore it from a "
            f"backup, or with a journal empty it and run `fairlead rebuild`"
        )


class Timed(Protocol):
    """A store whose calls end in time."""

    budget: Budget


def left(longest: float) -> float:
    """How many seconds may be waited: so many, or what is left of the call's deadline; at least 0."""
    deadline = _current.get()
    if deadline is None:
        return longest
    rest = deadline.end - time.monotonic()
    return longest if rest >= longest * (1 - _SLACK) else max(rest, 0.0)


def until(longest: float) -> float:
    """Until when may be waited, on the monotonic clock: the deadline of the call, or so many seconds from now."""
    deadline = _current.get()
    return time.monotonic() + longest if deadline is None or deadline.end == math.inf else deadline.end


def remaining(deadline: float) -> float:
    """How many seconds are left until a moment of the monotonic clock; at least 0."""
    return max(deadline - time.monotonic(), 0.0)


@contextlib.contextmanager
def share(of: int, longest: float) -> Iterator[None]:
    """So many servers are to be tried in turn, and here is the first: it may take its share of what is left alone.

    Or one that hangs would leave no time for the others, in this call and in each that follows.
    """
    token = _current.set(_Deadline(time.monotonic() + left(longest) / max(of, 1)))
    try:
        yield
    finally:
        _current.reset(token)


def timed_store(store: Class) -> Class:
    """Give each operation that the class defines its deadline."""
    for name in OPERATIONS:
        if name in vars(store):
            setattr(store, name, timed(vars(store)[name]))
    return store


def timed(operation: Operation) -> Operation:
    """An operation of a store that ends in time."""

    looks = operation.__name__ in _LOOKS

    @functools.wraps(operation)
    async def call(self: Timed, *given: Any, **named: Any) -> Any:
        budget, outer = self.budget, _current.get()
        end = time.monotonic() + budget.seconds
        if outer is not None and outer.end <= end:
            if outer.watched or budget.blocking:
                return await operation(self, *given, **named)
            end = outer.end
        deadline = _Deadline(end)
        watch = None if budget.blocking else budget.watch()
        if watch is not None:
            watch.begin(deadline)
        token = _current.set(deadline)
        try:
            return await operation(self, *given, **named)
        except asyncio.CancelledError:
            if deadline.cut_off:
                raise budget.spent() from None
            raise
        except UNDECODABLE as error:
            if not looks or deadline.rang or isinstance(error, FairleadError):
                raise
            raise budget.unsound(error) from error
        finally:
            deadline.end = math.inf
            _current.reset(token)
            if watch is not None:
                watch.end(deadline)

    return call  # type: ignore[return-value]


def patience_of(store: object) -> float:
    """Seconds in which a call of this store ends."""
    budget: Budget | None = getattr(store, "budget", None)
    return PATIENCE if budget is None else budget.seconds
