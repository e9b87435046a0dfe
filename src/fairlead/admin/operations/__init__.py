"""Operations: one action on all tasks that a query means."""

from __future__ import annotations

from typing import Final

KIND: Final = "operation"
"""The kind of record that an operation is."""
BELL: Final = "operations_changed"
"""The kind, and the name, of the record whose version says whether anybody began or changed an operation."""
