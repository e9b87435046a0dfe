"""What an app's owner does with its tasks, from asynchronous and from synchronous code."""

from __future__ import annotations

from collections.abc import Callable

from fairlead.core.errors import InvalidTask
from fairlead.core.identity import parse_task_id
from fairlead.core.query import Query
from fairlead.core.query_text import parse_query
from fairlead.core.task import Priority, Task
from fairlead.engine.dead_letters import Groups, dead_letters_of
from fairlead.engine.facade import Facade
from fairlead.engine.gathering import gather
from fairlead.engine.inline import run_inline
from fairlead.engine.searching import Found
from fairlead.sdk.connection import Link


class AppTasks:
    """The tasks of an app, whoever submitted them; what is done to many at once is in `app.operations`."""

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect

    async def get(self, task_id: str) -> Task:
        """The task with this id."""
        return await (await self._connect().engine()).get(parse_task_id(task_id))

    async def search(
        self, query: str = "", *, limit: int = 100, after: str | None = None, newest_first: bool = True
    ) -> Found:
        """A page of the tasks that a query means: `search("state:failed queue:emails created:>-1h")`.

        The cursor of the answer, given as `after`, leads to the next page; it is None when there is none.
        """
        return await _page(await self._connect().engine(), parse_query(query), limit, after, newest_first)

    async def cancel(self, task_id: str) -> Task:
        """Cancel a task at once if it waits; ask its worker to stop it if it runs."""
        return await (await self._connect().engine()).cancel(parse_task_id(task_id))

    async def replay(self, task_id: str, *, reset_retries: bool = True, priority: str | None = None) -> Task:
        """Queue a dead letter, or a failed or cancelled task, again."""
        return await _replay(await self._connect().engine(), task_id, reset_retries, priority)

    async def discard(self, task_id: str) -> Task:
        """Remove an ended task for good; the answer is how it stood."""
        return await (await self._connect().engine()).discard(parse_task_id(task_id))

    def get_sync(self, task_id: str) -> Task:
        """`get`, from synchronous code."""
        return run_inline(self._connect().inline().get(parse_task_id(task_id)))

    def search_sync(
        self, query: str = "", *, limit: int = 100, after: str | None = None, newest_first: bool = True
    ) -> Found:
        """`search`, from synchronous code."""
        return run_inline(_page(self._connect().inline(), parse_query(query), limit, after, newest_first))

    def cancel_sync(self, task_id: str) -> Task:
        """`cancel`, from synchronous code."""
        return run_inline(self._connect().inline().cancel(parse_task_id(task_id)))

    def replay_sync(self, task_id: str, *, reset_retries: bool = True, priority: str | None = None) -> Task:
        """`replay`, from synchronous code."""
        return run_inline(_replay(self._connect().inline(), task_id, reset_retries, priority))

    def discard_sync(self, task_id: str) -> Task:
        """`discard`, from synchronous code."""
        return run_inline(self._connect().inline().discard(parse_task_id(task_id)))


class AppDeadLetters:
    """The dead letters of an app: tasks whose retries are used up. A query that names no state is about them."""

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect

    async def search(
        self, query: str = "", *, limit: int = 100, after: str | None = None, newest_first: bool = True
    ) -> Found:
        """A page of the dead letters that a query means; its cursor, given as `after`, leads to the next."""
        engine = await self._connect().engine()
        return await _page(engine, dead_letters_of(parse_query(query)), limit, after, newest_first)

    async def groups(self, query: str = "") -> Groups:
        """Count dead letters by type and by error; errors that differ only in ids, numbers and the like are one."""
        return await (await self._connect().engine()).dead_letters.groups(parse_query(query))

    def search_sync(
        self, query: str = "", *, limit: int = 100, after: str | None = None, newest_first: bool = True
    ) -> Found:
        """`search`, from synchronous code."""
        engine = self._connect().inline()
        return run_inline(_page(engine, dead_letters_of(parse_query(query)), limit, after, newest_first))

    def groups_sync(self, query: str = "") -> Groups:
        """`groups`, from synchronous code."""
        return run_inline(self._connect().inline().dead_letters.groups(parse_query(query)))


async def _page(engine: Facade, query: Query, limit: int, after: str | None, newest_first: bool) -> Found:
    if limit < 1:
        raise InvalidTask("limit", f"limit {limit} asks for nothing; use 1 or more")
    place = None if after is None else parse_task_id(after)
    return await gather(engine, query, limit=limit, after=place, newest_first=newest_first)


async def _replay(engine: Facade, task_id: str, reset_retries: bool, priority: str | None) -> Task:
    wanted = None if priority is None else Priority.parse(priority)
    return await engine.replay(parse_task_id(task_id), reset_retries=reset_retries, priority=wanted)
