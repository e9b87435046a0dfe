"""What a URL asks for: its path, looked up, and its query string, held to a shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Scope

from fairlead.server.http.problems import Refusal, invalid_value

Place = TypeVar("Place")

_NO_NAMES: Final[Mapping[str, str]] = {}


class PathTable(Generic[Place]):
    """Places by the patterns of their paths, in which a segment `{name}` stands for any that is not empty."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._plain = {pattern: place for pattern, place in places.items() if "{" not in pattern}
        named = [(pattern.split("/"), place) for pattern, place in places.items() if "{" in pattern]
        self._shapes: dict[int, list[_Shape[Place]]] = {}
        # Of several patterns that a path has, the one counts that says the earliest of its segments itself.
        for shape in sorted({tuple("{" in segment for segment in segments) for segments, _ in named}):
            alike = [one for one in named if tuple("{" in segment for segment in one[0]) == shape]
            self._shapes.setdefault(len(shape), []).append(_Shape(shape, alike))

    def find(self, path: str) -> tuple[Place, Mapping[str, str]] | None:
        """The place of a path, and what its names stand for; None if it leads nowhere."""
        plain = self._plain.get(path)
        if plain is not None:
            return plain, _NO_NAMES
        segments = path.split("/")
        for shape in self._shapes.get(len(segments), ()):
            found = shape.find(segments)
            if found is not None:
                return found
        return None


class _Shape(Generic[Place]):
    """The patterns that have their names in the same segments."""

    def __init__(self, is_name: Sequence[bool], places: Sequence[tuple[Sequence[str], Place]]) -> None:
        # A path begins with a slash, so at least the empty segment before it is said.
        self._said = itemgetter(*(at for at, name in enumerate(is_name) if not name))
        self._places = {
            self._said(segments): (
                place,
                [(segment[1:-1], at) for at, segment in enumerate(segments) if is_name[at]],
            )
            for segments, place in places
        }

    def find(self, segments: Sequence[str]) -> tuple[Place, Mapping[str, str]] | None:
        """The place of a path with these segments, and what its names stand for."""
        found = self._places.get(self._said(segments))
        if found is None:
            return None
        place, names = found
        named = {name: segments[at] for name, at in names}
        return (place, named) if all(named.values()) else None


def path_of(scope: Scope) -> str:
    """The path of a request below the root of the application, which may be somewhere on its server."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
        return path[len(root) :]
    return path


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
