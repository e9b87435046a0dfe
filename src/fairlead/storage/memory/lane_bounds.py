"""An index of things by lower bounds of their heads: what is removed is not looked for, but found out when it comes."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable
from typing import Generic, TypeVar

from fairlead.storage.lane_search import Bound
from fairlead.storage.memory.alarm_heap import wants_compacting

Thing = TypeVar("Thing", bound=Hashable)


class LaneBounds(Generic[Thing]):
    """Things that have a head, the one with the least bound first."""

    def __init__(self) -> None:
        self._bounds: dict[Thing, Bound] = {}
        self._heap: list[tuple[Bound, int, Thing]] = []
        """Entries of bounds that were lowered, or of what has left, are stale."""
        self._serial = itertools.count()

    def __len__(self) -> int:
        return len(self._bounds)

    def lower(self, thing: Thing, place: Bound) -> bool:
        """Have a thing no later than at a place; whether that was news."""
        bound = self._bounds.get(thing)
        if bound is not None and bound <= place:
            return False
        self._bounds[thing] = place
        heapq.heappush(self._heap, (place, next(self._serial), thing))
        if wants_compacting(len(self._heap), len(self._bounds)):
            self._heap = [(bound, next(self._serial), each) for each, bound in self._bounds.items()]
            heapq.heapify(self._heap)
        return True

    def leave(self, thing: Thing) -> Bound | None:
        """Take out a thing; the bound that it had."""
        return self._bounds.pop(thing, None)

    def first(self) -> Bound | None:
        """The least bound."""
        heap = self._heap
        while heap:
            bound, _, thing = heap[0]
            if self._bounds.get(thing) == bound:
                return bound
            heapq.heappop(heap)
        return None

    def pop(self) -> tuple[Bound, Thing] | None:
        """Take out the thing with the least bound."""
        bound = self.first()
        if bound is None:
            return None
        *_, thing = heapq.heappop(self._heap)
        del self._bounds[thing]
        return bound, thing
