"""The page that follows a task names the functions that a task is handled by, in their order."""

from __future__ import annotations

import asyncio
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


async def test_a_task_goes_the_way_that_the_page_tells(tmp_path: Path) -> None:
    named = [(path.strip("`"), function.strip("`")) for path, function, _ in rows(PAGE.read_text("utf-8"))]
    app = Fairlead(f"sqlite:///{tmp_path}/tasks.db")

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

    assert beyond(named, calls) == []


def test_a_function_out_of_order_is_found() -> None:
    assert beyond([("a", "f"), ("b", "g")], [("b", "g"), ("a", "f")]) == [("b", "g")]
