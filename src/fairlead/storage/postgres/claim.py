"""How tasks are claimed.

An order of service with one table is a sort, which the database does in the same statement that takes the tasks. One
that draws a table for each turn is merged here from the lanes' heads; the tasks chosen are then taken by their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from msgspec.structs import replace

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.order import Line, ServiceKey, Table, service_key
from fairlead.core.task import Lane, Priority, Task
from fairlead.storage.merge import merge
from fairlead.storage.postgres import arrays
from fairlead.storage.postgres.address import Address
from fairlead.storage.postgres.arrays import Packed
from fairlead.storage.postgres.connections import Connections
from fairlead.storage.postgres.limiting import LimitedClaim
from fairlead.storage.postgres.rows import claimed_tasks, task_id_of
from fairlead.storage.postgres.sessions import Row, Session
from fairlead.storage.postgres.statements import Statements
from fairlead.storage.values import Claim, QueueOrder

_SPARE: Final = 8
"""Candidates beyond the limit, for those that others take meanwhile, where no others were met lately."""
_MOST_SPARE: Final = 1_024
_WIDEST: Final = 16_384
_TRIES: Final = 8
_KEYED: Final = -1
"""Instead of a number of candidates: some have concurrency keys, and nothing was taken."""


class Claimer:
    """Claims tasks."""

    def __init__(self, connections: Connections, statements: Statements, address: Address) -> None:
        self._connections = connections
        self._statements = statements
        self._address = address
        self._spare = _SPARE
        """Candidates beyond the limit that the next claim looks at."""
        self._keyed: set[str] = set()
        """Queues that have tasks with concurrency keys, or had: claims need not find out again."""
        self._lines: tuple[tuple[QueueOrder, ...], tuple[Packed, ...]] | None = None
        """The order of service of the last claim, and its columns: mostly that of the next is the same."""

    async def claim(self, claim: Claim) -> list[Task]:
        """The tasks taken, best first; fewer than the limit only if others were taking the rest meanwhile."""
        single = all(len(order.tables) == 1 for order in claim.queues)
        reach = first_reach = _reach(claim.limit + self._spare)
        if claim.limited or any(order.queue in self._keyed for order in claim.queues):
            return await self._limited(claim, reach)
        tasks: list[Task] = []
        for _ in range(_TRIES):
            left = replace(claim, limit=claim.limit - len(tasks)) if tasks else claim
            taken, candidates = await (self._sorted(left, reach) if single else self._drawn(left, reach))
            if candidates < 0:
                self._keyed.update(order.queue for order in claim.queues)
                return await self._limited(claim, reach)
            tasks += taken
            if len(tasks) == claim.limit or (candidates < reach and (tasks or not candidates)):
                break
            # Others were taking the candidates: look further.
            reach = min(reach * 4, _WIDEST)
        self._learn(claim.limit, alone=reach == first_reach)
        return tasks

    def _learn(self, limit: int, *, alone: bool) -> None:
        """Have the next claim look far enough at once: further if others were met, a little less far if not."""
        if alone:
            self._spare = max(self._spare * 15 // 16, _SPARE)
        else:
            self._spare = min(max(self._spare * 2, limit), _MOST_SPARE)

    async def _limited(self, claim: Claim, reach: int) -> list[Task]:
        async def work(session: Session) -> list[Task]:
            return await LimitedClaim(session, self._statements, self._address, claim).run(reach)

        return await self._connections.transaction(work)

    async def _sorted(self, claim: Claim, reach: int) -> tuple[list[Task], int]:
        rows = await self._connections.fetch(
            self._statements.reaching("claim", reach),
            (
                *_lease(claim),
                claim.limit,
                arrays.texts(sorted(claim.capabilities)),
                _types(claim),
                arrays.texts(sorted(claim.excluded_types)),
                *self._packed_lines(claim),
            ),
        )
        candidates = int(rows[0][0])
        if rows[0][1] is None:
            return [], candidates
        tasks = claimed_tasks(rows, claim)
        tables = {order.queue: order.tables[0] for order in claim.queues}
        tasks.sort(key=lambda task: _service_key(tables[task.spec.queue], task, claim.now))
        return tasks, candidates

    def _packed_lines(self, claim: Claim) -> tuple[Packed, ...]:
        if self._lines is None or self._lines[0] != claim.queues:
            self._lines = claim.queues, _lines(claim)
        return self._lines[1]

    async def _drawn(self, claim: Claim, reach: int) -> tuple[list[Task], int]:
        heads = await self._connections.fetch(
            self._statements.reaching("heads", reach),
            (
                arrays.texts([order.queue for order in claim.queues]),
                arrays.texts(sorted(claim.capabilities)),
                _types(claim),
                arrays.texts(sorted(claim.excluded_types)),
                False,
            ),
        )
        if not heads:
            return [], 0
        if any(keyed for *_, keyed, _, _ in heads):
            return [], _KEYED
        rows = await self._connections.fetch(
            self._statements["take"], (*_lease(claim), claim.limit, arrays.uuids(_in_order(claim, heads, reach)))
        )
        return claimed_tasks(rows, claim), len(heads)


def _in_order(claim: Claim, heads: Sequence[Row], reach: int) -> list[TaskId]:
    """The ids to take, best first, with some to spare."""
    lanes = [
        # Only queue and priority matter to the order; the route stands for the rest of the lane.
        (
            Lane(queue, str(route), (), Priority(priority)),
            iter([(ready_at, task_id_of(text)) for *_, ready_at, text in group]),
        )
        for (queue, route, priority), group in groupby(heads, key=lambda row: row[:3])
    ]
    return [task_id for _, task_id in merge(replace(claim, limit=reach), lanes)]


def _service_key(table: Table, task: Task, now: Instant) -> ServiceKey:
    return service_key(table, task.status.priority, task.status.ready_at, task.spec.id, now)


def _reach(wanted: int) -> int:
    """The next power of two: few different statements, each with a plan of its own."""
    return min(1 << (wanted - 1).bit_length(), max(_WIDEST, wanted))


def _lease(claim: Claim) -> tuple[Any, ...]:
    return claim.now, claim.until, claim.grace, claim.token, claim.worker


def _types(claim: Claim) -> Packed | None:
    return None if claim.types is None else arrays.texts(sorted(claim.types))


def _lines(claim: Claim) -> tuple[Packed, ...]:
    """The order of service as columns, one row per queue and priority."""
    lines = [
        (order.queue, priority, line)
        for order in claim.queues
        for priority, line in zip(Priority, order.tables[0], strict=True)
    ]
    return (
        arrays.texts([queue for queue, _, _ in lines]),
        arrays.int2s([priority for _, priority, _ in lines]),
        arrays.int8s([line.head_start for _, _, line in lines]),
        arrays.texts([_listed([step.after for step in line.steps]) for _, _, line in lines]),
        arrays.texts([_listed(_ranks(line)) for _, _, line in lines]),
    )


def _ranks(line: Line) -> list[int]:
    return [line.rank, *(step.rank for step in line.steps)]


def _listed(numbers: Sequence[int]) -> str:
    return "{" + ",".join(str(int(number)) for number in numbers) + "}"
