"""A store whose operations are timed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sized
from typing import Any, Final, TypeAlias, cast

from fairlead.core.instant import Span
from fairlead.storage.protocol import Store

TIMED: Final = (
    "add",
    "claim",
    "extend",
    "apply",
    "get",
    "due",
    "find",
    "tally",
    "put",
    "drop",
    "scan",
    "publish",
    "feed",
)
"""The operations that are timed; to wait is none."""
_GIVEN: Final = frozenset({"add", "extend", "apply", "get"})
_FOUND: Final = frozenset({"claim", "due"})

Tell: TypeAlias = Callable[[str, Span, int | None], None]


class _Measured:
    """Stands for a store. Its operations are attributes, so that it has those that the store has, and no others."""

    def __init__(self, store: Store, tell: Tell) -> None:
        self._store = store
        for name in dir(type(store)):
            if not name.startswith("_") and callable(operation := getattr(store, name)):
                setattr(self, name, _timed(name, operation, tell) if name in TIMED else operation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def measured(store: Store, tell: Tell) -> Store:
    """The store, telling how long each operation took and how many tasks it was about, if it is about several."""
    return cast(Store, _Measured(store, tell))


def _timed(name: str, operation: Callable[..., Awaitable[Any]], tell: Tell) -> Callable[..., Awaitable[Any]]:
    async def run(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter_ns()
        answer: Sized | None = None
        try:
            answer = await operation(*arguments, **options)
        finally:
            tasks = len(arguments[0]) if name in _GIVEN else None
            if name in _FOUND and answer is not None:
                tasks = len(answer)
            tell(name, (time.perf_counter_ns() - start) // 1_000, tasks)
        return answer

    return run
