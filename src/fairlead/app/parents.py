"""The tasks that the current one waited for, and their results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from fairlead.admin.facade import Facade
from fairlead.app.connection import Link
from fairlead.app.handle import TaskHandle
from fairlead.core.identity import TaskId
from fairlead.core.task import Task
from fairlead.engine.runtime.inline import run_inline
from fairlead.worker.context import current_task
from fairlead.worker.handlers import Handlers

_AT_ONCE: Final = 32
"""How many tasks are asked for at the same time: each may be a request."""


async def parents_of(link: Link, handlers: Handlers) -> list[TaskHandle[Any]]:
    """The tasks that the current one waited for, in the order they were named."""
    engine, named = await link.engine(), current_task().after
    tasks: list[Task] = []
    for first in range(0, len(named), _AT_ONCE):
        tasks += await asyncio.gather(*(engine.get(task_id) for task_id in named[first : first + _AT_ONCE]))
    return [_handle(task, link, handlers) for task in tasks]


def parents_of_sync(link: Link, handlers: Handlers) -> list[TaskHandle[Any]]:
    """`parents_of`, from synchronous code."""
    tasks = run_inline(_each(link.inline(), current_task().after))
    return [_handle(task, link, handlers) for task in tasks]


async def _each(engine: Facade, ids: Sequence[TaskId]) -> list[Task]:
    return [await engine.get(task_id) for task_id in ids]


def _handle(task: Task, link: Link, handlers: Handlers) -> TaskHandle[Any]:
    """A handle whose result is of the type that its function says, if the app has that function."""
    handler = handlers.get(task.spec.type)
    return TaskHandle(task, link, _decode if handler is None else handler.signature.decode_result)


def _decode(result: bytes | None) -> Any:
    return None if result is None else msgspec.json.decode(result)
