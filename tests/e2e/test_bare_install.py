"""The built wheel, in empty environments with no extra and with each extra alone, does what the first pages say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from fairlead.core.extras import EXTRAS
from tests.docs.reading import blocks

ROOT: Final = Path(__file__).parents[2]
UV: Final = ROOT / "scripts" / "uv"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HELP_OF_EVERYTHING: Final = """
import contextlib, io
from fairlead.cli.program import program, run

def commands(app, path=()):
    yield path
    for name in app:
        if not name.startswith("-"):
            yield from commands(app[name], (*path, name))

for path in commands(program()):
    with contextlib.redirect_stdout(io.StringIO()) as written:
        code = run([*path, "--help"])
    assert code == 0 and "Usage: fairlead" in written.getvalue(), (path, code, written.getvalue())
    print(*path)
"""


def run(*command: object, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    ran = subprocess.run(
        [*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=280, check=False
    )
    assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
    return ran.stdout


class Place:
    """An environment with nothing but the wheel and what it cannot do without, and an empty folder to work in."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder = folder
        self._programs = programs
        spared = ("FAIRLEAD_", "PYTHON", "VIRTUAL_ENV", "COV_")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(spared)}
        self._env = kept | {"PATH": f"{programs}:{os.environ['PATH']}"}

    def python(self, *arguments: str) -> str:
        return run(self._programs / "python", *arguments, cwd=self.folder, env=self._env)

    def shell(self, line: str) -> str:
        """What a line that is typed prints."""
        return run("sh", "-c", line, cwd=self.folder, env=self._env)

    def refused(self, *arguments: str) -> str:
        """What the program says when it is asked for what it does not do; without a traceback."""
        ran = subprocess.run(
            [self._programs / "fairlead", *arguments],
            cwd=self.folder, env=self._env, capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip
        assert (ran.returncode, ran.stdout) == (2, ""), ran
        assert "Traceback" not in ran.stderr
        return " ".join(ran.stderr.split())

    @contextmanager
    def worker(self, line: str) -> Iterator[None]:
        """A worker, in another terminal."""
        working = subprocess.Popen([self._programs / "fairlead", *line.split()[1:]], cwd=self.folder, env=self._env)
        try:
            yield
        finally:
            working.terminate()
            assert working.wait(60) == 0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module", params=["", *EXTRAS], ids=["bare", *EXTRAS])
def extra(request: pytest.FixtureRequest) -> str:
    """Which extra is installed; none, to begin with."""
    return str(request.param)


@pytest.fixture(scope="module")
def programs(extra: str, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    environment = tmp_path_factory.mktemp("environment") / "venv"
    run(UV, "venv", "--quiet", environment, cwd=wheel.parent)
    wanted = f"fairlead[{extra}] @ {wheel.as_uri()}" if extra else wheel
    run(UV, "pip", "install", "--quiet", "--python", environment / "bin" / "python", wanted, cwd=wheel.parent)
    return environment / "bin"


@pytest.fixture
def place(programs: Path, tmp_path: Path) -> Place:
    return Place(programs, tmp_path)


def test_only_what_was_asked_for_is_installed(extra: str, place: Place) -> None:
    code = "import sys; from importlib.util import find_spec; print(*[n for n in sys.argv[1:] if find_spec(n)])"
    brought = set(EXTRAS.get(extra, ()))
    others = {package for packages in EXTRAS.values() for package in packages} - brought

    installed = set(place.python("-c", code, *others, *brought).split())

    # What the packages of an extra need themselves comes with them: the server's uvloop and h11, for one.
    assert installed >= brought
    assert extra or not installed
    assert installed & {"hiredis", "psycopg"} <= brought


def test_the_program_tells_what_it_is(place: Place) -> None:
    assert "Usage: fairlead" in place.shell("fairlead --help")
    assert re.fullmatch(r"\d+\.\d+\S*\n", place.shell("fairlead --version"))
    assert "wroker" in place.refused("wroker", "example:app")


def test_every_command_has_its_help(place: Place) -> None:
    helped = place.python("-W", "error", "-c", HELP_OF_EVERYTHING).splitlines()

    assert {"rebuild", "migrate", "serve", "keys create", "dlq replay"} <= set(helped)


def test_an_import_takes_only_what_every_program_needs(place: Place) -> None:
    code = "import sys; from fairlead import *; print(*sorted({name.partition('.')[0] for name in sys.modules}))"

    imported = set(place.python("-W", "error", "-c", code).split())

    assert {"fairlead", "msgspec"} <= imported
    assert imported & {"cyclopts", "rich", *(package for packages in EXTRAS.values() for package in packages)} == set()


def test_the_example_of_the_readme_runs(place: Place) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    (code,) = (block.body for block in blocks(ROOT / "README.md") if block.language == "python")
    (worker,) = re.findall(r"^fairlead worker .+$", text, re.MULTILINE)
    (printed,) = re.findall(r"It prints `(.+?)`", text)
    (place.folder / "example.py").write_text(code)

    with place.worker(worker):
        assert place.python("-W", "error", "example.py") == f"{printed}\n"


def test_the_quickstart_runs_from_its_first_step_to_its_last(place: Place) -> None:
    page = blocks(ROOT / "docs" / "quickstart.md")
    example, submit, submit_sync, failing = (block.body for block in page if block.language == "python")
    typed = [block.body for block in page if block.language != "python"]
    (worker,) = (block for block in typed if block.startswith("fairlead worker"))
    (looking,) = (block for block in typed if "fairlead stats" in block)
    (place.folder / "example.py").write_text(f"{example}\n\n{failing.partition('from example import app')[2]}")

    identity, state = place.python("-W", "error", "-c", submit_sync).split()
    with place.worker(worker):
        printed = place.python("-W", "error", "-c", submit)
        seen = place.shell(looking.replace("<id>", identity))

    assert state == "queued"
    assert printed == "hello Ada, hello Ada\n"
    assert identity in seen
    assert "1 scheduled" in seen or "3 completed" in seen, "the delayed sum waits, or has waited for its seconds"
    assert "completed" in seen


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("list --store redis://localhost", "redis"),
        ("list --store postgresql://localhost/fairlead", "postgres"),
        ("list --store http://localhost", "client"),
        ("list --store redis://localhost --journal postgresql://localhost/fairlead", "redis,postgres"),
        ("rebuild --store redis://localhost --journal postgresql://localhost/fairlead", "redis,postgres"),
        ("migrate postgresql://localhost/fairlead", "postgres"),
        ("serve", "server"),
    ],
)
@pytest.mark.parametrize("extra", [""], indirect=True, ids=["bare"])
def test_what_needs_an_extra_says_so_with_the_command_that_installs_it(place: Place, command: str, needed: str) -> None:
    assert f"pip install 'fairlead[{needed}]'" in place.refused(*command.split())


@pytest.mark.parametrize("extra", [""], indirect=True, ids=["bare"])
def test_a_package_that_is_missing_is_an_error_in_json_too(place: Place) -> None:
    said = json.loads(place.refused("migrate", "postgresql://localhost/fairlead", "--json"))

    assert "pip install 'fairlead[postgres]'" in json.dumps(said)


@pytest.mark.parametrize("extra", [""], indirect=True, ids=["bare"])
def test_what_stores_are_tested_with_says_which_extra_it_needs(place: Place) -> None:
    code = "try: import fairlead.testing.contract\nexcept ModuleNotFoundError as error: print(error)"

    assert "pip install 'fairlead[testing]'" in place.python("-c", code)
