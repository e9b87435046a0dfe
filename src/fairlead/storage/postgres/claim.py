"""How tasks are claimed.

An order of service with one table is a sort, which the database does in the same statement that takes the tasks; also
where promoted tasks take turns with others at the top, by another sort. One that draws a table for each turn, or where
tasks take turns everywhere, is merged here from the lanes' heads; the tasks chosen are then taken by their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from fairlead.core.errors import StoreError
from fairlead.core.queues.order import Line, ServiceKey, Table, service_key, top_rank
from fairlead.core.task import Lane, Priority, Task
from fairlead.storage.lane_merge import Head, merge
from fairlead.storage.postgres import binary_arrays
from fairlead.storage.postgres.binary_arrays import Packed
from fairlead.storage.postgres.bounds import OF_ALL, OF_GROUPS, OF_LANES, Bounds, LaneSurvey
from fairlead.storage.postgres.claim_limited import (
    MergedClaim,
    rest_of,
    types_of,
)
from fairlead.storage.postgres.connection.pool import Connections
from fairlead.storage.postgres.connection.session import Session
from fairlead.storage.postgres.rows import claimed_tasks, tasks_in
from fairlead.storage.postgres.statements import Statements
from fairlead.storage.postgres.url import Address
from fairlead.storage.quarantine import Quarantine
from fairlead.storage.values import Claim

_SPARE: Final = 8
"""Candidates beyond the limit, for those that others take meanwhile, where no others were met lately."""
_MOST_SPARE: Final = 1_024
_WIDEST: Final = 16_384
_TRIES: Final = 8
_APART: Final = -1
"""Instead of a number of candidates: some have concurrency keys or take turns, and nothing was taken."""
_SHARING: Final = -2
"""Instead of a number of candidates: some take turns with others, and nothing was taken."""
_TOO_FAR: Final = -3
"""Instead of a number of candidates: they are behind too many that may not be taken, and nothing was taken."""
_FORGOTTEN: Final = -4
"""Instead of a number of candidates: the type set is not there any more, and nothing was taken."""
_NONE: Final = binary_arrays.texts([])
_SHARED_FOR: Final = 64
"""For so many claims it is taken for granted that some tasks take turns, once some do."""


class Claimer:
    """Claims tasks."""

    def __init__(
        self, connections: Connections, statements: Statements, address: Address, quarantine: Quarantine
    ) -> None:
        self._connections = connections
        self._statements = statements
        self._address = address
        self._quarantine = quarantine
        self._spare = _SPARE
        """Candidates beyond the limit that the next claim looks at."""
        self._bounds = Bounds(connections, statements, address)
        self._sharing = 0
        """For how many more claims it is taken for granted that some tasks take turns."""
        self._lines: tuple[tuple[tuple[str, Table], ...], tuple[Packed, ...]] | None = None
        """The order of service of the last claim, and its columns: mostly that of the next is the same."""

    async def claim(self, claim: Claim) -> list[Task]:
        """The tasks taken, best first; fewer than the limit only if others were taking the rest meanwhile."""
        tasks: list[Task] = []
        spoilt: list[Exception] = []
        try:
            await self._take(claim, tasks, spoilt)
            while spoilt:
                await self._clear(claim)
                spoilt.clear()
                if len(tasks) < claim.limit:
                    await self._take(claim, tasks, spoilt)
        except StoreError:
            # What was taken goes to the caller, or nobody would run it. Whoever looks next meets the same trouble.
            if not tasks:
                raise
        return tasks

    async def _clear(self, claim: Claim) -> None:
        """Set aside what the claim took that is no task."""
        _, met = tasks_in(await self._connections.fetch(self._statements["claim.held"], (claim.token,)))
        await self._quarantine.clear(met)

    async def _take(self, claim: Claim, tasks: list[Task], spoilt: list[Exception]) -> None:
        """Take the best ready tasks, beside those that were taken; why some of them cannot be read, in `spoilt`."""
        reach = first_reach = _reach(claim.limit - len(tasks) + self._spare)
        self._sharing = max(self._sharing - 1, 0)
        survey = await self._bounds.survey(claim)
        first = survey.first
        passed_over = False
        for _ in range(_TRIES):
            left = rest_of(claim, tasks) if tasks else claim
            fair = survey.fair and not passed_over and self._is_by_turn_alone(claim)
            if claim.limited or survey.keyed or (survey.fair and not fair) or self._is_drawn(claim):
                found = await self._merged(left, reach, spoilt, survey)
                if found is not None:
                    tasks += found
                    break
                # Tasks with concurrency keys have come since the lanes were surveyed.
                survey.keyed = True
                continue
            taken, candidates = await self._chosen(left, reach, spoilt, first, survey.type_set, fair=fair)
            if candidates == _APART:
                self._bounds.forget()
                survey = await self._bounds.survey(claim)
            elif candidates == _SHARING:
                self._sharing = _SHARED_FOR
            elif candidates == _TOO_FAR and fair:
                passed_over = True
            elif candidates == _TOO_FAR and first == OF_ALL:
                first = survey.first = OF_GROUPS
            elif candidates == _TOO_FAR:
                # Most are behind a bound once it has moved, or not much further; the rest goes by lanes.
                first, reach = (OF_LANES, first_reach) if passed_over else (first, min(reach * 8, _WIDEST))
                passed_over = True
                await self._bounds.passed_over(claim, survey.type_set)
            elif candidates == _FORGOTTEN:
                self._bounds.forget()
                survey = await self._bounds.survey(claim)
            else:
                tasks += taken
                if len(tasks) == claim.limit or (candidates < reach and (tasks or not candidates)):
                    break
                # Others were taking the candidates: look further.
                reach = min(reach * 4, _WIDEST)
        self._learn(claim.limit, alone=passed_over or reach == first_reach)
        if tasks:
            await self._bounds.took(claim, survey.type_set, tasks)

    async def _chosen(
        self, claim: Claim, reach: int, spoilt: list[Exception], first: str, type_set: int, *, fair: bool
    ) -> tuple[list[Task], int]:
        """The tasks taken, and how many candidates there were."""
        by_turns = self._sharing > 0 and any(order.share is not None for order in claim.queues)
        if fair and first == OF_LANES:
            first = OF_GROUPS  # Lanes are in the order of their tasks' waits.
        covered = first == OF_ALL and type_set != 0
        rows = await self._connections.fetch(
            self._statements.best(reach, first, covered=covered, by_turns=by_turns, fair=fair),
            (
                *_lease(claim),
                claim.limit,
                binary_arrays.texts(sorted(claim.capabilities)),
                type_set,
                *self._packed_lines(claim),
                *_turns(claim),
                *(types_of(claim) if first == OF_LANES else ()),
            ),
        )
        candidates = int(rows[0][0])
        if rows[0][1] is None:
            return [], candidates
        tasks = claimed_tasks(rows, claim, spoilt)
        if fair:
            return tasks, candidates
        return _in_turn(claim, tasks) if by_turns else _by_rank(claim, tasks), candidates

    def _is_by_turn_alone(self, claim: Claim) -> bool:
        """Whether the database can choose where fair tasks wait: of one queue, as long as no task is promoted."""
        if len(claim.queues) > 1 or len(claim.queues[0].tables) > 1 or self._sharing:
            return False
        return len({line.rank for line in claim.queues[0].tables[0]}) == len(Priority)

    def _is_drawn(self, claim: Claim) -> bool:
        """Whether each turn has a table of its own, or some tasks take turns at every rank."""
        return any(
            len(order.tables) > 1 or (self._sharing > 0 and order.share is not None and order.share.everywhere)
            for order in claim.queues
        )

    def _learn(self, limit: int, *, alone: bool) -> None:
        """Have the next claim look far enough at once: further if others were met, a little less far if not."""
        if alone:
            self._spare = max(self._spare * 15 // 16, _SPARE)
        else:
            self._spare = min(max(self._spare * 2, limit), _MOST_SPARE)

    async def _merged(self, claim: Claim, reach: int, spoilt: list[Exception], survey: LaneSurvey) -> list[Task] | None:
        """The tasks taken; None if some wait that have concurrency keys and were not expected."""

        async def work(session: Session) -> list[Task] | None:
            return await MergedClaim(session, self._statements, self._address, claim, spoilt).run(reach, survey)

        # Where nothing is counted nobody has to wait for others.
        return await (self._connections.transaction(work) if claim.limited or survey.keyed else work(self._connections))

    def _packed_lines(self, claim: Claim) -> tuple[Packed, ...]:
        tables = tuple((order.queue, order.tables[0]) for order in claim.queues)
        if self._lines is None or self._lines[0] != tables:
            self._lines = tables, _lines(claim)
        return self._lines[1]


def _by_rank(claim: Claim, tasks: list[Task]) -> list[Task]:
    """The tasks of a claim, best first."""
    tables = {order.queue: order.tables[0] for order in claim.queues}

    def key(task: Task) -> ServiceKey:
        status = task.status
        return service_key(
            tables[task.spec.queue], status.priority, status.ready_at, task.spec.id, status.started_at or 0
        )

    return sorted(tasks, key=key) if len(tasks) > 1 else tasks


def _in_turn(claim: Claim, tasks: Sequence[Task]) -> list[Task]:
    """The tasks of a claim, best first, where some take turns."""
    lanes: dict[Lane, list[Head]] = {}
    for task in tasks:
        # Only queue and priority matter to the order.
        lane = Lane(task.spec.queue, "", (), task.status.priority)
        lanes.setdefault(lane, []).append((task.status.ready_at, task.id, task))
    dated = replace(claim, limit=len(tasks)).dated(tasks[0].status.started_at or 0) if tasks else claim
    return [task for *_, task in merge(dated, [(lane, iter(sorted(heads))) for lane, heads in lanes.items()])]


def _reach(wanted: int) -> int:
    """The next power of two: few different statements, each with a plan of its own."""
    return min(1 << (wanted - 1).bit_length(), max(_WIDEST, wanted))


def _lease(claim: Claim) -> tuple[Any, ...]:
    return claim.now, claim.lease, claim.grace, claim.token, claim.worker


def _lines(claim: Claim) -> tuple[Packed, ...]:
    """The queues and where their lines begin, and the order of service as columns: one row per table and priority."""
    tables: dict[Table, int] = {}
    begins = [tables.setdefault(order.tables[0], 1 + len(Priority) * len(tables)) for order in claim.queues]
    lines = [line for table in tables for line in table]
    return (
        binary_arrays.texts([order.queue for order in claim.queues]),
        binary_arrays.int4s(begins),
        binary_arrays.int8s([line.head_start for line in lines]),
        binary_arrays.texts([_listed([step.after for step in line.steps]) for line in lines]),
        binary_arrays.texts([_listed(_ranks(line)) for line in lines]),
    )


def _turns(claim: Claim) -> tuple[Packed, ...]:
    """How promoted tasks and others of each queue take turns, as columns."""
    shares = [order.share for order in claim.queues]
    tops = [
        None if share is None or share.everywhere else top_rank(order.tables[0])
        for order, share in zip(claim.queues, shares, strict=True)
    ]
    dues = [None if share is None else share.due for share in shares]
    return (
        binary_arrays.int4s(tops),
        binary_arrays.int4s(dues),
        binary_arrays.int4s([order.passed for order in claim.queues]),
    )


def _ranks(line: Line) -> list[int]:
    return [line.rank, *(step.rank for step in line.steps)]


def _listed(numbers: Sequence[int]) -> str:
    return "{" + ",".join(str(int(number)) for number in numbers) + "}"
