"""Handlers in processes of their own: whatever they do to those, nobody else notices."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead import Fairlead, InvalidSettings
from fairlead.core.task import Reason, State
from tests.worker import isolated
from tests.worker.building import Crew, eventually
from tests.worker.test_timeouts import is_gone

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "parameters", "cause"),
    [
        ("segfault", {}, "killed by SIGSEGV"),
        ("leave", {"code": 0}, "exited with code 0"),
        ("leave", {"code": 7}, "exited with code 7"),
        ("say_exit", {}, "exited with code 3"),
        ("exit_with_words", {}, "the handler ended its process: the settings are missing"),
        ("eat_memory", {}, "ran out of memory"),
        ("eat_memory_bit_by_bit", {}, "ran out of memory"),
    ],
)
async def test_a_task_that_ends_its_process_comes_to_the_dead_letters_after_its_crash_budget(
    crew: Crew, name: str, parameters: dict[str, int], cause: str
) -> None:
    crew.handle(getattr(isolated, name), isolate=True, memory_limit=256 << 20)

    async def neighbour() -> int:
        await released.wait()
        return 1

    released = asyncio.Event()
    crew.handle(neighbour)
    async with crew.working():
        beside = await crew.submit("neighbour")
        await crew.until(beside, State.EXECUTING)
        end = await crew.until_ended(await crew.submit(name, parameters=parameters, max_crashes=1))
        released.set()
        unharmed = await crew.until_ended(beside)
    assert (end.state, end.status.reason) == (State.DEAD_LETTER, Reason.CRASH_LOOP)
    assert (end.status.attempts, end.status.crashes, end.status.retries) == (2, 2, 0)
    assert end.status.failure is not None
    assert end.status.failure.type == "ProcessDied"
    assert cause in end.status.failure.message
    assert (unharmed.state, unharmed.status.attempts) == (State.COMPLETED, 1)


async def test_an_isolated_neighbour_does_not_notice_either(crew: Crew, tmp_path: Path) -> None:
    note = tmp_path / "go on"
    crew.handle(isolated.segfault, isolate=True)
    crew.handle(isolated.report, isolate=True)
    async with crew.working():
        beside = await crew.submit("report", parameters={"until": str(note)})
        await crew.until(beside, lambda stored: stored.status.progress is not None)
        await crew.until_ended(await crew.submit("segfault", max_crashes=0))
        note.touch()
        unharmed = await crew.until_ended(beside)
    assert (unharmed.status.result, unharmed.status.attempts) == (b'"seen"', 1)


async def test_a_default_timeout_of_sockets_is_none_of_a_process_own(crew: Crew) -> None:
    """The worker's process has one, as some library sets it; a socket that it makes then does not wait."""
    crew.handle(isolated.process_id, isolate=True)
    socket.setdefaulttimeout(20)
    try:
        async with crew.working(concurrency=1):
            ends = [await crew.until_ended(await crew.submit("process_id", max_crashes=0)) for _ in range(3)]
    finally:
        socket.setdefaulttimeout(None)
    assert [end.state for end in ends] == [State.COMPLETED] * 3
    assert len({end.status.result for end in ends}) == 1, "a process is kept for the next task"


async def test_a_memory_limit_is_gone_with_its_task(crew: Crew) -> None:
    """A cell is used again, by a task without a limit."""

    crew.handle(isolated.process_id, isolate=True, memory_limit=256 << 20)
    crew.handle(isolated.eat_memory, isolate=True)
    async with crew.working(concurrency=1):
        limited = await crew.until_ended(await crew.submit("process_id"))
        free = await crew.until_ended(await crew.submit("eat_memory"))
    assert limited.state is State.COMPLETED
    assert (free.state, free.status.result) == (State.COMPLETED, b"419430400")


async def test_a_cell_is_kept_for_the_next_task_and_ends_with_the_worker(crew: Crew) -> None:
    crew.handle(isolated.process_id, isolate=True)
    crew.handle(isolated.process_id_async, isolate=True)
    crew.handle(isolated.raise_value_error, isolate=True)
    async with crew.working(concurrency=1):
        cells = set()
        for name in ("process_id", "raise_value_error", "process_id_async", "process_id"):
            end = await crew.until_ended(await crew.submit(name, max_retries=0))
            if end.status.result is not None:
                cells.add(int(end.status.result))
    (cell,) = cells
    assert cell != os.getpid()
    await eventually(lambda: is_gone(cell))


def test_an_isolated_handler_must_be_found_by_its_name() -> None:
    app = Fairlead("memory://")

    def local() -> None: ...

    for function in (local, lambda: None):
        with pytest.raises(InvalidSettings, match="an isolated handler is found by its name in another process; def"):
            app.task(name="local", isolate=True)(function)


def test_a_memory_limit_needs_a_process() -> None:
    app = Fairlead("memory://")
    with pytest.raises(InvalidSettings, match="task isolated: memory_limit needs a process of its own; add isolate=T"):
        app.task(name="isolated", memory_limit=1 << 30)(isolated.process_id)


async def test_a_handler_that_cannot_be_found_fails_with_the_reason(crew: Crew) -> None:
    def vanished() -> None: ...

    vanished.__qualname__ = "vanished"
    vanished.__module__ = isolated.__name__
    crew.handle(vanished, isolate=True)
    async with crew.working():
        end = await crew.until_ended(await crew.submit("vanished", max_retries=0))
    assert end.status.failure is not None
    assert end.status.failure.message.startswith("the handler cannot be loaded: ")
    assert end.status.crashes == 0


SCRIPT = """
import asyncio, os, sys
from fairlead import Fairlead, Reject, current_task

app = Fairlead("memory://")

class Hopeless(Exception): ...

@app.task(isolate=True, reject_on=[Hopeless])
def isolated(hopeless: bool) -> list[str]:
    if hopeless:
        raise Hopeless("of this very module")
    return [str(os.getpid()), __name__]

async def main() -> None:
    async with app.testing() as rehearsal:
        fine, hopeless = await isolated.submit(hopeless=False), await isolated.submit(hopeless=True)
        await rehearsal.run()
        pid, name = await fine.result()
        print(pid != str(os.getpid()), (await hopeless.refresh()).status)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_handler_of_the_main_module_can_be_isolated(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(script)],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ran.stdout == "True failed\n"
    told, *_, last = ran.stderr.strip().splitlines()
    assert told.endswith("medium (rejected): Hopeless: of this very module") and " failed after 0 s, attempt 1 " in told
    assert last == "__fairlead_main__.Hopeless: of this very module"


async def test_what_an_isolated_handler_prints_is_seen_and_disturbs_nothing(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("    if hopeless:", "    print('said by the cell', flush=True)\n    if hopeless:"))
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, str(script)], capture_output=True, text=True, timeout=100, check=False
    )
    # Processes that share a pipe may come between a text and the end of its line.
    assert sorted(filter(None, re.split(r"\n|(?<=cell)|(?<=failed)", ran.stdout))) == [
        "True failed",
        "said by the cell",
        "said by the cell",
    ]
