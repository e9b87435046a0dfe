"""The JSON form of what handlers are given and return: where a value has none although an encoder wrote one.

The encoder writes `null` for a number that is not finite, and what a `msgspec.Raw` holds as it stands.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeGuard

import msgspec
from msgspec import Struct

_NULL: Final = b"null"
_skim: Final = msgspec.json.Decoder(msgspec.Raw).decode


def check_syntax(encoded: bytes) -> None:
    """Raise ValueError for what is not JSON throughout, as something raw may make it."""
    _skim(encoded)
    check_text(encoded)


def check_text(encoded: bytes) -> None:
    """Raise ValueError for what is no text, which a decoder passes over where the value is to stay raw."""
    if not encoded.isascii():
        str(encoded, "utf-8")


def odd_number(value: object, encoded: bytes) -> tuple[str, float] | None:
    """The path to a number of a value that is infinite or none at all, and that number."""
    # Where the encoder wrote no `null` there is none, and next to nothing to pay.
    if _NULL not in encoded or not _holds_odd_number(value):
        return None
    waiting = [("$", value)]
    while waiting:
        path, value = waiting.pop()
        if _is_odd(value):
            return path, value
        waiting += [(path + step, child) for step, child in children(value)]
    return None


def children(value: Any) -> Iterator[tuple[str, object]]:
    """What a value is made of, each with its step on a path; past what its class may have overridden."""
    kind = type(value)
    if issubclass(kind, enum.Enum):
        # A member is written as its value.
        yield "", value.value
    elif issubclass(kind, dict):
        yield from ((f".{_key(key)}", child) for key, child in dict.items(value))
    elif (names := _field_names(kind)) is not None:
        yield from ((f".{name}", getattr(value, name, None)) for name in names)
    else:
        known = next((each for each in (list, tuple, set, frozenset) if issubclass(kind, each)), None)
        if known is not None:
            yield from ((f"[{position}]", child) for position, child in enumerate(known.__iter__(value)))


def _holds_odd_number(value: object) -> bool:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind is dict:
            waiting += value.values()  # type: ignore[attr-defined]
        elif kind is list or kind is tuple:
            waiting += value  # type: ignore[arg-type]
        elif _is_odd(value):
            return True
        else:
            waiting += [child for _, child in children(value)]
    return False


def _is_odd(value: object) -> TypeGuard[float]:
    return isinstance(value, float) and not math.isfinite(value)


def _field_names(kind: Any) -> list[str] | None:
    """The names of the fields of a class that is made of such."""
    if issubclass(kind, Struct):
        return list(kind.__struct_fields__)
    if is_dataclass(kind):
        return [each.name for each in fields(kind)]
    # Those of attrs, which is not imported for this.
    declared = getattr(kind, "__attrs_attrs__", None)
    return None if declared is None else [each.name for each in declared]


def _key(key: object) -> str:
    """A key as it is told: its beginning, if it is text."""
    return str.__getitem__(key, slice(50)) if isinstance(key, str) else f"({type(key).__name__})"
