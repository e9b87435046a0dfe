"""A type checker finds users' mistakes before anything runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MISTAKES = """
from collections.abc import AsyncIterator
from datetime import datetime
from fairlead import Backoff, Depends, Fairlead, Middleware, Submission, TaskContext, current_task

app = Fairlead("memory://")


@app.task
async def render(video: str, width: int = 1920) -> str:
    return video


@app.task(priority="high")
def shrink(video: str) -> None: ...


async def mistakes() -> None:
    await render.submit(1)  # E: Argument 1 to "submit" of "TaskDefinition" has incompatible type "int"; expected "str"
    await render.submit("a", width="wide")  # E: incompatible type "str"; expected "int"
    await render.submit()  # E: Missing positional argument "video"
    await render.submit("a", height=1)  # E: Unexpected keyword argument "height"
    await render.submit("a", 1, 2)  # E: Too many arguments
    render.submit_sync(b"a")  # E: incompatible type "bytes"; expected "str"
    render.call(None)  # E: incompatible type "None"; expected "str"
    number: int = await (await render.submit("a")).result()  # E: expression has type "str", variable has type "int"
    length: int = shrink.submit_sync("a").result_sync()  # E: has type "None", variable has type "int"
    render.options(prioritty="high")  # E: Unexpected keyword argument "prioritty"
    render.options(priority=1)  # E: to "options" of "TaskDefinition" has incompatible type "Literal[1]"
    render.options(priority="urgent")  # E: incompatible type "Literal['urgent']"
    render.options(delay="soon")  # E: incompatible type "str"; expected "float | timedelta"
    Backoff(initial="soon")  # E: incompatible type "str"; expected "float | timedelta"
    Backoff(intial=5)  # E: Unexpected keyword argument "intial"
    render.options(run_at="tomorrow")  # E: incompatible type "str"; expected "datetime"
    await render.options(priority="low").submit(1)  # E: incompatible type "int"; expected "str"
    await render.submit_many(["a"])  # E: has incompatible type "str"; expected "Call[str]"
    await render(1)  # E: incompatible type "int"; expected "str"
    shrink(1)  # E: incompatible type "int"; expected "str"
    current_task().progress("half")  # E: incompatible type "str"; expected "float"
    await bill.submit()  # E: Missing positional argument "order"
    await bill.submit("17")  # E: incompatible type "str"; expected "int"
    await bill.submit(17, "db")  # E: Too many positional arguments
    current_task().state("State")  # E: incompatible type "str"; expected "type[
    current_task().is_final("error")  # E: incompatible type "str"; expected "BaseException"


async def session(context: TaskContext) -> AsyncIterator[str]:
    yield "session"


def greedy(context: TaskContext, more: int) -> str:
    return ""


@app.task
async def bill(order: int, *, db: str = Depends(session)) -> None: ...


@app.task
async def wrong_type(order: int, *, db: int = Depends(session)) -> None: ...  # E: Incompatible default


@app.task
async def wrong_provider(*, db: str = Depends(greedy)) -> None: ...  # E: incompatible type


class Errors(Middleware):
    def on_submit(self, submission: Submission) -> None: ...  # E: incompatible with return type "Submission"


Fairlead("memory://", middleware=[Errors])  # E: has incompatible type "type[Errors]"
Fairlead("memory://", lifespan=session)  # E: has incompatible type


@app.task(timeout="30")  # E: No overload variant of "task" of "Fairlead" matches argument type "str"
def late() -> None: ...


@app.task(colour="red")  # E: Unexpected keyword argument "colour"
def coloured() -> None: ...
"""


EXPECTED = {
    number: line.partition("# E: ")[2] for number, line in enumerate(MISTAKES.splitlines(), 1) if "# E:" in line
}
RIGHT = [ROOT / "tests" / "typing" / "user_code.py", *sorted((ROOT / "examples").glob("*.py"))]


@pytest.mark.slow
def test_correct_code_passes_and_every_mistake_is_found(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(MISTAKES)

    errors = mypy(wrong, *RIGHT)

    expected = EXPECTED
    found: dict[int, str] = {}
    for file, line, message in errors:
        if file == "wrong.py":
            found[line] = f"{found.get(line, '')}{message}\n"
    assert [error for error in errors if error[0] != "wrong.py"] == []
    assert found.keys() == expected.keys(), errors
    for line, message in expected.items():
        assert message in found[line], f"line {line}"


@pytest.mark.slow
def test_pyright_finds_the_same_mistakes(tmp_path: Path) -> None:
    """By basedpyright, which is pyright with all that it needs in the wheel, set up as pyright is unless one says."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(MISTAKES)
    settings = tmp_path / "pyrightconfig.json"
    settings.write_text(json.dumps({"typeCheckingMode": "standard", "include": [str(wrong), *map(str, RIGHT)]}))

    ran = subprocess.run(
        [
            sys.executable, "-m", "basedpyright", "--outputjson", "--level", "error", "--project", str(settings),
            "--pythonpath", sys.executable,
        ],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip

    told = json.loads(ran.stdout)
    errors = [
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["message"])
        for each in told["generalDiagnostics"]
    ]
    assert told["summary"]["filesAnalyzed"] >= 1 + len(RIGHT)
    assert [error for error in errors if error[0] != "wrong.py"] == []
    assert {line for _, line, _ in errors} == EXPECTED.keys(), errors


def mypy(*files: Path) -> list[tuple[str, int, str]]:
    """The errors that users would be told of: the settings of this repository do not count."""
    ran = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", "--no-pretty",
            "--config-file=", "--explicit-package-bases", "--cache-dir", str(ROOT / ".mypy_cache" / "users"),
            *map(str, files),
        ],
        capture_output=True, text=True, timeout=110, check=False, cwd=files[0].parent,
    )  # fmt: skip
    assert ran.stderr == ""
    lines = [re.match(r"(.+?):(\d+): error: (.+)", line) for line in ran.stdout.splitlines()]
    return [(Path(match[1]).name, int(match[2]), match[3]) for match in lines if match]
