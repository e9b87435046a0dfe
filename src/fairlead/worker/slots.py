"""The slots of a worker: those of each kind of handler, and what a claim for them asks for.

Tasks of different kinds never compete for a slot, so each kind is claimed for by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from fairlead.engine.worker_records import KindSlots, SlotKind
from fairlead.worker.handlers import HandlerPlace, Handlers

# Named here for every attempt to come, as in `fairlead.core.task`.
_LOOP: Final = HandlerPlace.LOOP
_THREAD: Final = HandlerPlace.THREAD

KINDS: Final[Mapping[HandlerPlace, SlotKind]] = {
    HandlerPlace.LOOP: "async",
    HandlerPlace.THREAD: "thread",
    HandlerPlace.PROCESS: "isolated",
}

MOST_AT_ONCE: Final = 500
"""How many tasks one claim asks for at most."""

_FIRST: Final = 8
_SHARING_REST: Final = 0.002
"""Seconds that a worker which does not know how much there is leaves to others, between two claims."""

_MORE_THREADS: Final = 4
_MOST_THREADS: Final = 10


def cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usual_capacity(place: HandlerPlace, concurrency: int, processors: int) -> int:
    """How many handlers of a kind run at once, unless it is said.

    Coroutines wait for most of their time. Threads may compute, each slowing down all others, and may each want a
    connection of a pool, which has ten more often than not. Processes compute.
    """
    if place is _LOOP:
        return concurrency
    usual = min(processors + _MORE_THREADS, _MOST_THREADS) if place is _THREAD else processors
    return min(usual, concurrency)


class ClaimSize(Struct, frozen=True):
    """How many tasks a claim may ask for: few at first, and more as long as there are as many.

    Whoever wakes up does not know how many others have, and asks for little. A claim that is full shows that there is
    more than one worker has a use for, and one that is not shows how much there is.
    """

    most: int = _FIRST

    def after(self, asked: int, given: int) -> ClaimSize:
        """The same, once a claim has asked for so many and was given so many."""
        if given >= asked:
            return ClaimSize(min(2 * self.most, MOST_AT_ONCE))
        return ClaimSize(min(max(2 * given, _FIRST), MOST_AT_ONCE))


class Slots:
    """The slots for one kind of handler."""

    def __init__(self, kind: SlotKind, capacity: int, types: frozenset[str], on_room: Callable[[], None]) -> None:
        """`on_room` is called when a slot is free after none was."""
        self.kind = kind
        self.capacity = capacity
        self.types = types
        self.free = capacity
        self.rests_until = 0.0
        """When to claim for it again, on the event loop's clock."""
        self.is_spent = False
        """Whether there was nothing for it when it was last claimed for, nor anything for another kind since."""
        self._size = ClaimSize()
        self._on_room = on_room

    @property
    def wish(self) -> int:
        """How many tasks a claim may ask for now."""
        return min(self.free, self._size.most)

    @property
    def count(self) -> KindSlots:
        """What people are shown of it."""
        running = max(0, self.capacity - self.free)
        return KindSlots(kind=self.kind, capacity=self.capacity, running=running, types=tuple(sorted(self.types)))

    def give_back(self) -> None:
        """A handler has ended."""
        self.free += 1
        if self.free == 1:
            # Only then may someone wait for it.
            self._on_room()

    def note(self, asked: int, given: int) -> bool:
        """Take in what came of a claim; whether there may be more, for which it was too small."""
        was_small = asked >= self._size.most < MOST_AT_ONCE
        self._size = self._size.after(asked, given)
        return was_small and given >= asked


class WorkerSlots:
    """All slots of one worker."""

    def __init__(self, handlers: Handlers, capacities: Mapping[HandlerPlace, int], interval: float = 0.0) -> None:
        """`interval` is how often, in seconds, a kind is claimed for in vain while others are at work."""
        self._interval = interval
        self._room = asyncio.Event()
        types: dict[HandlerPlace, set[str]] = {place: set() for place in HandlerPlace}
        for task_type in handlers.types:
            handler = handlers.get(task_type)
            if handler is not None:
                types[handler.place].add(task_type)
        self._by_place = {
            place: Slots(KINDS[place], capacity, frozenset(types[place]), self._room.set)
            for place, capacity in capacities.items()
        }
        self._loop, self._thread = self._by_place[_LOOP], self._by_place[_THREAD]
        self._process = self._by_place[HandlerPlace.PROCESS]
        self.kinds: Sequence[Slots] = [slots for slots in self._by_place.values() if slots.types] or [self._loop]
        """Those that the worker has handlers for."""

    def of(self, place: HandlerPlace) -> Slots:
        """The slots of one kind."""
        return self._loop if place is _LOOP else self._thread if place is _THREAD else self._process

    @property
    def capacity(self) -> int:
        """How many tasks the worker runs at once, of all kinds together."""
        return sum(slots.capacity for slots in self.kinds)

    @property
    def counts(self) -> tuple[KindSlots, ...]:
        """What people are shown of each kind."""
        return tuple(slots.count for slots in self.kinds)

    @property
    def used(self) -> float:
        """How much of the kind that is busiest is in use, from 0 to 1."""
        return max(1 - slots.free / slots.capacity for slots in self.kinds)

    @property
    def room(self) -> int:
        """How many tasks there is room for, of whatever kinds they are."""
        return max(0, min(slots.free for slots in self.kinds))

    @property
    def wish(self) -> int:
        """How many tasks a claim for all kinds may ask for."""
        return min(slots.wish for slots in self.kinds)

    @property
    def are_idle(self) -> bool:
        """Whether each kind has room, and was claimed for in vain."""
        return all(slots.is_spent and slots.free > 0 for slots in self.kinds)

    async def due(self) -> list[Slots]:
        """The kinds to claim for now, as soon as there are any."""
        clock = asyncio.get_running_loop().time
        while not (due := [slots for slots in self.kinds if slots.free > 0 and slots.rests_until <= clock()]):
            self._room.clear()
            rests = [slots.rests_until for slots in self.kinds if slots.free > 0]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(rests) if rests else None):
                    await self._room.wait()
        return due

    def note(self, claims: Sequence[tuple[Slots, int, int]]) -> None:
        """Take in what came of claims that were made in turn: for which slots, how many were asked for and given."""
        now = asyncio.get_running_loop().time()
        found = any(given for _, _, given in claims)
        for slots, asked, given in claims:
            slots.is_spent = not found
            if slots.note(asked, given):
                # Others may want some of what there seems to be.
                slots.rests_until = now + _SHARING_REST
            elif not given and len(self.kinds) > 1:
                slots.rests_until = now + self._interval
        asked_for = {id(slots) for slots, _, _ in claims}
        for slots in self.kinds:
            if found:
                slots.is_spent = False
            elif id(slots) not in asked_for and slots.free > 0:
                # All others have nothing to do: whether this one has is the question now.
                slots.rests_until = 0.0

    def note_wait(self, asked: int, given: int | None) -> None:
        """Take in what came of a wait for all kinds: None if there may be something to claim."""
        now = asyncio.get_running_loop().time()
        for slots in self.kinds:
            slots.is_spent = given == 0
            shares = given is not None and slots.note(asked, given)
            slots.rests_until = now + _SHARING_REST if shares else 0.0

    def stir(self) -> None:
        """Have each kind claimed for again that has room."""
        self.note_wait(0, None)
