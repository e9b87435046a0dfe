"""A handler's result as JSON, or why it has none and where."""

from __future__ import annotations

from typing import Final

from fairlead.core.text.json_depth import is_deeper
from fairlead.worker.handlers import Handler
from fairlead.worker.json_form import check_syntax, children, odd_number

_MOST_DEEP: Final = 60
"""Nested deeper, a result could not be told to a server, whose bodies are 64 deep at the most."""
_PLAIN: Final = frozenset((int, str, bool))
"""What holds nothing else, and is never something raw or a number that JSON does not have."""
_DEEPEST: Final = 50
"""So many steps of a path are told."""


class ResultNotEncodable(Exception):
    """What the handler returned has no JSON form."""


def encode_result(handler: Handler, result: object) -> bytes:
    """A handler's result as JSON; None is not asked about, for it needs no bytes.

    Raises ResultNotEncodable, with the path, for what has no JSON form. A number that is not finite has none either,
    though the encoder would write `null` for it, nor has something raw that is not JSON.
    """
    try:
        encoded = handler.signature.encode_result(result)
        if type(result) in _PLAIN:
            return encoded
        check_syntax(encoded)
        odd = odd_number(result, encoded)
    except MemoryError:
        raise
    except BaseException as error:
        raise _not_encodable(handler, _fault(handler, result), _said(error)) from None
    if is_deeper(encoded, _MOST_DEEP):
        why = f"it is nested over {_MOST_DEEP} levels deep; flatten it"
        raise ResultNotEncodable(f"the result of {handler.type} has no JSON form that is taken: {why}")
    if odd is not None:
        raise _not_encodable(handler, odd[0], f"{odd[1]} is not a number that JSON has")
    return encoded


def _not_encodable(handler: Handler, path: str, why: str) -> ResultNotEncodable:
    return ResultNotEncodable(f"the result of {handler.type} has no JSON form: {why} - at `{path}`")


def _said(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except BaseException:
        return "it raises an error when it is read"


def _fault(handler: Handler, result: object) -> str:
    """The path to what cannot be encoded, as far as it can be followed."""
    path, value = "$", result
    try:
        for _ in range(_DEEPEST):
            faults = ((step, child) for step, child in children(value) if not _has_json_form(handler, child))
            found = next(faults, None)
            if found is None:
                return path
            path, value = path + found[0], found[1]
    except BaseException:
        # Its class will not have it looked into.
        return path
    return f"{path}…"


def _has_json_form(handler: Handler, value: object) -> bool:
    try:
        check_syntax(handler.signature.encode_result(value))
    except BaseException:
        return False
    return True
