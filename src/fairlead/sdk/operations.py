"""Actions on all tasks that a query means, from asynchronous and from synchronous code."""

from __future__ import annotations

import asyncio
import getpass
import socket
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final, TypeAlias, TypedDict, Unpack

from fairlead.core.errors import InvalidTask
from fairlead.core.operation import Action, Operation
from fairlead.core.query_text import parse_query
from fairlead.core.task import Priority
from fairlead.engine.facade import OperationFacade
from fairlead.engine.inline import run_inline
from fairlead.engine.operations import Preview, Wish
from fairlead.sdk.connection import Link
from fairlead.wire.moments import instant_of

Told: TypeAlias = Callable[[Operation], object]
"""Is told how far an operation is."""

_GLANCE: Final = 0.1
"""How long to wait before looking again at what others do, in seconds."""


class OperationOptions(TypedDict, total=False):
    """How an action on many tasks is done."""

    as_of: datetime
    """Tasks are meant as they stood at this moment, such as that of a preview; must have a time zone."""
    expected: int
    """Do nothing unless it is exactly so many tasks."""
    rate: float
    """How many tasks a second, at most."""
    canary: int
    """Do so many, then wait to be resumed."""
    priority: str
    """Of a replay: queue them with this priority instead of their own."""
    reset_retries: bool
    """Of a replay: give them all their retries again, which is the default."""
    who: str
    """Who does it, for the record; user and host if not said."""


class AppOperations:
    """The operations of an app: actions on all tasks that a query means.

    Whichever worker or server runs works on an operation, and so does who calls `finish`.
    """

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect

    async def preview(self, action: str, query: str, **options: Unpack[OperationOptions]) -> Preview:
        """What `start` would act on, and how many, without doing anything: a dry run."""
        return await (await self._operations()).preview(wish_of(action, query, options))

    async def start(self, action: str, query: str, **options: Unpack[OperationOptions]) -> Operation:
        """Begin to `replay`, `discard` or `cancel` all that a query means: `start("replay", "error:Boom", rate=50)`."""
        return await (await self._operations()).start(wish_of(action, query, options))

    async def finish(self, operation_id: str, told: Told | None = None) -> Operation:
        """Work on an operation, or watch who does, until it is done, paused or cancelled; `told` hears of each step."""
        operations = await self._operations()
        operation = await operations.get(operation_id)
        while operation.stage.active:
            before, operation = operation, await operations.step(operation_id)
            if told is not None:
                told(operation)
            if stands_still(before, operation):
                await asyncio.sleep(_GLANCE)
        return operation

    async def all(self) -> list[Operation]:
        """Every operation that is kept, the newest first."""
        return await (await self._operations()).all()

    async def get(self, operation_id: str) -> Operation:
        """How an operation stands."""
        return await (await self._operations()).get(operation_id)

    async def pause(self, operation_id: str) -> Operation:
        """Stop an operation until it is resumed; the batch under way is still done."""
        return await (await self._operations()).pause(operation_id)

    async def resume(self, operation_id: str) -> Operation:
        """Let an operation go on from where it was; also past its canary."""
        return await (await self._operations()).resume(operation_id)

    async def cancel(self, operation_id: str) -> Operation:
        """End an operation; what is done stays done."""
        return await (await self._operations()).cancel(operation_id)

    def preview_sync(self, action: str, query: str, **options: Unpack[OperationOptions]) -> Preview:
        """`preview`, from synchronous code."""
        return run_inline(self._inline().preview(wish_of(action, query, options)))

    def start_sync(self, action: str, query: str, **options: Unpack[OperationOptions]) -> Operation:
        """`start`, from synchronous code."""
        return run_inline(self._inline().start(wish_of(action, query, options)))

    def finish_sync(self, operation_id: str, told: Told | None = None) -> Operation:
        """`finish`, from synchronous code."""
        operations = self._inline()
        return finish_inline(operations, run_inline(operations.get(operation_id)), told)

    def all_sync(self) -> list[Operation]:
        """`all`, from synchronous code."""
        return run_inline(self._inline().all())

    def get_sync(self, operation_id: str) -> Operation:
        """`get`, from synchronous code."""
        return run_inline(self._inline().get(operation_id))

    def pause_sync(self, operation_id: str) -> Operation:
        """`pause`, from synchronous code."""
        return run_inline(self._inline().pause(operation_id))

    def resume_sync(self, operation_id: str) -> Operation:
        """`resume`, from synchronous code."""
        return run_inline(self._inline().resume(operation_id))

    def cancel_sync(self, operation_id: str) -> Operation:
        """`cancel`, from synchronous code."""
        return run_inline(self._inline().cancel(operation_id))

    async def _operations(self) -> OperationFacade:
        return (await self._connect().engine()).operations

    def _inline(self) -> OperationFacade:
        return self._connect().inline().operations


def finish_inline(operations: OperationFacade, operation: Operation, told: Told | None = None) -> Operation:
    """Work on an operation of an engine for synchronous code, or watch who does, until it stops."""
    while operation.stage.active:
        before, operation = operation, run_inline(operations.step(operation.id))
        if told is not None:
            told(operation)
        if stands_still(before, operation):
            time.sleep(_GLANCE)
    return operation


def stands_still(before: Operation, after: Operation) -> bool:
    """Whether a step found nothing to do: someone else works on it, or its rate has it wait."""
    return (after.done, after.cursor) == (before.done, before.cursor) and after.stage.active


def wish_of(action: str, query: str, options: OperationOptions) -> Wish:
    """What these options ask for, in the engine's terms."""
    as_of, priority = options.get("as_of"), options.get("priority")
    if as_of is not None and as_of.tzinfo is None:
        raise InvalidTask("as_of", f"as_of {as_of.isoformat()} has no time zone; use datetime(…, tzinfo=…)")
    return Wish(
        action=_action(action),
        query=parse_query(query),
        as_of=None if as_of is None else instant_of(as_of),
        expected=options.get("expected"),
        rate=options.get("rate"),
        canary=options.get("canary"),
        priority=None if priority is None else Priority.parse(priority),
        reset_retries=options.get("reset_retries", True),
        who=options.get("who") or whoami(),
    )


def whoami() -> str:
    """Who runs this process, and where."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):
        return socket.gethostname()


def _action(word: str) -> Action:
    try:
        return Action(word)
    except ValueError:
        raise InvalidTask("action", f"action {word!r} is unknown; use one of {', '.join(Action)}") from None
