"""The journal's side in PostgreSQL: every task that was accepted, how it stands, and what it went through.

Nothing here knows of the hot store. A row only ever gets a higher version, so that writing the same again changes
nothing, whoever does it and in whatever order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

import psycopg
from msgspec import Struct

from fairlead.core.errors import StoreError
from fairlead.core.health.diagnosis import Examination
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.task import State, Task
from fairlead.storage.journal.availability import Reach, ReachedConnections
from fairlead.storage.journal.rows import (
    Search,
    Statements,
    asked_columns,
    requires_in,
    searching,
    status_columns,
    tasks_in,
)
from fairlead.storage.journal.url import JournalAddress, parse_journal
from fairlead.storage.postgres import binary_arrays, health, schema
from fairlead.storage.postgres.connection.pool import AsyncConnections, BlockingConnections, Connections
from fairlead.storage.postgres.connection.session import Row, Session
from fairlead.storage.postgres.records import Records
from fairlead.storage.postgres.rows import CODES, STATES, task_id_of
from fairlead.storage.postgres.statements import Statement
from fairlead.storage.postgres.statements import Statements as PostgresStatements
from fairlead.storage.quarantine import Damage, Location, Removal

PACKAGE: Final = "fairlead.storage.journal"
_CAST: Final = "convert_from(parameters, 'UTF8')::jsonb"
_CAREFUL_CAST: Final = "{schema}.searchable(parameters)"
FIRST_ID: Final = TaskId("0" * 32)
_CANDIDATE: Final = ":0"

Result = TypeVar("Result")
Place = tuple[Instant, TaskId]


def migrate(url: str) -> list[str]:
    """Bring the journal's schema at this URL up to date; the answer names the migrations that were applied."""
    return schema.migrate_at(parse_journal(url).database, PACKAGE)


class Mark(Struct, frozen=True):
    """The mark that the current hot store bears."""

    name: str
    """What that store was called before it had the mark: it has made it up itself, so no other store has it."""
    number: int
    """0 while no hot store was ever marked."""
    whole: bool
    """Whether that store has all that the journal has."""
    slots: tuple[int, ...]
    """Its slots that bear the mark."""

    @property
    def text(self) -> str:
        """What the hot store and its slots bear."""
        return f"{self.name}:{self.number}"

    @property
    def partial(self) -> str:
        """What a slot bears whose tasks are being put back."""
        return f"{self.text}?"

    @property
    def candidate(self) -> str:
        """What the hot store bore before it became the current one, and does until it has the mark."""
        return candidate(self.name)


def candidate(name: str) -> str:
    """What a store of this name bears that may become the current one."""
    return f"{name}{_CANDIDATE}"


def name_of_candidate(borne: str) -> str | None:
    """The name of a store that may become the current one; None for one that bears a mark."""
    return borne.removesuffix(_CANDIDATE) if borne.endswith(_CANDIDATE) else None


class Leaving(Struct, frozen=True):
    """An ended task whose time in the hot store is over."""

    place: Place
    version: int
    beats: int


class Page(Struct, frozen=True):
    """Some of the tasks of a listing; rows that cannot be decoded are passed over."""

    tasks: list[Task]
    end: Place | None
    """Where the next page begins; None if there was nothing more."""


