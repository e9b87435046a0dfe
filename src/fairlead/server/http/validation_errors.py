"""What is wrong with a value of the wrong shape: where it is, what it is, and what it could be instead.

msgspec says where and, tersely, why. The rest is found by walking the shape and the value along the same path.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, inspect

from fairlead.wire.endpoint import Value

_AT: Final = re.compile(r" - at `(?:\$|key in `\$)?([^`]*)`+$")
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_SHORT: Final = 100


class Mistake(Struct, frozen=True):
    """One value of the wrong shape."""

    field: str
    """Where it is, such as `tags[0]`; empty for the whole."""
    said: str
    """What is wrong, in a few words."""
    remedy: str = ""
    value: Value = None
    """The value, if it is short."""


def mistake_in(error: msgspec.ValidationError, shape: Any, tree: object) -> Mistake:
    """What msgspec found wrong with a tree of plain values that should have a shape."""
    said = str(error)
    found = _AT.search(said)
    path = found.group(1).removeprefix(".") if found else ""
    said = said[: found.start()] if found else said
    steps = [name or int(index) for name, index in _STEP.findall(path) if index != "..."]
    kind = _kind_at(inspect.type_info(shape), steps) if shape is not None else None
    if unknown := _UNKNOWN.match(said):
        name = unknown.group(1)[:_SHORT]
        return Mistake(_joined(path, name), f"there is no field {name!r}", _instead(kind, name))
    if missing := _MISSING.match(said):
        return Mistake(_joined(path, missing.group(1)), "it is required and not there", "add it")
    value = _value_at(tree, steps)
    return Mistake(path, _decapitalised(said), _remedy(kind), value if _is_short(value) else None)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _instead(kind: inspect.Type | None, name: str) -> str:
    names = [field.encode_name for field in kind.fields] if isinstance(kind, inspect.StructType) else []
    if near := difflib.get_close_matches(name, names, n=1, cutoff=0.6):
        return f"did you mean {near[0]}?"
    return f"the fields are {', '.join(names)}" if names else "leave it out"


def _remedy(kind: inspect.Type | None) -> str:
    """What a value of this kind may be."""
    match kind:
        case inspect.LiteralType(values=values):
            return f"use one of {', '.join(map(str, values))}"
        case inspect.EnumType(cls=cls):
            return f"use one of {', '.join(str(each.value) for each in cls)}"
        case inspect.IntType():
            return f"use a whole number{_bounds(kind)}"
        case inspect.FloatType():
            return f"use a number{_bounds(kind)}"
        case inspect.DateTimeType():
            return "use a moment with its zone, such as 2026-11-15T08:00:00Z"
        case inspect.BoolType():
            return "use true or false"
        case inspect.StrType():
            return "use a text"
        case inspect.StructType():
            return "use an object"
        case inspect.CollectionType() | inspect.TupleType():
            return "use a list"
        case _:
            return ""


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    words = {"of at least": kind.ge, "of more than": kind.gt, "of at most": kind.le, "of less than": kind.lt}
    said = [f"{word} {limit:,.10g}" for word, limit in words.items() if limit is not None]
    return f" {' and '.join(said)}" if said else ""


def _kind_at(kind: inspect.Type, steps: Sequence[str | int]) -> inspect.Type | None:
    """The kind of value at the end of a path; of several that it may be, the one that can be corrected."""
    at = _plain(kind, steps[0] if steps else None)
    if not steps or at is None:
        return at
    match at, steps[0]:
        case inspect.StructType(fields=fields), str(name):
            inner = next((field.type for field in fields if field.encode_name == name), None)
        case inspect.CollectionType(item_type=item), _:
            inner = item
        case inspect.DictType(value_type=item), _:
            inner = item
        case _:
            inner = None
    return None if inner is None else _kind_at(inner, steps[1:])


def _plain(kind: inspect.Type, step: str | int | None) -> inspect.Type | None:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if not isinstance(kind, inspect.UnionType):
        return kind
    options = [_plain(each, step) for each in kind.types if not isinstance(each, inspect.NoneType)]
    wanted = inspect.StructType if isinstance(step, str) else inspect.CollectionType
    return next((each for each in options if step is None or isinstance(each, wanted)), None)


def _value_at(tree: object, steps: Sequence[str | int]) -> Any:
    for step in steps:
        match tree, step:
            case dict(), str() if step in tree:
                tree = tree[step]
            case list(), int() if step < len(tree):
                tree = tree[step]
            case _:
                return None
    return tree


def _is_short(value: object) -> bool:
    match value:
        case str():
            return len(value) <= _SHORT
        case bool() | float():
            return True
        case int():
            # Larger ones are not what most readers of JSON can read.
            return abs(value) < 2**53
        case _:
            return False


def _decapitalised(said: str) -> str:
    return said[:1].lower() + said[1:]
