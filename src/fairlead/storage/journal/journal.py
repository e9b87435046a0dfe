"""The journal's side in PostgreSQL: every task that was accepted, how it stands, and what it went through.

Nothing here knows of the hot store. A row only ever gets a higher version, so that writing the same again changes
nothing, whoever does it and in whatever order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

import psycopg
from msgspec import Struct

from fairlead.core.diagnosis import Examination
from fairlead.core.errors import StoreError
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.task import State, Task
from fairlead.storage.journal.address import JournalAddress, parse_journal
from fairlead.storage.journal.rows import asked_columns, status_columns, task_of
from fairlead.storage.journal.searching import Search, searching
from fairlead.storage.journal.statements import Statements
from fairlead.storage.postgres import arrays, examining, schema
from fairlead.storage.postgres.connections import AsyncConnections, BlockingConnections, Connections
from fairlead.storage.postgres.records import Records
from fairlead.storage.postgres.rows import CODES, STATES, task_id_of
from fairlead.storage.postgres.sessions import Row, Session
from fairlead.storage.postgres.statements import Statement
from fairlead.storage.postgres.statements import Statements as PostgresStatements

PACKAGE: Final = "fairlead.storage.journal"
_CAST: Final = "convert_from(parameters, 'UTF8')::jsonb"
_CAREFUL_CAST: Final = "{schema}.searchable(parameters)"
FIRST_ID: Final = TaskId("0" * 32)

Result = TypeVar("Result")
Place = tuple[Instant, TaskId]


def migrate(url: str) -> list[str]:
    """Bring the journal's schema at this URL up to date; the answer names the migrations that were applied."""
    return schema.migrate_at(parse_journal(url).database, PACKAGE)


class Leaving(Struct, frozen=True):
    """An ended task whose time in the hot store is over."""

    place: Place
    version: int
    beats: int


class Rows:
    """What can be done with the rows, each call by itself or several in one transaction."""

    def __init__(self, session: Session, statements: Statements, hot_retention: Span) -> None:
        self._session = session
        self._statements = statements
        self._hot_retention = hot_retention

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
        ids = arrays.uuids([task.id for task in tasks])
        parameters = (accepted, self._hot_retention, ids, *status_columns(tasks))
        return {_id(row[0]) for row in await self._fetch(self._statements["update"], parameters)}

    async def store(self, tasks: Sequence[Task]) -> None:
        """Write down how tasks stand, new or not; what is there in a higher version stays."""
        ordered = sorted(tasks, key=lambda task: task.id)
        updated = await self.update(ordered)
        if rest := [task for task in ordered if task.id not in updated]:
            await self.add(rest, accepted=False)

    async def remove(self, ids: Sequence[TaskId]) -> None:
        """Remove tasks."""
        await self._fetch(self._statements["remove"], (arrays.uuids(ids),))

    async def get(self, ids: Sequence[TaskId]) -> dict[TaskId, Task]:
        """Those of the tasks that are there."""
        known = [task_id for task_id in ids if _is_id(task_id)]
        rows = await self._fetch(self._statements["get"], (arrays.uuids(known),)) if known else []
        return {task.id: task for task in map(task_of, rows)}

    async def versions(self, ids: Sequence[TaskId]) -> dict[TaskId, tuple[int, State]]:
        """The versions and states of those of the tasks that are there."""
        rows = await self._fetch(self._statements["versions"], (arrays.uuids(ids),))
        return {_id(found): (version, STATES[state]) for found, version, state in rows}

    async def live(self, state: State, after: TaskId, limit: int) -> list[Task]:
        """One page of the tasks in a state, by id."""
        statement = self._statements.filled("live", state=str(CODES[state]))
        return [task_of(row) for row in await self._fetch(statement, (UUID(after), limit))]

    async def staying(self, after: Place, limit: int) -> list[tuple[Instant, Task]]:
        """One page of the ended tasks that are to be in the hot store, by when they leave it."""
        rows = await self._fetch(self._statements["staying"], (after[0], UUID(after[1]), limit))
        return [(row[2], task_of(row)) for row in rows]

    async def _fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        return await self._session.fetch(statement, parameters)

    def _adding(self, cast: str) -> Statement:
        return self._statements.filled("add", parameters=self._statements.fitted(cast))


