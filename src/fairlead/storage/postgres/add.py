"""How tasks are added.

Almost all are new and have nothing to be checked: one quick statement for a batch stores all or none. Where that fails,
a thorough one tells which are known. A queue with a bound, or tasks that wait for others, take a transaction.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

from fairlead.core.errors import StoreUnavailable
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.task import Task
from fairlead.storage.postgres import binary_arrays
from fairlead.storage.postgres.binary_arrays import Packed
from fairlead.storage.postgres.columns import (
    ADD_PACKERS,
    KEY_COLUMNS,
    TURN_COLUMNS,
    RouteNames,
    columns_of,
    is_plain,
    key_of,
    plain_columns,
    route_columns,
)
from fairlead.storage.postgres.connection.connect import Contradicted
from fairlead.storage.postgres.connection.pool import Connections
from fairlead.storage.postgres.connection.session import Session
from fairlead.storage.postgres.rows import STATES, task_id_of
from fairlead.storage.postgres.statements import Statements, rounds
from fairlead.storage.postgres.url import Address
from fairlead.storage.steps import counted
from fairlead.storage.values import Added, Full, KeyHeld, Known, Missing, Receipt

_TRIES: Final = 20
"""How often a task is tried that is neither stored nor refused; each time someone else was about the same key."""
_ADDED: Final = Added()
_KNOWN: Final = Known()


class Adder:
    """Adds tasks."""

    def __init__(self, connections: Connections, statements: Statements, address: Address) -> None:
        self._connections = connections
        self._statements = statements
        self._address = address
        self._names = RouteNames()
        self._made: set[str] = set()
        """Routes that were there when last used. One that is gone after all is made again."""

    async def add(self, tasks: Sequence[Task], now: Instant | None, bounds: Mapping[str, int]) -> list[Receipt]:
        """The receipts, in order."""
        if not _need_care(tasks, bounds) and await self._add_new(tasks):
            return [_ADDED] * len(tasks)
        receipts: list[Receipt] = [_ADDED] * len(tasks)
        for places in _rounds(tasks):
            given = [tasks[place] for place in places]
            bounded = sorted({task.spec.queue for task in given if task.spec.queue in bounds})
            waiting = any(task.spec.after is not None for task in given)
            if bounded or waiting:

                async def work(
                    session: Session,
                    given: Sequence[Task] = given,
                    bounded: Sequence[str] = bounded,
                    waiting: bool = waiting,
                ) -> list[Receipt]:
                    if waiting:
                        return await self._add_waiting(session, given, now, bounds, bounded)
                    return await self._add_bounded(session, given, now, bounds, bounded)

                # Made outside the transaction: inside, it would keep others from using them until the commit.
                await self._make_routes(self._connections, self._names.among(task.spec for task in given)[0])
                answers = await self._connections.transaction(work)
            else:
                answers = await self._add(self._connections, given, now)
            for place, answer in zip(places, answers, strict=True):
                receipts[place] = answer
        return receipts

    async def _add_new(self, tasks: Sequence[Task]) -> bool:
        """Whether the tasks were stored, as almost all are; if not, none was, and the long way finds out why."""
        columns: tuple[Any, ...]
        if len(tasks) == 1 and is_plain(tasks[0]):
            statement, columns = self._statements["add.one"], plain_columns(tasks[0], self._names)
            names = [columns[0]]
        else:
            names, packed = self._columns(sorted(tasks, key=_by_id), keyed=False)
            by_turn = any(task.spec.takes_turns for task in tasks)
            statement = self._statements.new(by_turn=by_turn)
            columns = binary_arrays.texts(names), *(packed if by_turn else packed[:-TURN_COLUMNS])
        await self._make_routes(self._connections, names)
        try:
            await self._connections.fetch(statement, (self._address.channel, *columns))
        except Contradicted:
            return False
        return True

    async def _add(self, session: Session, tasks: Sequence[Task], now: Instant | None) -> list[Receipt]:
        """Add tasks that share no id and no key."""
        answers: dict[TaskId, Receipt] = {}
        left = sorted(tasks, key=_by_id)
        for _ in range(_TRIES):
            refused = await self._store(session, left, now)
            if not refused:
                break
            left = [task for task in left if task.id in refused]
            reasons = await self._reasons(session, left, now)
            answers |= {task.id: reason for task, reason in zip(left, reasons, strict=True) if reason is not None}
            left = [task for task, reason in zip(left, reasons, strict=True) if reason is None]
            if not left:
                break
        else:
            raise StoreUnavailable(
                f"{self._address.shown}: idempotency keys changed {_TRIES} times meanwhile; try again later"
            )
        return [answers.get(task.id, _ADDED) for task in tasks]

    async def _store(self, session: Session, tasks: Sequence[Task], now: Instant | None) -> set[TaskId]:
        """Store what can be stored; the ids of the others."""
        names, columns = self._columns(tasks, keyed=True)
        await self._make_routes(session, names)
        parameters = (now, self._address.channel, binary_arrays.texts(names), *columns)
        rows = await session.fetch(self._statements["add.tasks"], parameters)
        _, routed, refused, _ = rows[0]
        if routed < len(tasks):
            self._made.clear()
        return {task_id_of(text) for text in refused or ()}

    async def _reasons(self, session: Session, tasks: Sequence[Task], now: Instant | None) -> list[Receipt | None]:
        """Why each task cannot be stored; None if it could be now."""
        specs = [task.spec for task in tasks]
        rows = await session.fetch(
            self._statements["add.standing"],
            (
                now,
                binary_arrays.uuids([spec.id for spec in specs]),
                binary_arrays.texts([spec.queue for spec in specs]),
                binary_arrays.byteas([key_of(spec) for spec in specs]),
            ),
        )
        return [_KNOWN if known else KeyHeld(task_id_of(holder)) if holder else None for known, holder in rows]

    async def _add_bounded(
        self,
        session: Session,
        tasks: Sequence[Task],
        now: Instant | None,
        bounds: Mapping[str, int],
        bounded: Sequence[str],
    ) -> list[Receipt]:
        """Add tasks of which some are for queues with a bound, one call at a time for each such queue."""
        queues = binary_arrays.texts(bounded)
        await session.fetch(self._statements["add.lock"], (self._address.schema, queues))
        rows = await session.fetch(self._statements["add.depth"], (queues,))
        depths = dict.fromkeys(bounded, 0) | {str(queue): int(depth) for queue, depth in rows}
        answers: dict[TaskId, Receipt] = {}
        admitted: list[Task] = []
        for task, reason in zip(tasks, await self._reasons(session, tasks, now), strict=True):
            queue = task.spec.queue
            if reason is not None:
                answers[task.id] = reason
            elif task.state.waiting and queue in depths and depths[queue] >= bounds[queue]:
                answers[task.id] = Full(depths[queue], bounds[queue])
            else:
                admitted.append(task)
                if task.state.waiting and queue in depths:
                    depths[queue] += 1
        if admitted:
            receipts = await self._add(session, admitted, now)
            answers |= {task.id: receipt for task, receipt in zip(admitted, receipts, strict=True)}
        return [answers[task.id] for task in tasks]

    async def _add_waiting(
        self,
        session: Session,
        tasks: Sequence[Task],
        now: Instant | None,
        bounds: Mapping[str, int],
        bounded: Sequence[str],
    ) -> list[Receipt]:
        """Add tasks of which some wait for others, which are kept from ending meanwhile."""
        named = {task.id: _named(task) for task in tasks}
        ids = sorted({parent for parents in named.values() for parent in parents})
        rows = await session.fetch(self._statements["add.named"], (binary_arrays.uuids(ids),))
        states = {task_id_of(text): STATES[state] for text, state in rows}
        missing = {
            task_id: Missing(next(parent for parent in parents if parent not in states))
            for task_id, parents in named.items()
            if not states.keys() >= set(parents)
        }
        refused = [task for task in tasks if task.id in missing]
        reasons = await self._reasons(session, refused, now) if refused else []
        answers: dict[TaskId, Receipt] = {
            task.id: reason or missing[task.id] for task, reason in zip(refused, reasons, strict=True)
        }
        admitted = [
            Task(task.spec, counted(task.status, [states[parent] for parent in named[task.id]]))
            if named[task.id]
            else task
            for task in tasks
            if task.id not in missing
        ]
        if admitted:
            receipts = await (
                self._add_bounded(session, admitted, now, bounds, bounded)
                if bounded
                else self._add(session, admitted, now)
            )
            answers |= {task.id: receipt for task, receipt in zip(admitted, receipts, strict=True)}
        links = [
            (parent, task.id)
            for task in admitted
            if isinstance(answers[task.id], Added)
            for parent in named[task.id]
            if not states[parent].ended
        ]
        if links:
            parents, dependents = zip(*links, strict=True)
            await session.fetch(
                self._statements["add.await"], (binary_arrays.uuids(parents), binary_arrays.uuids(dependents))
            )
        return [answers[task.id] for task in tasks]

    async def _make_routes(self, session: Session, names: Sequence[str]) -> None:
        missing = sorted(set(names) - self._made)
        if not missing:
            return
        queues, types, requires, keyed, fair = route_columns(missing)
        await session.fetch(
            self._statements["add.routes"],
            (
                binary_arrays.texts(missing),
                binary_arrays.texts(queues),
                binary_arrays.texts(types),
                binary_arrays.texts(requires),
                binary_arrays.booleans(keyed),
                binary_arrays.booleans(fair),
            ),
        )
        self._made.update(missing)

    def _columns(self, tasks: Sequence[Task], *, keyed: bool) -> tuple[list[str], list[Packed]]:
        """The names of the routes, and the columns, without those of idempotency keys unless there are any."""
        names, columns = named_columns(tasks, self._names)
        packers = ADD_PACKERS if keyed else ADD_PACKERS[:-KEY_COLUMNS]
        return names, [pack(column) for pack, column in zip(packers, columns, strict=False)]


def named_columns(tasks: Sequence[Task], known: RouteNames) -> tuple[list[str], list[list[Any]]]:
    """The names of the tasks' routes, and the columns of add.tasks from $4 on."""
    names, places = known.among(task.spec for task in tasks)
    return names, columns_of(tasks, places)


