"""The page that follows a task names the functions that a task is handled by, in their order.

python -m tests.docs.test_a_task_followed FILE: handle a task on a SQLite store in this file, and print who was called.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, TypeAlias

from fairlead import Fairlead
from scripts.code_map import SOURCE
from tests.docs.reading import ROOT, rows

PAGE: Final = ROOT / "docs" / "contributing" / "a-task-from-submit-to-settle.md"

Call: TypeAlias = tuple[str, str]
"""A file below the source, and a function in it."""

_TRIES: Final = 5
_PATIENCE: Final = 50.0
"""Seconds for a try. It takes one."""


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """The calls that are made meanwhile, in this thread and in those that it starts."""
    calls: list[Call] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            calls.append((path.relative_to(SOURCE).as_posix(), frame.f_code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def beyond(named: list[Call], calls: list[Call]) -> list[Call]:
    """What is left of those named once the calls were gone through in their order."""
    left = iter(named)
    awaited = next(left)
    for call in calls:
        if call == awaited:
            following = next(left, None)
            if following is None:
                return []
            awaited = following
    return [awaited, *left]


async def handled(file: Path) -> list[Call]:
    """Submit a task and work on it; who was called."""
    app = Fairlead(f"sqlite:///{file}")

    @app.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    with recorded() as calls:
        handle = await greet.submit("ada")
        worker = await app.worker(keeper_process=False)
        working = asyncio.create_task(worker.run())
        assert await handle.result() == "hello ada"
        worker.leave()
        await working
    await app.close()
    return calls


def handled_elsewhere(folder: Path) -> list[Call]:
    """The same in a process of its own, once more if that hangs.

    Python 3.11 can stay for ever at the begin of a function that is profiled, if another thread asks for its turn in
    that moment; no signal reaches it there.
    """
    for attempt in range(1, _TRIES + 1):
        command = [sys.executable, "-m", "tests.docs.test_a_task_followed", str(folder / f"tasks{attempt}.db")]
        try:
            ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            continue
        assert ended.returncode == 0, ended.stderr
        return [(path, function) for path, function in json.loads(ended.stdout)]
    raise AssertionError(f"no task was handled in {_TRIES} tries")


def test_a_task_goes_the_way_that_the_page_tells(tmp_path: Path) -> None:
    named = [(path.strip("`"), function.strip("`")) for path, function, _ in rows(PAGE.read_text("utf-8"))]

    assert beyond(named, handled_elsewhere(tmp_path)) == []


def test_a_function_out_of_order_is_found() -> None:
    assert beyond([("a", "f"), ("b", "g")], [("b", "g"), ("a", "f")]) == [("b", "g")]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(handled(Path(sys.argv[1])))))
