"""The Python in pages that people read first: it runs, and it satisfies a strict type checker."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final
from unittest import TestCase, TextTestRunner, defaultTestLoader

import pytest

from fairlead import Fairlead
from tests.docs.reading import PAGES, ROOT, Block, blocks, name

HOW_TO: Final = ROOT / "docs" / "how-to"
EXAMPLE, *FURTHER = (block for block in blocks(ROOT / "docs" / "quickstart.md") if block.language == "python")
(README_EXAMPLE,) = (block for block in blocks(ROOT / "README.md") if block.language == "python")
RUNNABLE = [
    block
    for page in (
        "resources-and-middleware.md",
        "schedule-tasks.md",
        "test-your-tasks.md",
        "use-the-in-process-queue.md",
        "write-handlers.md",
    )
    for block in blocks(HOW_TO / page)
    if block.language == "python"
]


def module(block: Block, called: str) -> ModuleType:
    """A block as the module that a reader would have made of it."""
    made = ModuleType(called)
    sys.modules[called] = made
    exec(compile(block.body, str(block), "exec"), made.__dict__)
    return made


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The reader's folder, with the quickstart's example in it."""
    monkeypatch.chdir(tmp_path)
    module(EXAMPLE, "example")
    yield
    for called in ("example", "page", "readme"):
        sys.modules.pop(called, None)


@pytest.mark.parametrize("block", RUNNABLE, ids=str)
def test_an_example_runs_and_its_tests_pass(block: Block) -> None:
    page = module(block, "page")
    for case in [value for value in vars(page).values() if inspect.isclass(value) and issubclass(value, TestCase)]:
        assert TextTestRunner().run(defaultTestLoader.loadTestsFromTestCase(case)).wasSuccessful()
    for function in [value for key, value in vars(page).items() if key.startswith("test_")]:
        if "rehearsal" in inspect.signature(function).parameters:
            with sys.modules["example"].app.testing() as rehearsal:
                function(rehearsal)
            continue
        outcome = function()
        if inspect.iscoroutine(outcome):
            asyncio.run(outcome)


def test_the_example_of_the_readme_does_what_the_readme_says() -> None:
    readme = module(README_EXAMPLE, "readme")
    app: Fairlead = readme.app

    async def greeting() -> object:
        async with app.testing() as rehearsal:
            task = await readme.greet.submit("Ada")
            await rehearsal.run()
            return await task.result()

    assert asyncio.run(greeting()) == "hello Ada"
    assert "It prints `hello Ada`." in README_EXAMPLE.page.read_text("utf-8")


def test_the_submits_of_the_quickstart_need_nothing_but_a_folder() -> None:
    (synchronous,) = (block for block in FURTHER if "submit_sync" in block.body)

    module(synchronous, "page")

    assert Path("tasks.db").exists()


@pytest.mark.slow
def test_every_example_satisfies_a_strict_type_checker(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(EXAMPLE.body, "utf-8")
    for page in PAGES:
        for block in blocks(page):
            if block.language == "python":
                file = f"{name(page).removesuffix('.md').replace('/', '_').replace('-', '_')}_{block.line}.py"
                (tmp_path / file).write_text(block.body, "utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--python-version", "3.11"]
    checked = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache"), *sorted(map(str, tmp_path.glob("*.py")))],
        capture_output=True,
        text=True,
        env={"MYPYPATH": f"{ROOT / 'src'}:{tmp_path}"},
        cwd=tmp_path,
        check=False,
    )

    assert checked.stdout + checked.stderr == ""
