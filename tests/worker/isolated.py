"""Handlers that run in processes of their own: found there by name, so they stand at the top of a module."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

from fairlead import Fairlead, Reject, Retry, Snooze, SoftTimeout, current_task


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


def hang() -> None:
    time.sleep(600)


async def hang_async() -> None:
    await asyncio.Event().wait()


def report(until: str) -> str:
    """Say how far it is, and go on when a file is there."""
    current_task().progress(42, "half way")
    deadline = time.monotonic() + 60
    while not Path(until).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return "seen"


class Said(str):
    """A text as a library may have its own."""

    __slots__ = ()


NO_PROGRESS: list[tuple[Any, Any]] = [
    *((percent, "") for percent in (None, "5", b"5", [5], 1j, -1, 101, float("nan"), 10**400, object)),
    *((50, message) for message in (None, 5, b"bytes", bytearray(b"b"), ["a"], ("a",), {"a"}, object)),
]
"""What says nothing of how far an attempt is."""


def report_oddly(until: str) -> list[str]:
    """Say how far it is, then in every wrong way, and go on when a file is there; what the wrong ways came to."""
    percent: Any = Fraction(42)
    current_task().progress(percent, Said("half way"))
    refused = []
    for percent, message in NO_PROGRESS:
        try:
            current_task().progress(percent, message)
        except ValueError as error:
            refused.append(str(error))
    deadline = time.monotonic() + 60
    while not Path(until).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return refused


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


def fork_and_return() -> str:
    """Have a child that falls out of the handler, with a result of its own."""
    return "child" if os.fork() == 0 else "parent"


def fork_and_babble() -> str:
    """Leave a child behind that says things which look like answers, over whatever is open there."""
    if os.fork() == 0:
        time.sleep(0.2)
        babble()
        os._exit(0)
    return "parent"


def babble() -> str:
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\0" * 100)
    time.sleep(0.1)
    return "babbled"


def promise_much() -> None:
    """Announce a message of four gigabytes."""
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\xff" * 20)
    time.sleep(0.1)


def close_everything() -> None:
    os.closerange(3, 4_096)


def leave_a_child_and_die() -> None:
    """Leave a child behind that holds what this process has open, and be killed."""
    if os.fork() == 0:
        time.sleep(30)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def report_late(until: str) -> str:
    """Leave a thread behind that reports progress of a task that is over."""
    context = current_task()

    def late() -> None:
        while not Path(until).exists():
            context.progress(99, "of the former task")
            time.sleep(0.01)

    threading.Thread(target=late, daemon=True).start()
    return "done"


def wait_for(until: str) -> str:
    while not Path(until).exists():
        time.sleep(0.01)
    return "waited"


def exit_with_words() -> None:
    sys.exit("the settings are missing")


def put_off_once() -> str:
    if current_task().attempt < 2:
        raise Snooze(60)
    return "done"


soft_app = Fairlead("memory://")


@soft_app.task(isolate=True, soft_timeout=0.05)
def spin_softly() -> str:
    try:
        while True:
            time.sleep(0.001)
    except SoftTimeout:
        return "saved"