class Rows:
    """What can be done with the rows, each call by itself or several in one transaction."""

    def __init__(
        self, session: Session, statements: Statements, hot_retention: Span, met: dict[TaskId, Damage] | None = None
    ) -> None:
        self._session = session
        self._statements = statements
        self._hot_retention = hot_retention
        self.met: dict[TaskId, Damage] = {} if met is None else met
        """Rows that cannot be decoded: they are passed over, and whoever has a hot store sees to them."""

    async def add(self, tasks: Sequence[Task], *, accepted: bool) -> set[TaskId]:
        """Write down new tasks; the ids of those that were new."""
        parameters = (accepted, self._hot_retention, *asked_columns(tasks), *status_columns(tasks))
        try:
            rows = await self._fetch(self._adding(_CAST), parameters)
        except StoreError as error:
            # One task whose parameters jsonb cannot hold must not keep the others out.
            if not isinstance(error.__cause__, psycopg.errors.DataError | psycopg.errors.ProgramLimitExceeded):
                raise
            rows = await self._fetch(self._adding(_CAREFUL_CAST), parameters)
        return {_id(row[0]) for row in rows}

    async def update(self, tasks: Sequence[Task], *, accepted: bool = False) -> set[TaskId]:
        """Replace how tasks stand, where the version is higher; the ids of those that were."""
        ids = binary_arrays.uuids([task.id for task in tasks])
        parameters = (accepted, self._hot_retention, ids, *status_columns(tasks))
        return {_id(row[0]) for row in await self._fetch(self._statements["change.update"], parameters)}

    async def store(self, tasks: Sequence[Task]) -> None:
        """Write down how tasks stand, new or not; what is there in a higher version stays."""
        ordered = sorted(tasks, key=lambda task: task.id)
        updated = await self.update(ordered)
        if rest := [task for task in ordered if task.id not in updated]:
            await self.add(rest, accepted=False)

    async def remove(self, ids: Sequence[TaskId]) -> None:
        """Remove tasks."""
        await self._fetch(self._statements["change.remove"], (binary_arrays.uuids(ids),))

    async def get(self, ids: Sequence[TaskId]) -> dict[TaskId, Task]:
        """Those of the tasks that are there."""
        known = [task_id for task_id in ids if _is_id(task_id)]
        rows = await self._fetch(self._statements["read.get"], (binary_arrays.uuids(known),)) if known else []
        return {task.id: task for task in self._tasks(rows)}

    async def versions(self, ids: Sequence[TaskId]) -> dict[TaskId, tuple[int, State]]:
        """The versions and states of those of the tasks that are there."""
        rows = await self._fetch(self._statements["read.versions"], (binary_arrays.uuids(ids),))
        return {_id(found): (version, STATES[state]) for found, version, state in rows}

    async def live(self, state: State, after: Place, limit: int) -> Page:
        """One page of the tasks in a state, by id."""
        statement = self._statements.filled("read.live", state=str(CODES[state]))
        rows = await self._fetch(statement, (UUID(after[1]), limit))
        return Page(self._tasks(rows), (0, _id(rows[-1][2])) if rows else None)

    async def staying(self, after: Place, limit: int) -> Page:
        """One page of the ended tasks that are to be in the hot store, by when they leave it."""
        rows = await self._fetch(self._statements["read.staying"], (after[0], UUID(after[1]), limit))
        return Page(self._tasks(rows), (rows[-1][-1], _id(rows[-1][2])) if rows else None)

    def _tasks(self, rows: Sequence[Row]) -> list[Task]:
        tasks, met = tasks_in(rows)
        for damage in met:
            self.met[damage.id] = damage
        return tasks

    async def _fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        return await self._session.fetch(statement, parameters)

    def _adding(self, cast: str) -> Statement:
        return self._statements.filled("change.add", parameters=self._statements.fitted(cast))


