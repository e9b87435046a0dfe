"""Searches, dead letters and operations behind a server, over the API."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode

from msgspec import Struct

from fairlead.client.queues import Asking
from fairlead.client.tasks import task_of
from fairlead.core.errors import OperationNotFound
from fairlead.core.identity import TaskId
from fairlead.core.operation import Operation
from fairlead.core.query import EVERYTHING, Query
from fairlead.engine.dead_letters import Groups
from fairlead.engine.operations import Preview, Wish
from fairlead.engine.searching import Found
from fairlead.wire.cursors import Order, cursor_after, place_of
from fairlead.wire.dead_letters import GroupsShown, groups_of
from fairlead.wire.moments import parse_iso
from fairlead.wire.operations import OperationList, OperationPreview, OperationShown, operation_of, request_of
from fairlead.wire.shown import TaskBrief

_OPERATIONS: Final = "/api/v1/operations"
_PAGE: Final = 1_000


class _Page(Struct):
    """One page of a list."""

    tasks: list[TaskBrief]
    next_cursor: str | None = None


class RemoteSearch(Asking):
    """Searches a store behind a server."""

    async def page(
        self, query: Query, asked: dict[str, str], limit: int, newest_first: bool, after: TaskId | None
    ) -> Found:
        """One page of what a query means, of what the other parameters admit."""
        order: Order = "newest" if newest_first else "oldest"
        parameters = {**asked, "q": str(query), "limit": str(min(limit, _PAGE)), "order": order}
        if after is not None:
            parameters["cursor"] = cursor_after(after, order)
        page = await self.ask("GET", f"/api/v1/tasks?{urlencode(parameters)}", _Page)
        cursor = None if page.next_cursor is None else place_of(page.next_cursor, order)
        return Found([task_of(shown) for shown in page.tasks], cursor)


class RemoteDeadLetters(Asking):
    """The dead letters behind a server."""

    async def groups(self, query: Query = EVERYTHING) -> Groups:
        """Group the dead letters that a query means."""
        asked = f"?{urlencode({'q': str(query)})}" if query.terms else ""
        return groups_of(await self.ask("GET", f"/api/v1/dlq/groups{asked}", GroupsShown))


class RemoteOperations(Asking):
    """The operations behind a server, which works on them."""

    async def preview(self, wish: Wish) -> Preview:
        """What an operation would act on, without doing anything."""
        shown = await self.ask("POST", _OPERATIONS, OperationPreview, request_of(wish, dry_run=True))
        sample = [task_of(each) for each in shown.sample]
        return Preview(as_of=parse_iso(shown.as_of), count=shown.count, exact=shown.exact, sample=sample)

    async def start(self, wish: Wish) -> Operation:
        """Begin an operation; who begins it is whose key is used."""
        return operation_of(await self.ask("POST", _OPERATIONS, OperationShown, request_of(wish)))

    async def all(self) -> list[Operation]:
        """Every operation that is kept, the newest first."""
        return [operation_of(each) for each in (await self.ask("GET", _OPERATIONS, OperationList)).operations]

    async def get(self, operation_id: str) -> Operation:
        """The operation with this id."""
        return await self._one("GET", operation_id)

    async def pause(self, operation_id: str) -> Operation:
        """Stop an operation until it is resumed."""
        return await self._one("POST", operation_id, "/pause")

    async def resume(self, operation_id: str) -> Operation:
        """Let an operation go on from where it was; also past its canary."""
        return await self._one("POST", operation_id, "/resume")

    async def cancel(self, operation_id: str) -> Operation:
        """End an operation; what is done stays done."""
        return await self._one("POST", operation_id, "/cancel")

    async def step(self, operation_id: str) -> Operation:
        """How an operation stands; the server works on it."""
        return await self.get(operation_id)

    async def _one(self, method: str, operation_id: str, action: str = "") -> Operation:
        if not operation_id.isalnum():
            raise OperationNotFound(repr(operation_id[:64]))
        path = f"{_OPERATIONS}/{quote(operation_id)}{action}"
        return operation_of(await self.ask(method, path, OperationShown, subject=operation_id))
