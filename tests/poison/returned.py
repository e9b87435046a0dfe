"""Poisons: what handlers return."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.poison.raised import OddText
from tests.poison.table import poison


@poison
def no_json_form() -> Any:
    return {"here": [1, {"deeper": object()}]}


@poison
def complex_number() -> Any:
    return [1j]


@poison
def not_a_number() -> Any:
    return {"mean": [1.0, float("nan")]}


@poison
def raw_not_a_number() -> Any:
    return msgspec.Raw(b"NaN")


@poison
def raw_cut_off() -> Any:
    return {"here": [None, msgspec.Raw(b'{"a": nope')]}


@poison
def raw_no_text() -> Any:
    return [msgspec.Raw(b'"\xff"')]


@poison
def raw_json() -> Any:
    return [None, msgspec.Raw(b'{"a": 1}')]


@poison
def infinity() -> Any:
    return {"most": (None, float("-inf"))}


class Point(msgspec.Struct):
    x: float


@poison
def infinity_in_a_struct() -> Any:
    return [Point(x=1.0), Point(x=float("inf"))]


@poison
def surrogate_returned() -> Any:
    return {"words": ["\ud800"]}


@poison
def huge_number() -> Any:
    return {"digits": 10**5_000}


@poison
def cyclic() -> Any:
    ring: list[Any] = []
    ring.append(ring)
    return ring


@poison
def deep() -> Any:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


@poison
def too_large() -> Any:
    return "r" * 300_000


@poison
def much_too_large() -> Any:
    return "r" * 80_000_000


class Unreadable:
    def __iter__(self) -> Iterator[int]:
        raise RuntimeError("not to be read")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    @property  # type: ignore[misc, unused-ignore]
    def __class__(self) -> type:  # type: ignore[override, misc, unused-ignore]
        raise RuntimeError("no class")


@poison
def unreadable() -> Any:
    return {"inside": Unreadable()}


@poison
def generator() -> Any:
    return (number for number in range(3))


@poison
def coroutine() -> Any:
    # Awaited by no one; closed, so that nobody is warned of it.
    never = asyncio.sleep(0)
    never.close()
    return [never]


@poison
def exception_returned() -> Any:
    return ValueError("returned")


class Measure(enum.Enum):
    UNKNOWN = float("nan")


@poison
def member_that_is_no_number() -> Any:
    return {"measures": [Measure.UNKNOWN]}


class OddDict(dict[str, int]):
    def items(self) -> Any:
        raise SystemExit(1)

    keys = values = __iter__ = __len__ = items


@poison
def odd_dict() -> Any:
    return OddDict(a=1)


class OddList(list[int]):
    def __iter__(self) -> Any:
        raise SystemExit(1)

    __len__ = __iter__


@poison
def odd_list() -> Any:
    return OddList([1, 2])


@poison
def odd_words() -> Any:
    return ["x", OddText("odd")]


@poison
def odd_key() -> Any:
    return {"inside": {(1, 2): 3}}


@poison
def nothing_said() -> Any:
    return "a\0b"


@poison
def large_number() -> Any:
    return 10**400


@poison
def bytes_returned() -> Any:
    return b"\x00\xff"


class CannotBeDeleted:
    def __del__(self) -> None:
        raise SystemExit(2)


@poison
def cannot_be_deleted() -> Any:
    return CannotBeDeleted()
