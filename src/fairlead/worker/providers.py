"""Providers: functions that make what a handler needs beside its arguments, anew for each attempt."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, overload

from fairlead.core.errors import InvalidSettings
from fairlead.core.validation import shown

if TYPE_CHECKING:
    from fairlead.worker.context import TaskContext

T = TypeVar("T")


class Provider:
    """What `Depends` leaves as the default of a parameter, which is then no argument of the task."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __repr__(self) -> str:
        return f"Depends({name_of(self.function)})"


@overload
def Depends(provider: Callable[[TaskContext], AsyncIterator[T]] | Callable[[], AsyncIterator[T]]) -> T: ...
@overload
def Depends(provider: Callable[[TaskContext], Iterator[T]] | Callable[[], Iterator[T]]) -> T: ...
@overload
def Depends(provider: Callable[[TaskContext], Awaitable[T]] | Callable[[], Awaitable[T]]) -> T: ...
@overload
def Depends(provider: Callable[[TaskContext], T] | Callable[[], T]) -> T: ...


def Depends(provider: Callable[..., Any]) -> Any:  # noqa: N802 - as users of FastAPI write it
    """The default of a parameter that a provider fills at each attempt: `db: Session = Depends(session)`.

    A provider takes nothing or the `TaskContext`. It is a function that returns the value, or a generator that yields
    it once and goes on when the attempt has ended; plain or `async`.
    """
    takes_context(provider)
    return Provider(provider)


def takes_context(provider: object) -> bool:
    """Whether a provider takes the `TaskContext`, or nothing; raises InvalidSettings for what is no provider."""
    if not callable(provider):
        raise InvalidSettings(f"Depends({shown(provider)}) is not a function; write the provider's name, uncalled")
    name = name_of(provider)
    try:
        parameters = inspect.signature(provider).parameters.values()
    except (ValueError, TypeError):
        # A class written in C may keep its signature to itself: then it is called with nothing.
        return False
    for each in parameters:
        if isinstance(each.default, Provider):
            raise InvalidSettings(
                f"the provider {name} has a provider of its own, {each}; call that function inside {name} instead"
            )
    required = [
        each
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if len(required) > 1 or any(each.kind is each.KEYWORD_ONLY for each in required):
        raise InvalidSettings(
            f"the provider {name} takes {', '.join(map(str, required))}; it can take the TaskContext, or nothing"
        )
    return bool(required)


def name_of(function: object) -> str:
    """What to call a function in a message."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__
