"""The built wheel, alone with its own dependencies in an empty folder, does what the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = ROOT / "scripts" / "uv"


def run(*command: object, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    ran = subprocess.run(
        [*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=280, check=False
    )
    assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
    return ran.stdout


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The programs of an environment with nothing but the wheel and what it cannot do without."""
    folder = tmp_path_factory.mktemp("bare")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", ROOT, cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    run(UV, "venv", "--quiet", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", python, wheel, cwd=folder)
    yield folder / "venv" / "bin"


@pytest.fixture
def clean() -> dict[str, str]:
    spared = ("FAIRLEAD_", "PYTHON", "VIRTUAL_ENV", "COV_")
    return {key: value for key, value in os.environ.items() if not key.startswith(spared)}


def example_of_the_readme() -> tuple[str, str, str]:
    """The code, the command of the worker's terminal, and what the README says the example prints."""
    text = (ROOT / "README.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (worker,) = re.findall(r"^fairlead (worker .+)$", text, re.MULTILINE)
    (printed,) = re.findall(r"It prints `(.+?)`", text)
    return code, worker, printed


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_example_of_the_readme_runs_on_a_bare_install(bare: Path, clean: dict[str, str], tmp_path: Path) -> None:
    code, worker, printed = example_of_the_readme()
    (tmp_path / "example.py").write_text(code)
    working = subprocess.Popen([bare / "fairlead", *worker.split()], cwd=tmp_path, env=clean)
    try:
        assert run(bare / "python", "-W", "error", "example.py", cwd=tmp_path, env=clean) == f"{printed}\n"
    finally:
        working.terminate()
        assert working.wait(60) == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_bare_install_has_no_extra_and_its_import_needs_none(bare: Path, clean: dict[str, str]) -> None:
    listed = run(UV, "pip", "list", "--format", "freeze", "--python", bare / "python", cwd=bare)
    installed = {line.partition("==")[0].lower() for line in listed.split()}
    assert {"fairlead", "msgspec"} <= installed
    assert installed & {"redis", "hiredis", "psycopg", "starlette", "uvicorn", "structlog", "uvloop", "pytest"} == set()
    code = "import sys; from fairlead import *; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    imported = set(run(bare / "python", "-c", code, cwd=bare, env=clean).split())
    assert {"fairlead", "msgspec"} <= imported
    assert imported & {"cyclopts", "rich", "redis", "psycopg", "starlette", "uvicorn", "structlog"} == set()
