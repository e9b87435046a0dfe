"""Claims under limits: what runs of each queue, type and key, and when the next of each may start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fairlead.core.instant import Instant
from fairlead.core.task import Lane
from fairlead.storage.claim_limits import (
    QUEUE_NAME,
    Front,
    LimitGate,
    PlainFront,
    key_name,
    limits_of,
    merge_limited,
    type_name,
)
from fairlead.storage.lane_merge import Head
from fairlead.storage.memory.concurrency_keys import Keyed, KeyedFront
from fairlead.storage.memory.lanes import Lanes
from fairlead.storage.values import Claim, Usage, Used

_FEW: Final = 32


class Dues:
    """When the next starts are due of what has a rate."""

    def __init__(self) -> None:
        self._dues: dict[str, dict[str, Instant]] = {}
        self._kept: dict[str, int] = {}
        """How many there were of each queue when what was past was last forgotten."""

    def get(self, queue: str, name: str) -> Instant | None:
        return self._dues.get(queue, {}).get(name)

    def update(self, dues: Mapping[tuple[str, str], Instant]) -> None:
        for (queue, name), due in dues.items():
            self._dues.setdefault(queue, {})[name] = due

    def forget(self, queue: str, now: Instant) -> None:
        """Forget what is past: it is as if there had been no start."""
        dues = self._dues.get(queue, {})
        if len(dues) > 2 * self._kept.get(queue, _FEW):
            self._dues[queue] = {name: due for name, due in dues.items() if due > now}
            self._kept[queue] = max(_FEW, len(self._dues[queue]))


class Limiter:
    """Chooses what one memory store gives out under limits. The owner holds the lock."""

    def __init__(self, lanes: Lanes, keyed: Keyed) -> None:
        self._lanes = lanes
        self._keyed = keyed
        self._dues = Dues()

    def choose(self, claim: Claim, lanes: Sequence[tuple[Lane, Iterator[Head]]]) -> list[Head]:
        """The tasks of these lanes that a claim gets, in order of service; their starts are counted."""
        running = Counter[tuple[str, str]]()
        for queue, limit in limits_of(claim).items():
            self._dues.forget(queue, claim.at)
            self._keyed.look(queue, limit.key, claim.at)
            for lane, count in self._lanes.running(queue).items():
                running[queue, lane.type] += count
        fronts: list[Front] = [
            KeyedFront(self._keyed, lane) if lane.keyed else PlainFront(lane, heads) for lane, heads in lanes
        ]
        gate = LimitGate(claim, running, self._dues.get, self._keyed.running)
        taken = merge_limited(claim, fronts, gate)
        self._dues.update(gate.dues())
        return taken

    def usage(self, queue: str, task_type: str, key: str | None) -> Usage:
        """How much of the limits of a queue, a type in it and a key in it is used."""
        running = self._lanes.running(queue)
        of_type = sum(count for lane, count in running.items() if lane.type == task_type)
        return Usage(
            queue=Used(sum(running.values()), self._dues.get(queue, QUEUE_NAME)),
            type=Used(of_type, self._dues.get(queue, type_name(task_type))),
            key=Used() if key is None else Used(self._keyed.running(queue, key), self._dues.get(queue, key_name(key))),
        )
