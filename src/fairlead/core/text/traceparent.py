"""The trace that a task belongs to, as W3C writes it down."""

from __future__ import annotations

import re
from typing import Final

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def is_traceparent(trace: str) -> bool:
    """Whether this is a W3C traceparent, which leads back to the span that submitted the task."""
    return _TRACEPARENT.fullmatch(trace) is not None


def traceparent_in(trace: str | None) -> str | None:
    """The traceparent, if this is one."""
    return trace if trace is not None and is_traceparent(trace) else None


def trace_id_of(trace: str | None) -> str | None:
    """The id of the trace in a traceparent; any other text is an id of the submitter's own."""
    if trace is None:
        return None
    parent = _TRACEPARENT.fullmatch(trace)
    return trace if parent is None else parent[1]
