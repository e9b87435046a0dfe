"""Nothing but the packages that need an extra imports what the extra brings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from fairlead.core.extras import EXTRAS, extra_of, install, told

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src"

OWN: Final = {
    "fairlead.storage.redis": ("redis",),
    "fairlead.storage.postgres": ("postgres",),
    "fairlead.storage.journal": ("redis", "postgres"),
    "fairlead.server": ("server",),
    "fairlead.testing": ("testing",),
    # Nobody imports it but pytest.
    "fairlead.app.pytest_plugin": ("testing",),
}
"""The packages whose modules may import what an extra brings when they are imported themselves."""

IMPORT_WITHOUT: Final = """
import importlib, json, sys

missing, modules = json.load(sys.stdin)

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
for module in modules:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        print(f"{module} imports {error.name}")
"""


def modules() -> list[str]:
    """Every module of fairlead but the one that runs the program as soon as it is imported."""
    files = sorted((SOURCE / "fairlead").rglob("*.py"))
    names = [".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for file in files]
    return [name for name in names if name != "fairlead.__main__"]


def owner(module: str) -> str | None:
    return next((package for package in OWN if f"{module}.".startswith(f"{package}.")), None)


def refused(importing: list[str], *, extras: tuple[str, ...]) -> str:
    """What the modules miss, each that misses something on a line, where these extras alone are installed."""
    brought = {package for extra in extras for package in EXTRAS[extra]}
    missing = [package for packages in EXTRAS.values() for package in packages if package not in brought]
    imported = subprocess.run(
        [sys.executable, "-c", IMPORT_WITHOUT],
        input=json.dumps([missing, importing]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert imported.returncode == 0, imported.stderr
    return imported.stdout


def test_nothing_outside_the_packages_of_the_extras_needs_an_extra_to_be_imported() -> None:
    assert refused([module for module in modules() if owner(module) is None], extras=()) == ""


@pytest.mark.parametrize("package", OWN)
def test_a_package_of_an_extra_is_imported_with_its_extra_alone(package: str) -> None:
    assert refused([module for module in modules() if owner(module) == package], extras=OWN[package]) == ""


def test_every_extra_is_in_the_table_with_the_packages_that_it_brings() -> None:
    declared: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    (everything,) = declared.pop("all")
    assert everything == f"fairlead[{','.join(declared)}]"
    assert list(EXTRAS) == list(declared)
    # uvloop makes the server quicker where there is one; nothing needs it.
    optional = {"server": {"uvloop"}}
    for extra, requirements in declared.items():
        brought = {
            re.split(r"[\[>]", requirement)[0].removesuffix("-api").replace("-", "_") for requirement in requirements
        }
        assert brought - optional.get(extra, set()) == set(EXTRAS[extra])


def test_what_is_missing_is_told_with_the_command_that_installs_it() -> None:
    missing = ModuleNotFoundError("No module named 'psycopg.sql'", name="psycopg.sql")
    assert extra_of(missing) == "postgres"
    assert told(missing, "this") == "this needs the package 'psycopg'; pip install 'fairlead[postgres]'"
    assert install("redis", "postgres") == "pip install 'fairlead[redis,postgres]'"


def test_of_a_package_that_several_extras_bring_the_one_that_is_needed_is_told() -> None:
    missing = ModuleNotFoundError("No module named 'httptools'", name="httptools")
    assert (told(missing, "this", "client") or "").endswith("pip install 'fairlead[client]'")
    assert (told(missing, "this", "server") or "").endswith("pip install 'fairlead[server]'")


def test_a_module_of_no_extra_is_not_told_as_one() -> None:
    assert told(ModuleNotFoundError("No module named 'mine'", name="mine"), "this") is None
    assert told(ModuleNotFoundError("a module that does not say its name"), "this") is None
