"""Errors as RFC 9457 has them."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

MEDIA_TYPE: Final = "application/problem+json"

Value: TypeAlias = str | int | float | bool | None
"""A value that is short enough to be repeated."""


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, for programs (`type`, `status`, `field`) and for people (`title`, `detail`, `remedy`)."""

    type: str
    """Where the kind of problem is explained, relative to the server."""
    title: str
    status: int
    detail: str
    """What went wrong this time: the thing, its value and the remedy."""
    field: str | None = None
    """The field or parameter that is at fault."""
    value: Value = None
    """The value at fault, where it is known and short."""
    remedy: str | None = None
    """What to do about it."""
    position: int | None = None
    """Where in a query the mistake begins, in characters from 0."""
    pointer: str | None = None
    """Two lines: the query, and carets under the mistake."""
