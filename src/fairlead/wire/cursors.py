"""Cursors: where the next page of a list begins, as callers carry it. To them it is opaque."""

from __future__ import annotations

import base64
import binascii
from typing import Final, Literal, TypeAlias

from fairlead.core.errors import InvalidTask
from fairlead.core.identity import TaskId, parse_task_id

Order: TypeAlias = Literal["newest", "oldest"]

_MARKS: Final[dict[Order, bytes]] = {"newest": b"n", "oldest": b"o"}


def cursor_after(last: TaskId, order: Order) -> str:
    """The cursor of the page after the one that ends with this task."""
    return base64.urlsafe_b64encode(_MARKS[order] + bytes.fromhex(last)).decode().rstrip("=")


def place_of(cursor: str, order: Order) -> TaskId | None:
    """The last task of the page before; None for what is no cursor in this order."""
    try:
        decoded = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return parse_task_id(decoded[1:].hex()) if decoded[:1] == _MARKS[order] else None
    except (ValueError, binascii.Error, InvalidTask):
        return None
