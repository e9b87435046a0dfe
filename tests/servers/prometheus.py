"""Prometheus' promtool for tests, which checks rules and runs their unit tests.

It is the one that TEST_PROMTOOL names, else `promtool` on PATH, else that of Debian's package `prometheus`, which is
fetched once into a cache folder, without root. Where none can be had, tests skip with the reason; with CI=true they
fail.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers.packages import CACHE, missing, unpack


@functools.cache
def promtool() -> Path | None:
    """The program; None when there is none."""
    for candidate in (os.environ.get("TEST_PROMTOOL"), shutil.which("promtool"), CACHE / "promtool"):
        if candidate and Path(candidate).exists():
            return Path(candidate)
    try:
        return _fetch()
    except (OSError, subprocess.SubprocessError):
        return None


def promtool_or_skip() -> Path:
    """The program; skips, or fails in CI, when there is none."""
    if found := promtool():
        return found
    return missing("no promtool here: install Prometheus, put `promtool` on PATH, or name it in TEST_PROMTOOL")


def _fetch() -> Path:
    """Take the program out of Debian's package."""
    with tempfile.TemporaryDirectory(prefix="fl-promtool-") as name:
        folder = Path(name)
        unpack(folder, folder / "package", "prometheus")
        CACHE.mkdir(parents=True, exist_ok=True)
        # In one step: several test processes may fetch it at once.
        with tempfile.NamedTemporaryFile(dir=CACHE, delete=False) as fetched:
            fetched.write((folder / "package/usr/bin/promtool").read_bytes())
        Path(fetched.name).chmod(0o755)
        return Path(fetched.name).rename(CACHE / "promtool")