def _need_care(tasks: Sequence[Task], bounds: Mapping[str, int]) -> bool:
    """Whether more than its id decides if a task can be stored, for any of these."""
    for task in tasks:
        spec = task.spec
        if spec.idempotency_key is not None or spec.after is not None or spec.queue in bounds:
            return True
    return False


def _by_id(task: Task) -> TaskId:
    return task.spec.id


def _named(task: Task) -> tuple[TaskId, ...]:
    """The tasks that a new one is to wait for."""
    return task.spec.after.tasks if task.spec.after is not None and task.status.waits else ()


def _rounds(tasks: Sequence[Task]) -> list[list[int]]:
    """Rounds of tasks that share no id and no key; a task comes after those it shares either with, or waits for."""
    if all(task.spec.idempotency_key is None and task.spec.after is None for task in tasks):
        return rounds([task.spec.id for task in tasks])
    turns: dict[Hashable, int] = {}
    split: list[list[int]] = []
    for place, task in enumerate(tasks):
        spec = task.spec
        marks: list[Hashable] = [spec.id]
        if spec.idempotency_key is not None:
            marks.append((spec.queue, spec.idempotency_key))
        turn = max(turns.get(mark, 0) for mark in (*marks, *_named(task)))
        turns |= dict.fromkeys(marks, turn + 1)
        if turn == len(split):
            split.append([])
        split[turn].append(place)
    return split
