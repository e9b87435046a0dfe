"""The browser of the system: found on this machine, installed where that is possible.

It is the one that TEST_CHROMIUM names, else Chromium or Chrome on PATH, else what apt installs for root. Without one,
tests skip with the reason; with CI=true they fail.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_INSTALL_SECONDS = 300


def binary_or_skip() -> Path:
    """The browser's binary; skips, or fails in CI, when there is none."""
    binary = found() or _installed()
    if binary is not None:
        return binary
    reason = "no Chromium here: install the system's package, or name a binary with TEST_CHROMIUM"
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(reason)
    pytest.skip(reason)


def found() -> Path | None:
    """The browser that is here already; None when there is none."""
    for candidate in (os.environ.get("TEST_CHROMIUM"), *map(shutil.which, _NAMES)):
        if candidate and Path(candidate).exists():
            return Path(candidate)
    return None


@functools.cache
def _installed() -> Path | None:
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return None
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    waiting = ["-o", "DPkg::Lock::Timeout=120"]
    install = [apt, "install", "--yes", "--no-install-recommends", *waiting, "chromium"]
    # A new machine has no lists of packages yet; where there are some they do.
    for command in (install, [apt, "update", *waiting], install):
        try:
            done = subprocess.run(command, env=environment, capture_output=True, timeout=_INSTALL_SECONDS)
        except (subprocess.SubprocessError, OSError):
            return None
        if done.returncode == 0 and command is install:
            break
    return found()
