"""Annotations: how the types that handlers name become JSON and are read from it.

msgspec knows most of them. This adds paths, the models and constraints of Pydantic where a program uses that, and says
which type it is that JSON cannot hold. Pydantic is asked for in `sys.modules` and never imported for this.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

Read: TypeAlias = Callable[[bytes], Any]
"""Makes a value of its JSON; raises ValueError, with the path, for what does not fit."""

_JSON: Final = (dict, list, str, int, float, bool, type(None))
"""What JSON is read as, where nothing else is said."""

_KNOWN: Final = (tuple, frozenset, bool, type(None), Struct)
"""What msgspec writes by itself, and asks about only where it is the key of a dict."""

_REMEDY: Final = (
    "annotate it with what JSON can hold: numbers, texts, lists, dicts, dates, enums, dataclasses, TypedDicts, attrs "
    "classes, msgspec Structs, Pydantic models or paths"
)


class NoForm(Exception):
    """An annotation names a type that has no JSON form."""


def to_json(value: Any) -> Any:
    """What msgspec is to write of a value that it does not know; raises TypeError if JSON cannot hold it."""
    if isinstance(value, PurePath):
        return str(value)
    if _is_model(type(value)):
        # By the names of its fields, whatever its aliases are, so that it can be read again.
        return msgspec.Raw(value.model_dump_json(by_alias=False, round_trip=True).encode())
    if isinstance(value, _KNOWN):
        raise TypeError("Only dicts with str-like or number-like keys are supported")
    raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")


json_of: Final = msgspec.json.Encoder(enc_hook=to_json).encode
"""A value as JSON."""


def reader(annotation: Any) -> Read:
    """How to read the JSON of what an annotation says; raises NoForm if that has none."""
    if is_for_pydantic(annotation):
        return _adapted(annotation)
    read = decoder(annotation).decode
    if (stranger := next(_strangers(annotation), None)) is not None:
        raise NoForm(f"{stranger} has no JSON form; {_REMEDY}")
    return read


def decoder(annotation: Any) -> msgspec.json.Decoder[Any]:
    """A decoder for an annotation that msgspec knows; raises NoForm for another one."""
    try:
        return msgspec.json.Decoder(annotation, dec_hook=_from_json)
    except (TypeError, ValueError, RecursionError) as error:
        raise NoForm(f"it has no JSON form: {error}; {_REMEDY}") from None


def _from_json(kind: Any, value: Any) -> Any:
    """A value of a type that msgspec does not know, from what JSON has for it."""
    if isinstance(kind, type):
        if issubclass(kind, PurePath):
            if not isinstance(value, str):
                raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
            return kind(value)
        if _is_model(kind):
            return _adapted(kind)(msgspec.json.encode(value))
        if isinstance(value, kind):
            return value
    raise NotImplementedError


def _is_model(kind: Any) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


_adapters: Final[dict[Any, Read]] = {}


def _adapted(annotation: Any) -> Read:
    """How Pydantic reads what an annotation says."""
    try:
        return _adapters[annotation]
    except (KeyError, TypeError):
        pass
    if (pydantic := sys.modules.get("pydantic")) is None:
        raise NoForm(
            "its constraints are those of annotated_types, which need pydantic; install it, or use msgspec.Meta"
        )
    try:
        validate = pydantic.TypeAdapter(annotation).validate_json
    except Exception as error:
        # Whatever goes wrong inside of another library, of a type that it does not know.
        raise NoForm(f"it has no JSON form: {str(error).partition(chr(10))[0]}; {_REMEDY}") from None

    def read(encoded: bytes) -> Any:
        try:
            return validate(encoded, by_alias=True, by_name=True)
        except pydantic.ValidationError as error:
            raise ValueError(_told(error)) from None

    try:
        _adapters[annotation] = read
    except TypeError:
        # Constraints need not be hashable.
        return read
    return read


def _told(error: Any) -> str:
    """The faults that Pydantic has found, on one line."""
    faults = [(".".join(map(str, each["loc"])), each["msg"]) for each in error.errors(include_url=False)]
    return "; ".join(f"{place}: {said}" if place else said for place, said in faults)


def is_for_pydantic(annotation: Any) -> bool:
    """Whether an annotation has constraints of Pydantic's, or a union of models, which msgspec does not know."""
    if "pydantic" not in sys.modules and "annotated_types" not in sys.modules:
        return False
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Annotated:
        kind, *notes = arguments
        return any(_is_constraint(note) for note in notes) or is_for_pydantic(kind)
    if typing.get_origin(annotation) is typing.Literal:
        return False
    models = [each for each in arguments if _is_model(each)]
    if models and len([each for each in arguments if each is not type(None)]) > 1 and _is_union(annotation):
        return True
    return any(is_for_pydantic(each) for each in arguments)


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _is_constraint(note: object) -> bool:
    return type(note).__module__.partition(".")[0] in ("pydantic", "annotated_types")


def _strangers(annotation: Any) -> Iterator[str]:
    """The types in an annotation of which JSON can hold none."""
    seen: set[int] = set()
    waiting: list[object] = [msgspec.inspect.type_info(annotation)]
    while waiting:
        each = waiting.pop()
        if isinstance(each, tuple):
            waiting += each
        elif isinstance(each, msgspec.inspect.CustomType):
            if not _is_known(each.cls):
                yield each.cls.__qualname__
        elif isinstance(each, Struct) and id(each) not in seen:
            seen.add(id(each))
            waiting += [
                getattr(each, name)
                for name in each.__struct_fields__
                if name not in ("cls", "default", "default_factory")
            ]


def _is_known(kind: type) -> bool:
    return issubclass(kind, PurePath) or _is_model(kind) or any(issubclass(each, kind) for each in _JSON)
