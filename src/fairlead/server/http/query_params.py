"""Query strings, held to a shape as bodies are."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from fairlead.server.http.problems import Refusal, invalid_value

Q = TypeVar("Q")

_MOST: Final = 100


def parse_query(shape: type[Q], query: bytes) -> Q:
    """The query parameters as a Struct; refused by name when they are not of its shape."""
    named = _named(query) if query else {}
    try:
        decoded = msgspec.convert(named, shape, strict=False)
    except msgspec.ValidationError as error:
        raise invalid_value(error, shape=shape, tree=named) from None
    for name, text in named.items():
        _check_word(name, text, getattr(decoded, name))
    return decoded


def _named(query: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST)
    except ValueError:
        raise Refusal("invalid-request", "the query string is not valid; encode it as UTF-8 in %XX form") from None
    named = dict(pairs)
    if len(named) < len(pairs):
        raise Refusal("invalid-request", "the query string has a parameter twice; keep one of them")
    return named


def _check_word(name: str, text: str, value: Any) -> None:
    """Refuse what msgspec reads into the text of a query parameter beyond what JSON would have in its place."""
    if value is None:  # The word null, which would quietly widen what was asked for.
        raise Refusal("invalid-value", f"{name}: null is not a value; leave it out", field=name, remedy="leave it out")
    if isinstance(value, datetime) and ":" not in text:  # A number, as seconds since 1970.
        remedy = "write it like 2026-03-01T09:30:00Z"
        raise Refusal(
            "invalid-value", f"{name}: {text[:64]} is not a date and time; {remedy}", field=name, remedy=remedy
        )
