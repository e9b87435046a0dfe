"""Claims under limits: what runs of each queue, type and key, and when the next of each may start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fairlead.core.instant import Instant
from fairlead.storage.claim_limits import (
    QUEUE_NAME,
    LimitGate,
    OpenLanes,
    choose_fair,
    key_name,
    limits_of,
    type_name,
)
from fairlead.storage.lane_merge import Head
from fairlead.storage.memory.claim import ClaimLanes, FairLanes, front_of
from fairlead.storage.memory.concurrency_keys import Keyed
from fairlead.storage.memory.lanes import Lanes, ReadyLane
from fairlead.storage.memory.turns import FairTurns
from fairlead.storage.values import Claim, Usage, Used

_FEW: Final = 32


class Dues:
    """When the next starts are due of what has a rate."""

    def __init__(self) -> None:
        self._dues: dict[str, dict[str, Instant]] = {}
        self._kept: dict[str, int] = {}
        """How many there were of each queue when what was past was last forgotten."""

    def __len__(self) -> int:
        return len(self._dues)

    def queues(self) -> list[str]:
        """The queues that have any."""
        return [*self._dues]

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

    def __init__(self, lanes: Lanes, keyed: Keyed, turns: FairTurns) -> None:
        self._lanes = lanes
        self._keyed = keyed
        self._turns = turns
        self._dues = Dues()

    def choose(self, claim: Claim, lanes: Sequence[ReadyLane] | None) -> list[Head]:
        """The tasks that a claim gets, in order of service; their starts are counted. None for lanes: of many."""
        limits = limits_of(claim)
        for queue in limits if len(limits) <= len(self._dues) else self._dues.queues():
            if queue in limits:
                self._dues.forget(queue, claim.at)
        for queue in limits if len(limits) <= len(self._keyed.looking()) else [*self._keyed.looking()]:
            if queue in limits:
                self._keyed.look(queue, limits[queue].key, claim.at)
        gate = LimitGate(claim, self._lanes.running, self._dues.get, self._keyed.running)
        fair = FairLanes(self._lanes, self._turns, claim)
        if lanes is not None:
            plain = OpenLanes(front_of(line, self._keyed) for line in lanes if not line.lane.fair)
            taken, turns = choose_fair(claim, plain, gate, fair)
            fair.put_back()
        else:
            index = ClaimLanes(self._lanes, self._keyed, claim, gate)
            try:
                taken, turns = choose_fair(claim, index, gate, fair)
            finally:
                index.put_back()
                fair.put_back()
        self._turns.reach(turns)
        self._dues.update(gate.dues())
        return taken

    def usage(self, queue: str, task_type: str, key: str | None) -> Usage:
        """How much of the limits of a queue, a type in it and a key in it is used."""
        running = self._lanes.running
        return Usage(
            queue=Used(running(queue), self._dues.get(queue, QUEUE_NAME)),
            type=Used(running(queue, task_type), self._dues.get(queue, type_name(task_type))),
            key=Used() if key is None else Used(self._keyed.running(queue, key), self._dues.get(queue, key_name(key))),
        )
