"""`fairlead check` finds what an app cannot do before a worker of it starts."""

from __future__ import annotations

import json

from tests.cli.running import Folder

WELL = """
from fairlead import Fairlead

app = Fairlead("sqlite:///never.db")


@app.cron("0 3 * * *", parameters={"size": 5})
@app.task(isolate=True)
def report(size: int) -> str:
    return "x" * size


@app.task
async def other() -> None: ...
"""

UNWELL = """
from fractions import Fraction

from fairlead import Fairlead

app = Fairlead("sqlite:///never.db")


@app.task
def halve(number: Fraction) -> int: ...


@app.task
def half() -> Fraction: ...


@app.task
def lost(thing: "Nowhere") -> int: ...


@app.task(isolate=True)
def shadowed() -> None: ...


shadow, shadowed = shadowed, None
"""


def test_an_app_that_is_well_is_told_in_a_line_and_no_store_is_opened(folder: Folder) -> None:
    (folder.path / "tasks.py").write_text(WELL)

    assert folder.ok("check", "tasks:app").out == "tasks:app is well: 2 task types, 1 schedule\n"
    assert json.loads(folder.ok("check", "tasks:app", "--json").out) == {
        "app": "tasks:app",
        "types": ["other", "report"],
        "schedules": ["report"],
        "faults": [],
    }
    assert not (folder.path / "never.db").exists()


def test_every_fault_is_told_and_the_exit_code_says_so(folder: Folder) -> None:
    (folder.path / "tasks.py").write_text(UNWELL)

    ended = folder.run("check", "tasks:app")

    assert ended.code == 1
    for fault in (
        "task halve: parameter number: Fraction has no JSON form; annotate ",
        "task half: its result: Fraction has no JSON form; annotate ",
        "task lost: name 'Nowhere' is not defined; annotations must name types",
        "task shadowed: an isolated handler is found by its name in another process, and tasks.shadowed is something",
    ):
        assert fault in ended.err
    assert len(json.loads(folder.run("check", "tasks:app", "--json").out)["faults"]) == 4


def test_what_is_no_app_is_misuse(folder: Folder) -> None:
    assert folder.run("check", "nowhere:app").code == 2
