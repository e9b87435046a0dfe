"""Telling submitters, once, that nobody could run what they submit."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fairlead.core.explain.explanation import Cause

log = logging.getLogger("fairlead.submit")

_MOST_TOLD: Final = 1_000
_told: set[tuple[str, str]] = set()


def heed(task_type: str, doubts: Sequence[Cause]) -> None:
    """Log why no live worker could run a task that was submitted: once for each type and reason in a process.

    That no worker runs at all is what every start-up begins with, and said in a low voice.
    """
    if not doubts:
        return
    # A worker has no use for it, and never comes here.
    from fairlead.core.explain.explanation import CauseCode

    for cause in doubts:
        if (task_type, cause.code) in _told or len(_told) >= _MOST_TOLD:
            continue
        _told.add((task_type, cause.code))
        level = logging.INFO if cause.code == CauseCode.NO_WORKERS else logging.WARNING
        log.log(level, "a task of type %s waits until a worker can run it: %s", task_type, cause.text)
