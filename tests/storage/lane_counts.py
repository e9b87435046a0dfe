"""Queues whose tasks are of many types, and stores with many queues: what a claim, a submit or a count must not feel.

A store's test counts the steps that each operation takes (commands, rows, pages), never its time, and holds the number
with many lanes to a multiple of that with one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.instant import SECOND
from fairlead.core.queues.limits import Limit, Limits
from fairlead.core.queues.order import Promote
from fairlead.core.task import Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Claim
from fairlead.testing.builders import NOW, a_claim, a_task

MANY: Final = (100, 1_000, 10_000)
"""How many types there are beside the one of the comparison."""
MOST_QUEUES: Final = 1_000
_BATCH: Final = 1_000


class Crowd(Struct, frozen=True, kw_only=True):
    """Waiting tasks of many types or queues, and what is special about some of them."""

    name: str = "plain"
    types: int = 1
    queues: int = 1
    tasks: int = 0
    """0: two of each lane, and 400 at least."""
    capability_of_every_second: bool = False
    """Every second type asks for what the worker lacks."""
    knows_every_second: bool = False
    """The worker has handlers for every second type only."""
    paused_every_second: bool = False
    """Every second type is paused."""
    limited: bool = False
    """The queues have a limit on what runs, which is far off."""
    keyed: bool = False
    """One task has a concurrency key."""
    keys: int = 0
    """How many fair keys there are; 0 for tasks that take no turns."""
    aside_first: bool = False
    """What the worker may not take has waited longer than all that it may; otherwise they alternate."""

    @property
    def size(self) -> int:
        return self.tasks or max(400, 2 * self.types * self.queues)

    def type_of(self, number: int) -> str:
        return f"type-{number % self.types:05}"

    def queue_of(self, number: int) -> str:
        return f"queue-{number // self.types % self.queues:04}"

    def is_aside(self, number: int) -> bool:
        """Whether the worker may not take this task, by its type."""
        special = self.capability_of_every_second or self.knows_every_second or self.paused_every_second
        return special and self.types > 1 and number % self.types % 2 == 1

    def made(self) -> Iterator[Task]:
        """The tasks, the oldest first within those that the worker may take."""
        for number in range(self.size):
            earlier = 3_600 * SECOND if self.aside_first and self.is_aside(number) else 0
            yield a_task(
                queue=self.queue_of(number),
                type=self.type_of(number),
                requires=("gpu",) if self.capability_of_every_second and self.is_aside(number) else (),
                concurrency_key="one" if self.keyed and number == 0 else None,
                fair=f"key {number % self.keys}" if self.keys else None,
                ready_at=NOW - (self.size - number) - earlier,
            )

    async def fill(self, store: Store) -> None:
        """Store the tasks."""
        tasks: list[Task] = []
        for task in self.made():
            tasks.append(task)
            if len(tasks) == _BATCH:
                await store.add(tasks, now=NOW, bounds={})
                tasks = []
        if tasks:
            await store.add(tasks, now=NOW, bounds={})

    def claim(self, limit: int) -> Claim:
        """A worker's claim upon them."""
        types = [self.type_of(number) for number in range(self.types)]
        aside = [name for number, name in enumerate(types) if self.is_aside(number)]
        own = [name for number, name in enumerate(types) if not self.is_aside(number)]
        return a_claim(
            *(f"queue-{number:04}" for number in range(self.queues)),
            limit=limit,
            policy=Promote(),
            types=own if self.knows_every_second else None,
            excluded_types=aside if self.paused_every_second else (),
            limits=Limits(queue=Limit(running=1_000_000)) if self.limited else None,
        )


def variants(types: int) -> Sequence[Crowd]:
    """A queue of so many types in every situation that a claim must bear at the price of one type."""
    return (
        Crowd(name="plain", types=types),
        Crowd(name="limited", types=types, limited=True),
        Crowd(name="one keyed task", types=types, keyed=True),
        Crowd(name="handlers for every second type", types=types, knows_every_second=True),
        Crowd(name="half beyond its capabilities", types=types, capability_of_every_second=True, aside_first=True),
        Crowd(name="half paused", types=types, paused_every_second=True),
        Crowd(name="half paused, and older", types=types, paused_every_second=True, aside_first=True),
    )
