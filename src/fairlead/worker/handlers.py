"""Handlers: the functions that run tasks, by task type."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fairlead.core.errors import InvalidSettings, Reject
from fairlead.core.identity import check_name
from fairlead.core.instant import LATEST
from fairlead.core.retry import derives
from fairlead.core.validation import bad_setting, check_count, check_flag, shown
from fairlead.worker.signature import Signature


class HandlerPlace(enum.Enum):
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
        retry_on: Iterable[type[BaseException]] = (Exception,),
        reject_on: Iterable[type[BaseException]] = (),
    ) -> None:
        self.type = check_name("type", task_type)
        if not callable(function):
            raise InvalidSettings(f"task {task_type}: {shown(function)} is not a function; write @app.task above a def")
        check_flag(f"task {task_type}: isolate", isolate, bad_setting)
        if memory_limit is not None:
            check_count(f"task {task_type}: memory_limit", memory_limit, 1, LATEST, bad_setting)
        if memory_limit is not None and not isolate:
            raise InvalidSettings(f"task {task_type}: memory_limit needs a process of its own; add isolate=True")
        self.function = function
        self.signature = Signature(function)
        self.is_async = inspect.iscoroutinefunction(function)
        self.memory_limit = memory_limit
        self._retry_on: tuple[type[BaseException], ...] = _errors(f"task {task_type}: retry_on", retry_on)
        self._reject_on: tuple[type[BaseException], ...] = (Reject, *_errors(f"task {task_type}: reject_on", reject_on))
        if isolate:
            self.place = HandlerPlace.PROCESS
        else:
            self.place = HandlerPlace.LOOP if self.is_async else HandlerPlace.THREAD

    def is_retriable(self, error: BaseException) -> bool:
        """Whether another attempt may help against this error."""
        # By its true type, as an `except` does: `isinstance` asks the error for its class, and may get any answer.
        kind = type(error)
        return derives(kind, *self._retry_on) and not derives(kind, *self._reject_on)


def _errors(name: str, said: object) -> tuple[type[BaseException], ...]:
    """The types of errors that a user names."""
    if isinstance(said, Mapping):
        raise InvalidSettings(f"{name} {shown(said)} is a mapping; what becomes of each error is said in retry_rules")
    if not isinstance(said, Iterable) or isinstance(said, str | type):
        raise InvalidSettings(f"{name} {shown(said)} is not a list of exception types; write (ValueError,)")
    errors = tuple(said)
    for error in errors:
        if not isinstance(error, type) or not issubclass(error, BaseException):
            raise InvalidSettings(f"{name} has {shown(error)}, which is not an exception type; write (ValueError,)")
    return errors


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
        """Raise InvalidSettings if an annotation of a handler cannot be used."""
        for handler in self._by_type.values():
            handler.signature.check()

    @property
    def types(self) -> frozenset[str]:
        return frozenset(self._by_type)
