"""Programs that the bench uses and Debian has: found on this machine, else taken out of packages, without root.

A program that was fetched lies under build/peers with the libraries it needs, behind a small script that knows where
those are. Where none can be had, whoever asked says so in the report.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from bench.peers.environments import ROOT, Missing
from tests.servers.packages import unpack

PROGRAMS: Final = ROOT / "build" / "peers" / "programs"
_PACKAGES: Final = {
    "redis-server": ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1"),
    "redis-benchmark": ("redis-tools", "libjemalloc2", "liblzf1", "libatomic1"),
    "wrk": ("wrk", "libluajit-5.1-2"),
}
_LEAST_REDIS: Final = 7
"""What streaQ asks for."""


def program(name: str) -> Path:
    """The program, from PATH or fetched; raises Missing when it cannot be had."""
    if found := shutil.which(name):
        return Path(found)
    return _fetched(name)


def redis_server() -> Path | None:
    """A server that all contestants can use, of version 7 or newer; None when there is none but the tests' own."""
    if (found := shutil.which("redis-server")) and _major(found) >= _LEAST_REDIS:
        return Path(found)
    try:
        fetched = _fetched("redis-server")
    except Missing:
        return None
    return fetched if _major(str(fetched)) >= _LEAST_REDIS else None


def _major(server: str) -> int:
    said = subprocess.run([server, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v=(\d+)", said)
    return int(found[1]) if found else 0


def _fetched(name: str) -> Path:
    script = PROGRAMS / name
    if not script.exists():
        try:
            _fetch(name, script)
        except (OSError, subprocess.SubprocessError) as error:
            raise Missing(f"{name} is neither on PATH nor to be had from Debian: {error}") from error
    return script


def _fetch(name: str, script: Path) -> None:
    content = PROGRAMS / "content"
    with tempfile.TemporaryDirectory(prefix="fl-packages-") as folder:
        unpack(Path(folder), content, *_PACKAGES[name])
    (libraries,) = (content / "usr" / "lib").glob("*-linux-gnu*")
    script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{libraries}" exec "{content}/usr/bin/{name}" "$@"\n')
    script.chmod(0o755)
