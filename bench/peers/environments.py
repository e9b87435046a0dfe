"""An environment for each peer: what it needs, apart from all others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from msgspec import Struct

ADAPTERS: Final = Path(__file__).with_name("adapters")
ROOT: Final = Path(__file__).parents[2]


class Contestant(Struct, frozen=True):
    """A queue on a kind of server."""

    name: str
    adapter: str
    server: str
    """redis, postgresql, sqlite, or http: fairlead's own server."""
    packages: tuple[str, ...] = ()
    settings: str = ""
    """How it is set up, in a few words for the report."""
    submits: float = 1.0
    """How much of the full amount it submits when it fills a queue: less, where that would take long."""
    runs: float = 1.0
    """How much of the full amount it runs."""

    @property
    def label(self) -> str:
        return f"{self.name} ({self.server})"


_DEFAULTS: Final = "defaults: results, history and fencing on"
OURS: Final = (
    Contestant("fairlead", "on_fairlead.py", "redis", settings=_DEFAULTS),
    Contestant("fairlead", "on_fairlead.py", "postgresql", settings=_DEFAULTS),
    Contestant("fairlead", "on_fairlead.py", "sqlite", settings=f"{_DEFAULTS}, synchronous=FULL"),
    Contestant(
        "fairlead",
        "on_fairlead.py",
        "http",
        settings="client and worker over HTTP, one server on Redis",
        submits=0.2,
        runs=0.25,
    ),
)
PEERS: Final = (
    Contestant("BullMQ", "on_bullmq.mjs", "redis", ("bullmq", "ioredis"), "Node, concurrency 100"),
    Contestant("Huey", "on_huey.py", "redis", ("huey", "redis", "hiredis"), "4 threads", submits=0.4, runs=0.1),
    Contestant(
        "Taskiq",
        "on_taskiq.py",
        "redis",
        ("taskiq", "taskiq-redis", "hiredis", "uvloop"),
        "streams by 100, 200 tasks, prefetch 200",
        submits=0.2,
        runs=0.1,
    ),
    Contestant(
        "Dramatiq",
        "on_dramatiq.py",
        "redis",
        ("dramatiq[redis]", "hiredis"),
        "8 threads, prefetch 500",
        submits=0.2,
        runs=0.2,
    ),
    Contestant(
        "SAQ",
        "on_saq.py",
        "redis",
        ("saq[redis]", "typing_extensions", "hiredis", "uvloop"),
        "concurrency 100",
        submits=0.2,
        runs=0.1,
    ),
    Contestant(
        "RQ", "on_rq.py", "redis", ("rq", "hiredis"), "SimpleWorker, which does not fork", submits=0.2, runs=0.025
    ),
    Contestant("streaQ", "on_streaq.py", "redis", ("streaq", "uvloop"), "concurrency 16", submits=0.4, runs=0.1),
    Contestant(
        "arq", "on_arq.py", "redis", ("arq", "hiredis", "uvloop"), "100 jobs, poll delay 10 ms", submits=0.1, runs=0.075
    ),
    Contestant(
        "Celery",
        "on_celery.py",
        "redis",
        ("celery[redis]", "hiredis"),
        "8 threads, prefetch 64 each",
        submits=0.1,
        runs=0.05,
    ),
    Contestant(
        "PgQueuer",
        "on_pgqueuer.py",
        "postgresql",
        ("pgqueuer[asyncpg]", "uvloop"),
        "batches of 100; keeps no results",
    ),
    Contestant(
        "Procrastinate",
        "on_procrastinate.py",
        "postgresql",
        ("procrastinate", "psycopg[binary]", "uvloop"),
        "concurrency 100",
        submits=0.4,
        runs=0.02,
    ),
    Contestant("Huey", "on_huey.py", "sqlite", ("huey", "redis", "hiredis"), "4 threads, fsync", submits=0.2, runs=0.1),
)
"""The quickest first: what is best is then measured soon after ours."""


class Missing(Exception):
    """A peer that cannot be had here, and why."""


class Environment:
    """Where a contestant's adapter runs."""

    def __init__(self, contestant: Contestant, folder: Path) -> None:
        self.contestant = contestant
        self._folder = folder / contestant.adapter.partition(".")[0]
        if contestant.adapter.endswith(".mjs"):
            self._program = [_prepare_node(contestant, self._folder)]
            self._adapter = self._folder / contestant.adapter
        else:
            self._program = [_prepare_python(contestant, self._folder)]
            self._adapter = ADAPTERS / contestant.adapter

    def command(self, *arguments: object) -> list[str]:
        """The command line that has the adapter do something."""
        return [*self._program, str(self._adapter), *map(str, arguments)]


def _prepare_python(contestant: Contestant, folder: Path) -> str:
    if not contestant.packages:
        return sys.executable
    python = folder / "bin" / "python"
    if not _holds(folder, contestant):
        shutil.rmtree(folder, ignore_errors=True)
        uv = str(ROOT / "scripts" / "uv")
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        _run([uv, "pip", "install", "--quiet", "--python", str(python), *contestant.packages])
        _note(folder, contestant)
    return str(python)


def _prepare_node(contestant: Contestant, folder: Path) -> str:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Missing("node and npm are not on PATH")
    folder.mkdir(parents=True, exist_ok=True)
    # Node looks for packages beside the program.
    shutil.copy(ADAPTERS / contestant.adapter, folder)
    if not _holds(folder, contestant):
        _run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), *contestant.packages])
        _note(folder, contestant)
    return node


def _holds(folder: Path, contestant: Contestant) -> bool:
    """Whether all that the contestant needs has been installed there."""
    noted = folder / "packages"
    return noted.exists() and noted.read_text().split() == list(contestant.packages)


def _note(folder: Path, contestant: Contestant) -> None:
    (folder / "packages").write_text("\n".join(contestant.packages))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"VIRTUAL_ENV": ""})
    if done.returncode != 0:
        raise Missing((done.stderr.strip() or done.stdout.strip() or "it cannot be installed").splitlines()[-1])
