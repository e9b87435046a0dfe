"""How tasks are claimed from queues that have limits, tasks with concurrency keys, or tasks that take turns.

Claims under limits, or of tasks with concurrency keys, come one after the other, by a lock that lasts for their
transaction, so that what they count stands until they commit. The lanes' heads are read and merged here, and the tasks
chosen are taken by their ids.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.queues.fairness import LineTurns
from fairlead.core.queues.limits import NEVER, Limits
from fairlead.core.queues.order import passed_after
from fairlead.core.task import Lane, Priority, Task
from fairlead.storage.claim_limits import (
    QUEUE_NAME,
    LimitGate,
    OpenLanes,
    PlainFront,
    choose_fair,
    key_name,
    limits_of,
    running_in,
    type_name,
)
from fairlead.storage.fair_line import FairEntries
from fairlead.storage.lane_merge import Head
from fairlead.storage.lane_search import Entry, Front
from fairlead.storage.postgres import binary_arrays
from fairlead.storage.postgres.binary_arrays import Packed
from fairlead.storage.postgres.bounds import OF_ALL, OF_GROUPS, OF_LANES, LaneSurvey
from fairlead.storage.postgres.connection.session import Row, Session
from fairlead.storage.postgres.rows import claimed_tasks, task_id_of
from fairlead.storage.postgres.statements import Statements
from fairlead.storage.postgres.url import Address
from fairlead.storage.values import Claim, QueueOrder, Usage, Used

_TRIES: Final = 8
_FOLD_ABOVE: Final = 1_000
"""How many rows of the tally a claim reads before it folds them: every claim under limits reads them all."""
_WIDEST: Final = 16_384
"""The most tasks of a lane group and priority that are read at once."""
_FAIR: Final = 1
_BY_TURN: Final = 2
_REACHED: Final = 3
_OTHERS: Final = 4
_BASE: Final = 5
_KEYED: Final = 6
"""Kinds of rows: fair tasks by age and by turn, how far the turns of a line have come, and that keyed tasks wait."""
_UNKNOWN: Final = ""
"""Before what stands for capabilities: there are tasks from here on that were not looked at."""
_written: Final = msgspec.json.Encoder().encode

_Place: TypeAlias = tuple[int, int, str]
"""A route, a priority and a key: where a key may be at the front."""
_Line: TypeAlias = tuple[str, int]
"""A queue and a priority."""
_Moved: TypeAlias = tuple[str, Priority, tuple[int, int, int]]
"""A line, and what was reached, the turn of the others and where the line began."""


class _Closed(Struct, frozen=True):
    """A key that a claim found full."""

    place: _Place
    queue: str
    until: Instant


class MergedClaim:
    """One claim that is chosen here; under limits within its transaction."""

    def __init__(
        self, session: Session, statements: Statements, address: Address, claim: Claim, spoilt: list[Exception]
    ) -> None:
        self._session = session
        self._statements = statements
        self._schema = address.schema
        self._claim = claim
        self._spoilt = spoilt
        """Why tasks that were taken cannot be read."""
        self._limits = limits_of(claim)
        self._met_keyed = False
        self._read = 0
        """How many rows of the tally it took to know what runs."""
        self._queues = binary_arrays.texts(sorted(self._limits))

    async def run(self, reach: int, survey: LaneSurvey) -> list[Task] | None:
        """The tasks taken, best first, where claims are to expect this.

        None if some wait that have concurrency keys and were not expected.
        """
        self._survey = survey
        self._type_set = survey.type_set
        self._with_types = any(limits.types for limits in self._limits.values())
        self._first = survey.first_under_limits if self._with_types else survey.first
        if survey.fair or (self._first == OF_ALL and self._type_set):
            self._first = OF_GROUPS if self._type_set else OF_ALL
        self._counted = self._claim.limited or survey.keyed
        if self._counted:
            await self._begin()
        tasks: list[Task] = []
        for _ in range(_TRIES):
            taken, more = await self._round(rest_of(self._claim, tasks), reach)
            tasks += taken
            if len(tasks) == self._claim.limit or not more:
                break
            if self._first != OF_LANES and not taken:
                reach = min(reach * 8, _WIDEST)
        if self._read > _FOLD_ABOVE:
            await self._fetch("limits.fold", self._schema)
        return tasks if tasks or not self._met_keyed else None

    async def _begin(self) -> None:
        """Wait for the claims before, and let keys come to the front that may go on."""
        await self._fetch("limits.read_committed")
        await self._fetch("limits.lock", self._schema, self._queues)
        if self._claim.now is None:
            # Only now: it may have waited for its turn.
            ((now,),) = await self._fetch("read.time")
            self._claim = self._claim.dated(now)
        names = sorted(self._limits)
        unders = [_text(self._limits[name]) for name in names]
        horizons = binary_arrays.int8s([self._limits[name].key.horizon(self._claim.at) for name in names])
        await self._fetch("limits.wake", self._queues, binary_arrays.texts(unders), self._claim.now, horizons, NEVER)

    async def _round(self, claim: Claim, reach: int) -> tuple[list[Task], bool]:
        """Some tasks, and whether there may be more that were not looked at."""
        keyed = await self._keyed(claim, reach) if self._counted else []
        gate = await self._gate(claim, keyed) if self._counted else None
        heads = await self._heads(gate, reach)
        if not heads and not keyed:
            return [], False
        if gate is None:
            claim = claim.dated(heads[0][0])
            gate = _Gate(claim, running_in({}), lambda _, __: None, lambda _, __: 0)
        fronts = _keyed_fronts(keyed)
        most = None if self._first == OF_LANES else reach
        lines = _FairRows(heads, most)
        every: list[Front] = [*_plain_fronts(lines.others, most), *fronts]
        found, turns = choose_fair(claim, _AllLanes(every), gate, lines)
        chosen = [TaskId(head[1]) for head in found]
        taken = await self._take(claim, chosen, lines.moved(turns))
        await self._arrange(fronts, {task.id for task in taken})
        if dues := gate.dues():
            await self._keep(dues)
        if gate.ended and not chosen and not gate.found_shut:
            # What may be taken is behind too many that may not. Where tasks take turns more are looked at first: by
            # lanes they are served by age.
            met_before = self._first
            if not self._survey.fair or reach >= _WIDEST:
                self._first = OF_LANES
            return taken, met_before != OF_LANES
        deep = gate.ended or len(heads) >= reach or len(keyed) >= reach
        return taken, deep and bool(chosen or gate.found_shut or any(front.closed for front in fronts))

    async def _heads(self, gate: _Gate | None, reach: int) -> list[Row]:
        """The first tasks of lanes without keys, but of those whose queue or type is full."""
        open_queues, full = sorted(self._limits), list[tuple[str, str]]()
        if gate is not None:
            open_queues = [queue for queue in open_queues if not gate.shut(_lane(queue, ""))]
            if not open_queues:
                return []
            types = [(queue, name) for queue in open_queues for name in self._limits[queue].types]
            full = [(queue, name) for queue, name in types if gate.shut(_lane(queue, name))]
            gate.found_shut = False
        parameters: tuple[Any, ...] = (
            binary_arrays.texts(open_queues),
            binary_arrays.texts(sorted(self._claim.capabilities)),
            self._type_set,
            self._with_types,
        )
        if full and self._first == OF_ALL:
            self._first = OF_GROUPS
        if self._first != OF_ALL:
            parameters += (
                binary_arrays.texts([queue for queue, _ in full]),
                binary_arrays.texts([name for _, name in full]),
            )
        if self._first == OF_LANES:
            parameters += types_of(self._claim)
        by_turn = self._survey.fair and self._first != OF_LANES
        statement = self._statements.heads(reach, self._first, by_turn=by_turn, with_keyed=not self._counted)
        rows = await self._session.fetch(statement, parameters)
        if rows and rows[-1][-1] == _KEYED:
            self._met_keyed = True
            return []
        if not self._survey.fair and rows and rows[-1][-1] == _FAIR:
            # They have come since the lanes were surveyed.
            self._survey.fair = True
            self._first = OF_GROUPS if self._type_set else OF_ALL
            return await self._heads(gate, reach)
        return rows

    async def _keyed(self, claim: Claim, reach: int) -> list[Row]:
        most = [limits.key.running or claim.limit for limits in self._limits.values()]
        depth = min(max(most), claim.limit)
        return await self._session.fetch(self._statements.reaching("limits.fronts", reach), (*self._wish(), depth))

    def _wish(self) -> tuple[Any, ...]:
        return self._queues, binary_arrays.texts(sorted(self._claim.capabilities)), *types_of(self._claim)

    async def _gate(self, claim: Claim, keyed: Sequence[Row]) -> _Gate:
        """What the limits leave room for, as far as these keys need it."""
        keys = sorted({(row[0], bytes(row[4])) for row in keyed})
        packed = binary_arrays.byteas([key for _, key in keys])
        running: dict[tuple[str, str], int] = {}
        if any(_counts(limits) for limits in self._limits.values()):
            rows = await self._fetch("limits.running", self._queues)
            running = {(queue, task_type): count for queue, task_type, count in rows if queue is not None}
            self._read = sum(count for queue, _, count in rows if queue is None)
        rows = await self._fetch("limits.running_keys", self._queues, packed) if keys else []
        of_keys = {(queue, key.decode()): count for queue, key, count in rows}
        dues: dict[tuple[str, str], Instant] = {}
        if any(limits.paced for limits in self._limits.values()):
            names = {
                QUEUE_NAME,
                *(type_name(of_type) for limits in self._limits.values() for of_type in limits.types),
                *(key_name(k.decode()) for _, k in keys),
            }
            rows = await self._fetch(
                "limits.dues", self._queues, binary_arrays.byteas([name.encode() for name in sorted(names)])
            )
            dues = {(queue, name.decode()): due for queue, name, due in rows}
        return _Gate(
            claim,
            running_in(running),
            lambda queue, name: dues.get((queue, name)),
            lambda queue, key: of_keys.get((queue, key), 0),
        )

    async def _take(self, claim: Claim, chosen: Sequence[TaskId], moved: Sequence[_Moved]) -> list[Task]:
        if not chosen:
            return []
        # When it is made is said by whoever makes it, or by the server's clock in the step that takes the tasks.
        lease = (self._claim.now, claim.lease, claim.grace, claim.token, claim.worker)
        turned = (
            binary_arrays.texts([queue for queue, *_ in moved]),
            binary_arrays.int2s([priority for _, priority, *_ in moved]),
            *(binary_arrays.int8s([numbers[at] for *_, numbers in moved]) for at in range(3)),
        )
        rows = await self._session.fetch(
            self._statements.take(by_turn=bool(moved)),
            (*lease, claim.limit, binary_arrays.uuids(chosen), *(turned if moved else ())),
        )
        return claimed_tasks(rows, claim, self._spoilt)

    async def _arrange(self, fronts: Sequence[_KeyedFront], taken: set[TaskId]) -> None:
        """Let the next of each key come to the front, and full keys go from there."""
        moved = {place for front in fronts for place in front.moved}
        closed = {entry.place: entry for front in fronts for entry in front.closed}
        if not moved and not closed:
            return
        await self._fetch("limits.front_leave", *_places(moved | closed.keys()))
        if stay := moved - closed.keys():
            await self._fetch("limits.front_come", *_places(stay))
        if closed:
            by_key = {(entry.queue, entry.place[2]): entry.until for entry in closed.values()}
            await self._fetch(
                "limits.look_later",
                *_keys(by_key),
                binary_arrays.int8s(list(by_key.values())),
                binary_arrays.texts([_text(self._limits[queue]) for queue, _ in by_key]),
            )
        # A task that someone else is changing was not taken: its place is free, and a key may have been closed for it.
        missed = {key for front in fronts for task_id, key in front.chosen if task_id not in taken}
        if missed:
            await self._fetch("limits.nudge", *_keys(missed))

    async def _keep(self, dues: Mapping[tuple[str, str], Instant]) -> None:
        await self._fetch("limits.due_set", self._claim.now, *_keys(dues), binary_arrays.int8s(list(dues.values())))

    async def _fetch(self, name: str, *parameters: Any) -> list[Row]:
        return await self._session.fetch(self._statements[name], parameters)


async def usage(session: Session, statements: Statements, queue: str, task_type: str, key: str | None) -> Usage:
    """What is used of the limits of a queue, of a type and of a concurrency key in it."""
    queues, keys = binary_arrays.texts([queue]), binary_arrays.byteas([] if key is None else [key.encode()])
    rows = await session.fetch(statements["limits.running"], (queues,))
    running = {of_type: count for name, of_type, count in rows if name is not None}
    of_key = [int(count) for _, _, count in await session.fetch(statements["limits.running_keys"], (queues, keys))]
    names = [QUEUE_NAME, type_name(task_type), key_name(key or "")]
    rows = await session.fetch(
        statements["limits.dues"], (queues, binary_arrays.byteas([name.encode() for name in names]))
    )
    dues = {name.decode(): due for _, name, due in rows}
    return Usage(
        queue=Used(sum(running.values()), dues.get(names[0])),
        type=Used(running.get(task_type, 0), dues.get(names[1])),
        key=Used(sum(of_key), dues.get(names[2])),
    )


class _KeyedFront:
    """The front of a lane of keyed tasks, for one claim: the keys there and the first tasks of each."""

    def __init__(self, lane: Lane, route: int, rows: Iterable[Row]) -> None:
        self.lane = lane
        self._route = route
        self._lines: dict[str, list[Head]] = {}
        self.moved: set[_Place] = set()
        """The keys of which the first task is another one now."""
        self.closed: list[_Closed] = []
        self.chosen: list[tuple[TaskId, tuple[str, str]]] = []
        """The tasks taken, with their queues and keys."""
        for *_, packed, ready_at, text in rows:
            key = packed.decode()
            if text is None:
                self.moved.add(self._place(key))
            else:
                head = (ready_at, task_id_of(text))
                line = self._lines.setdefault(key, [])
                if head not in line:
                    line.append(head)

    @property
    def head(self) -> Head | None:
        return min((line[0] for line in self._lines.values() if line), default=None)

    @property
    def key(self) -> str:
        head = self.head
        return next(key for key, line in self._lines.items() if line and line[0] == head)

    def take(self) -> None:
        key = self.key
        _, task_id = self._lines[key].pop(0)
        self.moved.add(self._place(key))
        self.chosen.append((task_id, (self.lane.queue, key)))

    def close(self, until: Instant) -> None:
        key = self.key
        del self._lines[key]
        self.closed.append(_Closed(self._place(key), self.lane.queue, until))

    def _place(self, key: str) -> _Place:
        return self._route, int(self.lane.priority), key


class _AllLanes(OpenLanes):
    """Lanes of which those that are in a line with fair ones may be others than there are here."""

    few = sys.maxsize


class _FairRows:
    """The fair tasks among the rows of claim.heads, in both orders; nothing of them where they are not told by turn."""

    def __init__(self, rows: Sequence[Row], most: int | None) -> None:
        self._most = most
        kinds: dict[int, list[Row]] = {}
        for row in rows:
            kinds.setdefault(row[-1], []).append(row)
        self.others = kinds.get(0, [])
        """The rows of all other tasks, and of fair ones that are served as such."""
        by_turn = kinds.get(_BY_TURN, [])
        if not by_turn:
            self.others = sorted(self.others + kinds.get(_FAIR, []), key=itemgetter(2, 3, 5, 6))
        self._by_age = _by_line(kinds.get(_FAIR, [])) if by_turn else {}
        self._by_turn = _by_line(by_turn)
        numbers = [{row[1:4:2]: row[5] or 0 for row in kinds.get(kind, [])} for kind in (_REACHED, _OTHERS, _BASE)]
        self._reached, self._others, self._bases = numbers

    def fair_lines(self, queue: str) -> Mapping[Priority, FairEntries]:
        """Those of a queue by priority."""
        return {
            Priority(line[1]): FairEntries(
                self._entries(self._by_age[line]), self._entries(self._by_turn[line]), self._turns(line)
            )
            for line in self._by_turn
            if line[0] == queue
        }

    def moved(self, turns: Mapping[tuple[str, Priority], LineTurns]) -> list[_Moved]:
        """The lines of which the turns have gone on to these."""
        return [
            (*line, (now.reached, now.others, self._bases.get(line, 0)))
            for line, now in turns.items()
            if now != self._turns(line)
        ]

    def _turns(self, line: _Line) -> LineTurns:
        return LineTurns(self._reached.get(line, 0), self._others.get(line, 0))

    def _entries(self, rows: Sequence[Row]) -> Iterator[Entry]:
        fronts = _plain_fronts(rows, self._most)
        entries = [(*front.head[:2], front) for front in fronts if front.head is not None]
        return iter(sorted(entries, key=itemgetter(0, 1)))


def _by_line(rows: Sequence[Row]) -> dict[_Line, list[Row]]:
    lines: dict[_Line, list[Row]] = {}
    for row in rows:
        lines.setdefault((row[1], row[3]), []).append(row)
    return lines


class _Gate(LimitGate):
    """What the limits leave room for, and nothing from where there are tasks that were not looked at."""

    ended = False
    """Whether the claim came to such a place."""
    found_shut = False
    """Whether it met a queue or a type that is full."""

    def shut(self, lane: Lane) -> bool:
        if self.ended or _UNKNOWN in lane.requires:
            self.ended = True
            return True
        is_shut = super().shut(lane)
        self.found_shut = self.found_shut or is_shut
        return is_shut

    def shuts(self, queue: str) -> bool:
        is_shut = super().shuts(queue)
        self.found_shut = self.found_shut or is_shut
        return is_shut


def _plain_fronts(rows: Sequence[Row], most: int | None) -> list[PlainFront]:
    """The fronts of lanes, where others follow in a lane group and priority if there are so many."""
    lanes: dict[Lane, list[Head]] = {}
    for (queue, group, priority), rows_of in groupby(rows, key=itemgetter(1, 2, 3)):
        # The group stands for the capabilities; type and queue are what limits are about.
        end = Lane(queue, "", (_UNKNOWN, str(group)), Priority(priority))
        found = [(row[4], (row[5], task_id_of(row[6]))) for row in rows_of]
        for task_type, head in found:
            lane = end if task_type is None else Lane(queue, task_type, (str(group),), Priority(priority))
            lanes.setdefault(lane, []).append(head)
        if len(found) == most:
            lanes[end] = [found[-1][1]]
    return [PlainFront(lane, iter(heads)) for lane, heads in lanes.items()]


def _keyed_fronts(rows: Sequence[Row]) -> list[_KeyedFront]:
    return [
        _KeyedFront(Lane(queue, task_type, (str(route),), Priority(priority), keyed=True), route, list(group))
        for (queue, route, task_type, priority), group in groupby(rows, key=lambda row: row[:4])
    ]


def types_of(claim: Claim) -> tuple[Packed | None, Packed]:
    """The types that a worker can run, and those that are not to be taken, as columns."""
    types = None if claim.types is None else binary_arrays.texts(sorted(claim.types))
    return types, binary_arrays.texts(sorted(claim.excluded_types))


def _lane(queue: str, task_type: str) -> Lane:
    """A lane of a queue and type: what limits are about."""
    return Lane(queue, task_type, (), Priority.CRITICAL)


def rest_of(claim: Claim, taken: Sequence[Task]) -> Claim:
    """What is left of a claim: its tables and its turns go on where they were."""
    return replace(claim, limit=claim.limit - len(taken), queues=tuple(_turned(order, taken) for order in claim.queues))


def _turned(order: QueueOrder, taken: Sequence[Task]) -> QueueOrder:
    tables = tuple(order.tables[(len(taken) + at) % len(order.tables)] for at in range(len(order.tables)))
    statuses = [task.status for task in taken if task.spec.queue == order.queue]
    served = [(status.priority, (status.started_at or status.ready_at) - status.ready_at) for status in statuses]
    return replace(order, tables=tables, passed=passed_after(order.turns, served))


def _counts(limits: Limits) -> bool:
    return any(limit.running is not None for limit in (limits.queue, *limits.types.values()))


def _places(places: Iterable[_Place]) -> tuple[Any, ...]:
    ordered = sorted(places)
    return (
        binary_arrays.int4s([route for route, _, _ in ordered]),
        binary_arrays.int2s([priority for _, priority, _ in ordered]),
        binary_arrays.byteas([key.encode() for _, _, key in ordered]),
    )


def _keys(keys: Iterable[tuple[str, str]]) -> tuple[Any, ...]:
    """Queues and keys, or names, as columns."""
    given = list(keys)
    return binary_arrays.texts([queue for queue, _ in given]), binary_arrays.byteas([key.encode() for _, key in given])


def _text(limits: Limits) -> str:
    return _written(limits.key).decode()
