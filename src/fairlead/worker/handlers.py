"""Handlers: the functions that run tasks, by task type."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from fairlead.core.errors import InvalidSettings, Reject
from fairlead.core.identity import check_name
from fairlead.worker.signature import Signature


class Place(enum.Enum):
    """Where a handler runs."""

    LOOP = "loop"
    """On the event loop: `async def`."""
    THREAD = "thread"
    """In a thread: `def`."""
    PROCESS = "process"
    """In a child process that can be killed: `isolate=True`."""


class Handler:
    """One task type and the function that runs it."""

    def __init__(
        self,
        task_type: str,
        function: Callable[..., Any],
        *,
        isolate: bool = False,
        memory_limit: int | None = None,
        retry_on: tuple[type[BaseException], ...] = (Exception,),
        reject_on: tuple[type[BaseException], ...] = (),
    ) -> None:
        if memory_limit is not None and not isolate:
            raise InvalidSettings(f"task {task_type}: memory_limit needs a process of its own; add isolate=True")
        self.type = check_name("type", task_type)
        self.function = function
        self.signature = Signature(function)
        self.is_async = inspect.iscoroutinefunction(function)
        self.memory_limit = memory_limit
        self._retry_on = retry_on
        self._reject_on: tuple[type[BaseException], ...] = (Reject, *reject_on)
        if isolate:
            self.place = Place.PROCESS
        else:
            self.place = Place.LOOP if self.is_async else Place.THREAD

    def is_retriable(self, error: BaseException) -> bool:
        """Whether another attempt may help against this error."""
        return isinstance(error, self._retry_on) and not isinstance(error, self._reject_on)


class Handlers:
    """The handlers of an app, one per task type."""

    def __init__(self, handlers: Iterable[Handler] = ()) -> None:
        self._by_type: dict[str, Handler] = {}
        for handler in handlers:
            self.add(handler)

    def add(self, handler: Handler) -> None:
        if handler.type in self._by_type:
            raise InvalidSettings(f"task type {handler.type!r} has a handler already; give one of them another name")
        self._by_type[handler.type] = handler

    def get(self, task_type: str) -> Handler | None:
        return self._by_type.get(task_type)

    def check(self) -> None:
        """Raise TypeError if an annotation of a handler cannot be used."""
        for handler in self._by_type.values():
            handler.signature.check()

    @property
    def types(self) -> frozenset[str]:
        return frozenset(self._by_type)
