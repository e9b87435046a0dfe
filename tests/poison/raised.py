"""Poisons: what handlers raise."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any, NoReturn

from fairlead import Reject, Retry
from tests.poison.table import poison


@poison
def value_error() -> NoReturn:
    raise ValueError("plain")


class Base(BaseException):
    pass


@poison
def base_exception() -> NoReturn:
    raise Base("base")


@poison
def system_exit() -> NoReturn:
    raise SystemExit(3)


@poison
def keyboard_interrupt() -> NoReturn:
    raise KeyboardInterrupt("from within")


@poison
def generator_exit() -> NoReturn:
    raise GeneratorExit("from within")


@poison
def stop_iteration() -> NoReturn:
    raise StopIteration("no more")


@poison
def stop_async_iteration() -> NoReturn:
    raise StopAsyncIteration("no more")


@poison
def cancelled_error() -> NoReturn:
    raise asyncio.CancelledError("by itself")


@poison
def recursion() -> NoReturn:
    recursion()
    raise AssertionError


@poison
def memory_error() -> NoReturn:
    raise MemoryError("all of it")


@poison
def deep_group() -> NoReturn:
    group: Exception = ValueError("innermost")
    for _ in range(1_000):
        group = ExceptionGroup("nested", [group])
    raise group


@poison
def wide_group() -> NoReturn:
    raise BaseExceptionGroup("wide", [SystemExit(1), KeyboardInterrupt(), ValueError("x")])


class StrRaises(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


@poison
def str_raises() -> NoReturn:
    raise StrRaises("never told")


class StrExits(Exception):
    def __str__(self) -> str:
        raise SystemExit(9)

    __repr__ = __str__


@poison
def str_exits() -> NoReturn:
    raise StrExits("never told")


class StrIsNone(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]


@poison
def str_is_no_text() -> NoReturn:
    raise StrIsNone("never told")


class StrHangs(Exception):
    def __str__(self) -> str:
        time.sleep(3_600)
        return "late"


@poison
def str_hangs() -> NoReturn:
    raise StrHangs("never told")


class ReprRaises:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


@poison
def repr_raises() -> NoReturn:
    raise KeyError(ReprRaises())


class OddText(str):
    __slots__ = ()

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def encode(self, *_: Any, **__: Any) -> bytes:
        raise RuntimeError("no bytes")

    def isascii(self) -> bool:
        raise RuntimeError("no letters")


class OddWords(Exception):
    def __str__(self) -> str:
        return OddText("odd words")


@poison
def odd_text() -> NoReturn:
    raise OddWords


@poison
def large_message() -> NoReturn:
    raise ValueError("m" * 100_000_000)


class LargeRepr:
    def __repr__(self) -> str:
        return "r" * 100_000_000


@poison
def large_repr() -> NoReturn:
    raise ValueError(LargeRepr())


@poison
def surrogates() -> NoReturn:
    raise ValueError("half a pair: \ud800, and nothing: \0")


class Liar(Exception):
    @property  # type: ignore[misc, unused-ignore]
    def __class__(self) -> type:  # type: ignore[override, misc, unused-ignore]
        raise RuntimeError("no class")

    @property  # type: ignore[misc, unused-ignore]
    def __traceback__(self) -> Any:  # type: ignore[override, misc, unused-ignore]
        raise RuntimeError("no traceback")

    @property  # type: ignore[misc, unused-ignore]
    def __cause__(self) -> Any:  # type: ignore[override, misc, unused-ignore]
        raise RuntimeError("no cause")

    @property  # type: ignore[misc, unused-ignore]
    def __context__(self) -> Any:  # type: ignore[override, misc, unused-ignore]
        raise RuntimeError("no context")


@poison
def liar() -> NoReturn:
    raise Liar("who is it")


class Impostor(Exception):
    """It says that it is one of those that are treated differently."""

    __class__ = Reject  # type: ignore[assignment]
    after = "soon"


@poison
def impostor() -> NoReturn:
    raise Impostor("not a Reject")


class OddMeta(type):
    def __eq__(cls, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = type.__hash__

    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __instancecheck__(cls, other: object) -> bool:
        raise RuntimeError("no instance")


class OddClass(Exception, metaclass=OddMeta):
    pass


@poison
def odd_metaclass() -> NoReturn:
    raise OddClass("odd")


@poison
def odd_name() -> NoReturn:
    raise type(f"Name of {'x' * 1_000}", (Exception,), {"__module__": 5})("odd")


class OddRetry(Retry):
    def __init__(self) -> None:
        super().__init__("odd retry")
        self.after = "soon"  # type: ignore[assignment]


@poison
def odd_retry() -> NoReturn:
    raise OddRetry


@poison
def cyclic_causes() -> NoReturn:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    first.__context__, second.__context__ = second, first
    raise first


@poison
def long_chain() -> NoReturn:
    error: Exception | None = None
    for number in range(100_000):
        following = ValueError(str(number))
        following.__context__ = error
        error = following
    assert error is not None
    raise error


class OddExit(SystemExit):
    """Of whose code nothing can be asked in the usual way."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class OddNumber(int):
    def __and__(self, other: object) -> Any:
        raise RuntimeError("no bits")

    __rand__ = __and__


@poison
def exits_well() -> NoReturn:
    raise SystemExit(0)


@poison
def exits_with_words() -> NoReturn:
    raise SystemExit("the settings are missing")


@poison
def exits_with_an_object() -> NoReturn:
    raise SystemExit(ReprRaises())


@poison
def exits_oddly() -> NoReturn:
    raise OddExit(OddNumber(5))


class Closed(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise KeyboardInterrupt(f"no {name}")

    def __reduce__(self) -> Any:
        raise RuntimeError("no pickle")


@poison
def closed_error() -> NoReturn:
    raise Closed("words")


@poison
def odd_notes() -> NoReturn:
    error = ValueError("with odd notes")
    error.__notes__ = 5  # type: ignore[assignment]
    raise error


class NotesExit(Exception):
    @property  # type: ignore[misc, unused-ignore]
    def __notes__(self) -> Any:  # type: ignore[override, misc, unused-ignore]
        raise SystemExit(3)


@poison
def notes_exit() -> NoReturn:
    raise NotesExit("with notes that exit")


@poison
def large_notes() -> NoReturn:
    """Three gigabytes of them, if they were put together."""
    error = ValueError("with large notes")
    note = "n" * 1_000_000
    for _ in range(3_000):
        error.add_note(note)
    raise error


@poison
def group_of_large_messages() -> NoReturn:
    message = "m" * 50_000_000
    raise ExceptionGroup("large", [ValueError(message) for _ in range(90)])


@poison
def very_wide_group() -> NoReturn:
    raise ExceptionGroup("very wide", [ValueError(number) for number in range(1_000_000)])


def descend(further: int) -> None:
    if not further:
        raise ValueError("at the bottom")
    descend_on(further - 1)


def descend_on(further: int) -> None:
    descend(further - 1)


@poison
def deep_traceback() -> NoReturn:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        descend(50_000)
    finally:
        sys.setrecursionlimit(before)
    raise AssertionError


@poison
def odd_syntax_error() -> NoReturn:
    error = SyntaxError("bad syntax")
    error.filename, error.lineno, error.text = ReprRaises(), "x", 5  # type: ignore[assignment]
    raise error
