"""Processes that the bench starts: what they cost, what they said, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

STALLS: Final = 15.0
"""Seconds without progress after which a worker is given up."""
LASTS: Final = 90.0
"""Seconds after which it is given up although it goes on."""
_STOPS: Final = 1.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A contestant did not do what was asked of it, and what it said."""


class Worker:
    """A worker that runs until it is stopped, with all that it starts."""

    def __init__(self, command: list[str], variables: dict[str, str], output: IO[bytes]) -> None:
        self._output = output
        self._process = subprocess.Popen(
            command, env=variables, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raise Failed if it has ended."""
        if self._process.poll() is not None:
            self._output.seek(0)
            raise Failed(f"its worker ended: {last_line(self._output.read().decode(errors='replace'))}")

    def stop(self) -> None:
        end_group(self._process)


def end_group(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """End a process that leads a group, and the group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOPS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def until(wanted: int, progress: Callable[[], int], workers: list[Worker]) -> None:
    """Wait until so much is done; gives up in bounded time."""
    began = since = time.monotonic()
    seen = progress()
    while seen < wanted:
        time.sleep(0.01)
        for worker in workers:
            worker.check()
        moment = time.monotonic()
        if (now := progress()) != seen:
            seen, since = now, moment
        if moment - since > STALLS:
            raise Failed(f"its worker stopped at {seen:,} of {wanted:,} tasks")
        if moment - began > LASTS:
            raise Failed(f"its worker came to {seen:,} of {wanted:,} tasks in {LASTS:g} s")


def family(process: int) -> list[int]:
    """A process and all that descend from it."""
    children = _read(Path(f"/proc/{process}/task/{process}/children")).split()
    return [process, *(each for child in children for each in family(int(child)))]


def shared_memory(process: int) -> float:
    """MB of a process and its children, by Pss: what processes share is divided among them."""
    return sum(_kilobytes(each, "smaps_rollup", "Pss:") for each in family(process)) * 1024 / 1e6


def resident_memory(process: int) -> float:
    """MB of a process alone, by RSS: what it shares with others is counted in full."""
    return _kilobytes(process, "status", "VmRSS:") * 1024 / 1e6


def _kilobytes(process: int, file: str, name: str) -> int:
    words = _read(Path(f"/proc/{process}/{file}")).partition(f"\n{name}")[2].split()
    return int(words[0]) if words else 0


def processor_seconds(process: int) -> float:
    """CPU time of a process and its children so far."""
    fields = [_read(Path(f"/proc/{each}/stat")).rpartition(")")[2].split() for each in family(process)]
    return sum(int(spent[11]) + int(spent[12]) for spent in fields if spent) / _TICKS


def fine_processor_seconds(process: int) -> float:
    """The same of the threads that live, to the nanosecond: for what hardly works at all."""
    threads = [file for each in family(process) for file in Path(f"/proc/{each}/task").glob("*/schedstat")]
    return sum(int(said.split()[0]) for file in threads if (said := _read(file))) / 1e9


def _read(path: Path) -> str:
    """What the system says of a process or a thread; nothing if it has just ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
