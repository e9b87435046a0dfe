"""Handlers that run in processes of their own: found there by name, so they stand at the top of a module."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

from fairlead import Reject, Retry, current_task


def process_id() -> int:
    return os.getpid()


async def process_id_async() -> int:
    return os.getpid()


def unspeakable() -> object:
    return object()


def segfault() -> None:
    ctypes.string_at(0)


def leave(code: int) -> None:
    os._exit(code)


def say_exit() -> None:
    sys.exit(3)


def eat_memory() -> int:
    return len(bytearray(400 << 20))


def eat_memory_bit_by_bit() -> int:
    eaten = []
    while True:
        eaten.append(os.urandom(1 << 20))


def spin(note: str) -> None:
    """Run for ever, deaf to everything but a kill, and leave a note of where."""
    write(Path(note), str(os.getpid()))
    while True:
        pass


def report(until: str) -> str:
    """Say how far it is, and go on when a file is there."""
    current_task().progress(42, "half way")
    deadline = time.monotonic() + 60
    while not Path(until).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return "seen"


def reject() -> None:
    raise Reject("not this one")


def miss_a_file() -> None:
    raise FileNotFoundError("no such file")


def retry() -> int:
    if current_task().attempt == 1:
        raise Retry("once more", after=0)
    return current_task().attempt


def add(left: int, right: int = 1) -> int:
    return left + right


def raise_value_error() -> None:
    raise ValueError("no such value")


def write(path: Path, text: str) -> None:
    """Write a file so that whoever sees it sees all of it."""
    whole = path.with_suffix(".part")
    whole.write_text(text)
    whole.rename(path)