class Journal(Rows):
    """A journal in a PostgreSQL database."""

    def __init__(self, address: JournalAddress, *, blocking: bool = False) -> None:
        self.address = address
        database = address.database
        connections: Connections = BlockingConnections(database) if blocking else AsyncConnections(database)
        self.reach = Reach(database)
        self._connections = ReachedConnections(connections, self.reach)
        self.blocking = blocking
        self._ensured = False
        super().__init__(self._connections, Statements(database.schema), address.hot_retention)
        self.records = Records(self, PostgresStatements(database.schema))
        """The records that are kept here, as a PostgreSQL store keeps them."""

    async def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a statement, once the schema is there."""
        await self.ensure()
        return await self._session.fetch(statement, parameters)

    async def ensure(self) -> None:
        """Set up an empty database; raise StoreMismatch unless the schema is the one that this code knows."""
        if not self._ensured:
            await self.reach.ask(self._ensure)
            self._ensured = True

    async def search(self, search: Search, limit: int, newest_first: bool, after: TaskId | None) -> list[Task]:
        """One page of what is asked for, by id."""
        tasks: list[Task] = []
        while len(tasks) < limit:
            wanted = limit - len(tasks)
            rows = await self._fetch(searching(self._statements, search, wanted, newest_first, after))
            tasks += self._tasks(rows)
            if len(rows) < wanted:
                break
            after = _id(rows[-1][2])
        return tasks

    async def set_aside(self, damage: Damage) -> Removal:
        """Remove what is no task, if it is still what was read."""
        parameters = (UUID(damage.id), damage.parts["spec"], damage.parts["status"])
        ((removed, is_there),) = await self._fetch(self._statements["change.set_aside"], parameters)
        return Removal.REMOVED if removed else Removal.CHANGED if is_there else Removal.GONE

    async def locate(self, damage: Damage) -> Location | None:
        """Where what is no task is."""
        rows = await self._fetch(self._statements["read.location_of"], (UUID(damage.id),))
        return Location(rows[0][0], requires_in(bytes(rows[0][1]))) if rows else None

    async def alone(self, work: Callable[[Rows], Awaitable[Result]]) -> Result:
        """Do work in one transaction, while no one puts tasks back into the hot store."""
        return await self._locked("", work)

    async def together(self, work: Callable[[Rows], Awaitable[Result]]) -> Result:
        """Do work in one transaction, while no one changes a task that is not in the hot store."""
        return await self._locked("_shared", work)

    async def count_live(self) -> int:
        """How many tasks are to be in the hot store."""
        rows = await self._fetch(self._statements["read.count_live"])
        return int(rows[0][0])

    async def take_duty(self, name: str, length: Span) -> Place | None:
        """How far a duty was done, if no one does it now: it is the caller's for so long."""
        rows = await self._fetch(self._statements["duties.take"], (name, length))
        return (rows[0][0], _id(rows[0][1])) if rows else None

    async def give_duty(self, name: str, place: Place) -> None:
        """Leave a duty to others, done up to a place."""
        await self._fetch(self._statements["duties.give"], (name, place[0], UUID(place[1])))

    async def keep_duty(self, name: str, length: Span) -> None:
        """Have a duty that one has for so long from now on."""
        await self._fetch(self._statements["duties.keep"], (name, length))

    async def mark(self) -> Mark:
        """The mark of the current hot store."""
        ((name, number, whole, slots),) = await self._fetch(self._statements["incarnation.mark"])
        return Mark(name, number, whole, tuple(slots))

    async def move_mark(self, number: int, name: str, *, whole: bool) -> int | None:
        """Make the hot store of this name the current one; the number of its mark, None if someone else was first."""
        rows = await self._fetch(self._statements["incarnation.move_mark"], (number, whole, name))
        return int(rows[0][0]) if rows else None

    async def list_marked(self, number: int, slots: Sequence[int]) -> None:
        """List slots that bear the mark of this number."""
        if slots:
            await self._fetch(self._statements["incarnation.list_marked"], (number, binary_arrays.int4s(slots)))

    async def make_whole(self, number: int) -> None:
        """Say that the hot store with this mark has all that the journal has."""
        await self._fetch(self._statements["incarnation.make_whole"], (number,))

    async def accepted(self, after: Place, age: Span, limit: int) -> list[Place]:
        """Tasks accepted so long ago that the hot store has not told of, by when they were accepted."""
        rows = await self._fetch(self._statements["read.accepted"], (after[0], UUID(after[1]), age, limit))
        return [(at, _id(found)) for at, found in rows]

    async def leaving(self, after: Place, limit: int) -> list[Leaving]:
        """Ended tasks whose time in the hot store is over, by when it was."""
        rows = await self._fetch(self._statements["read.leaving"], (after[0], UUID(after[1]), limit))
        return [Leaving((at, _id(found)), version, beats) for at, found, version, beats in rows]

    async def prune(self, limit: int) -> int:
        """Remove ended tasks whose retention is over; how many."""
        rows = await self._fetch(self._statements["change.prune"], (limit,))
        return int(rows[0][0])

    async def examine(self) -> Examination:
        """What the journal's database says of its own health."""
        database = self.address.database
        statement = PostgresStatements(database.schema)["health.examine"]
        return health.examined(await health.facts_of(self, statement, database), database)

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()

    async def _ensure(self) -> None:
        if self.blocking:
            schema.ensure(self.address.database, PACKAGE)
        else:
            await asyncio.to_thread(schema.ensure, self.address.database, PACKAGE)

    async def _fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        return await self.fetch(statement, parameters)

    async def _locked(self, kind: str, work: Callable[[Rows], Awaitable[Result]]) -> Result:
        await self.ensure()
        lock = self._statements.filled("change.lock", kind=kind)

        async def locked(session: Session) -> Result:
            await session.fetch(lock, (self.address.database.schema,))
            return await work(Rows(session, self._statements, self._hot_retention, self.met))

        return await self._connections.transaction(locked)


def _id(found: object) -> TaskId:
    return task_id_of(str(found))


def _is_id(task_id: TaskId) -> bool:
    try:
        return len(bytes.fromhex(task_id)) == 16 and len(task_id) == 32
    except ValueError:
        return False


def named_by(tasks: Iterable[Task]) -> set[TaskId]:
    """All that these tasks wait for."""
    waiting = (task.spec.after for task in tasks if task.status.waits)
    return {named for after in waiting if after is not None for named in after.tasks}


async def standing(rows: Rows, named: Collection[TaskId]) -> dict[TaskId, State]:
    """How those of these tasks stand that the journal has."""
    if not named:
        return {}
    versions = await rows.versions(sorted(named))
    return {task_id: state for task_id, (_, state) in versions.items()}


async def standing_after_loss(rows: Rows, tasks: Iterable[Task]) -> dict[TaskId, State]:
    """How those stand that these tasks, which were stored before, wait for.

    What even the journal has not has ended long ago. If it did not complete, the task that waits has counted it.
    """
    named = named_by(tasks)
    return dict.fromkeys(named, State.COMPLETED) | await standing(rows, named)