class Journal(Rows):
    """A journal in a PostgreSQL database."""

    def __init__(self, address: JournalAddress, *, blocking: bool = False) -> None:
        self.address = address
        database = address.database
        connections: Connections = BlockingConnections(database) if blocking else AsyncConnections(database)
        self._connections = connections
        self._blocking = blocking
        self._ensured = False
        super().__init__(connections, Statements(database.schema), address.hot_retention)
        self.records = Records(self, PostgresStatements(database.schema))
        """The records that are kept here, as a PostgreSQL store keeps them."""

    async def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a statement, once the schema is there."""
        await self.ensure()
        return await self._session.fetch(statement, parameters)

    async def ensure(self) -> None:
        """Set up an empty database; raise StoreMismatch unless the schema is the one that this code knows."""
        if self._ensured:
            return
        if self._blocking:
            schema.ensure(self.address.database, PACKAGE)
        else:
            await asyncio.to_thread(schema.ensure, self.address.database, PACKAGE)
        self._ensured = True

    async def search(self, search: Search, limit: int, newest_first: bool, after: TaskId | None) -> list[Task]:
        """One page of what is asked for, by id."""
        statement = searching(self._statements, search, limit, newest_first, after)
        return [task_of(row) for row in await self._fetch(statement)]

    async def alone(self, work: Callable[[Rows], Awaitable[Result]]) -> Result:
        """Do work in one transaction, while no one puts tasks back into the hot store."""
        return await self._locked("", work)

    async def together(self, work: Callable[[Rows], Awaitable[Result]]) -> Result:
        """Do work in one transaction, while no one changes a task that is not in the hot store."""
        return await self._locked("_shared", work)

    async def count_live(self) -> int:
        """How many tasks are to be in the hot store."""
        rows = await self._fetch(self._statements["count_live"])
        return int(rows[0][0])

    async def take_duty(self, name: str, length: Span) -> Place | None:
        """How far a duty was done, if no one does it now: it is the caller's for so long."""
        rows = await self._fetch(self._statements["take_duty"], (name, length))
        return (rows[0][0], _id(rows[0][1])) if rows else None

    async def give_duty(self, name: str, place: Place) -> None:
        """Leave a duty to others, done up to a place."""
        await self._fetch(self._statements["give_duty"], (name, place[0], UUID(place[1])))

    async def accepted(self, after: Place, age: Span, limit: int) -> list[Place]:
        """Tasks accepted so long ago that the hot store has not told of, by when they were accepted."""
        rows = await self._fetch(self._statements["accepted"], (after[0], UUID(after[1]), age, limit))
        return [(at, _id(found)) for at, found in rows]

    async def leaving(self, after: Place, limit: int) -> list[Leaving]:
        """Ended tasks whose time in the hot store is over, by when it was."""
        rows = await self._fetch(self._statements["leaving"], (after[0], UUID(after[1]), limit))
        return [Leaving((at, _id(found)), version, beats) for at, found, version, beats in rows]

    async def prune(self, limit: int) -> int:
        """Remove ended tasks whose retention is over; how many."""
        rows = await self._fetch(self._statements["prune"], (limit,))
        return int(rows[0][0])

    async def examine(self) -> Examination:
        """What the journal's database says of its own health."""
        database = self.address.database
        statement = PostgresStatements(database.schema)["examine"]
        return examining.examined(await examining.facts_of(self, statement, database), database)

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()

    async def _fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        return await self.fetch(statement, parameters)

    async def _locked(self, kind: str, work: Callable[[Rows], Awaitable[Result]]) -> Result:
        await self.ensure()
        lock = self._statements.filled("lock", kind=kind)

        async def locked(session: Session) -> Result:
            await session.fetch(lock, (self.address.database.schema,))
            return await work(Rows(session, self._statements, self._hot_retention))

        return await self._connections.transaction(locked)


def _id(found: object) -> TaskId:
    return task_id_of(str(found))


def _is_id(task_id: TaskId) -> bool:
    try:
        return len(bytes.fromhex(task_id)) == 16 and len(task_id) == 32
    except ValueError:
        return False
