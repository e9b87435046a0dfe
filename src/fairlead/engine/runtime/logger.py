"""A logger that harms nobody who says something in it.

What is said goes to handlers and filters of the application, and of whatever runs in its process: one that ships lines
over a network, and raises when that is away, must not end a worker, or leave a task without an outcome.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from typing import Any


class Logger(logging.LoggerAdapter[logging.Logger]):
    """A logger by name, which raises nothing that its handlers or filters raise."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Say something, as far as the handlers let it be said: those before one that raises have heard it."""
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception:
            # As for a handler's own errors, which has the same switch.
            with contextlib.suppress(Exception):
                if logging.raiseExceptions:
                    traceback.print_exc()
