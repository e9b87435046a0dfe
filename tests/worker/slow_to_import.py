"""A handler whose module takes long to import, as those with large libraries do."""

from __future__ import annotations

import time

time.sleep(3)


def answer() -> int:
    return 42


def linger() -> None:
    time.sleep(60)


def dawdle() -> str:
    time.sleep(3)
    return "at last"
