"""What Debian's packages hold, without root and without installing them.

Programs are fetched once, into a cache folder, with the libraries that they need and this machine has not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, NoReturn

import pytest

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairlead-tests"
_FETCH_WITHIN: Final = 300.0


def program(name: str, package: str) -> Path | None:
    """A program: from PATH, or taken out of a package; None when it cannot be had."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    return Path(found) if found else fetched(name, package)


def fetched(name: str, package: str) -> Path | None:
    """A program out of a package; None when it cannot be had."""
    try:
        return _fetched(name, package)
    except (OSError, subprocess.SubprocessError):
        return None


def missing(reason: str) -> NoReturn:
    """Skip the test for want of a program; fail in CI, where all are to be had."""
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(reason)
    pytest.skip(reason)


def _fetched(name: str, package: str) -> Path:
    script = CACHE / package / name
    if script.exists():
        return script
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fl-packages-") as folder, tempfile.TemporaryDirectory(dir=CACHE) as made:
        content = Path(made) / package
        unpack(Path(folder), content, package, needed=True)
        binary = next(path for path in (content / "usr/bin" / name, content / "usr/sbin" / name) if path.exists())
        libraries = ":".join(f"$here/{path.relative_to(content)}" for path in content.glob("**/lib/*-linux-gnu*"))
        start = f'here=$(dirname "$0")\nLD_LIBRARY_PATH="{libraries}" exec "$here/{binary.relative_to(content)}" "$@"\n'
        (content / name).write_text(f"#!/bin/sh\n{start}")
        (content / name).chmod(0o755)
        # In one step: several test processes may fetch it at once, and the first one's will do.
        if not script.exists():
            content.rename(script.parent)
    return script


def unpack(folder: Path, content: Path, *names: str, needed: bool = False) -> None:
    """Fetch packages into a folder of the caller's, and take all they hold out of them.

    With `needed`, the packages that they need and this machine has not come too. Raises OSError or
    subprocess.SubprocessError where that is not possible.
    """
    try:
        _fetch(folder, names, needed)
    except subprocess.SubprocessError:
        # A machine whose lists of packages are gone, as in most images: read them into a folder of our own.
        (folder / "lists/partial").mkdir(parents=True)
        options = ("-o", f"Dir::State::lists={folder}/lists")
        (folder / "cache/archives/partial").mkdir(parents=True, exist_ok=True)
        _apt(folder, *options, "update")
        _fetch(folder, names, needed, *options)
    content.mkdir(parents=True, exist_ok=True)
    for package in (*folder.glob("*.deb"), *folder.glob("cache/archives/*.deb")):
        _run(folder, "dpkg", "-x", str(package), str(content))


def _fetch(folder: Path, names: tuple[str, ...], needed: bool, *options: str) -> None:
    if not needed:
        _apt(folder, *options, "download", *names)
        return
    (folder / "cache/archives/partial").mkdir(parents=True, exist_ok=True)
    # It would install nothing, and locks nothing: that is root's.
    kept = ("-o", "Debug::NoLocking=1", "--download-only", "--no-install-recommends", "--yes")
    _apt(folder, *options, *kept, "install", *names)


def _apt(folder: Path, *arguments: str) -> None:
    # Root's apt would give up its rights to a user who cannot write here.
    _run(folder, "apt-get", "-q", "-o", "APT::Sandbox::User=", "-o", f"Dir::Cache={folder}/cache", *arguments)


def _run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=_FETCH_WITHIN)
