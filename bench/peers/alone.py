"""What is measured of fairlead alone: how cost grows, what its server takes, and whether a task starves."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Final

from bench import queueing
from bench.ceilings import postgresql, redis, sqlite
from bench.peers.environments import Missing
from bench.peers.ledger import OURS
from bench.peers.programs import program
from bench.peers.reporting import Report
from bench.peers.servers import Servers
from bench.peers.targets import OBSERVED, PASSED
from bench.serving import Wrk, served, submits
from bench.starving import flooded
from bench.working import overhead
from fairlead.core.instant import MINUTE
from fairlead.core.task import Priority
from fairlead.worker.process import _loop_factory

SECONDS_OF_HTTP: Final = 30
"""In all rounds together."""
_FLOODS: Final = ((Priority.HIGH, 60), (Priority.CRITICAL, 90))
"""Which tasks come, and for how many minutes: past the hour that a low task may be passed by critical ones."""


def growth(report: Report, servers: Servers, server: str, backlogs: tuple[int, ...], repeats: int) -> None:
    """The rate of claim and settle as more and more tasks wait."""
    with servers.empty(server) as url, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        store = "sqlite" if server == "sqlite" else url
        rates = runner.run(queueing.backlog_rates(store, repeats, backlogs))
    first, last = backlogs[0], backlogs[-1]
    for turn in range(repeats):
        for backlog in backlogs:
            work = f"claim + settle by {queueing.BATCH} at {backlog:,} waiting"
            report.note(turn, server, OURS, work, {"": rates[backlog][turn]})
        share = rates[last][turn] / rates[first][turn]
        work = f"claim + settle at {last:,} waiting, as a share of the rate at {first:,}"
        report.note(turn, server, OURS, work, {"": share})


def observed(report: Report, servers: Servers, server: str, rounds: int) -> None:
    """What it costs a worker to count and to log."""
    with servers.empty(server) as url:
        for turn, added in enumerate(overhead("sqlite" if server == "sqlite" else url, rounds)):
            report.note(turn, server, OURS, OBSERVED, {"": added})


def over_http(report: Report, servers: Servers, turn: int, seconds: int) -> None:
    """What one server process takes of wrk."""
    try:
        found = program("wrk")
    except Missing as error:
        report.remark(f"wrk is missing: {error}")
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        servers.empty("redis") as store,
        served(store) as (url, process),
    ):
        submitted = submits(url, process, Wrk(str(found), Path(folder)), seconds)
    figures = {
        ", 32 connections": submitted.rate,
        ", 32 connections, p95 ms": submitted.late,
        " in batches of 100": submitted.in_batches,
    }
    report.note(turn, "http", OURS, "submit by wrk", figures)


def starvation(report: Report, servers: Servers) -> None:
    """How low tasks fare in a flood of urgent ones, in virtual time."""
    for store in ("memory", "redis"):
        for urgent, minutes in _FLOODS:
            with servers.empty("redis") as url:
                waits = asyncio.run(flooded("memory://" if store == "memory" else url, urgent, minutes))
            about = f"{store}, a flood of {urgent.word}"
            report.note(
                0, "virtual time", OURS, f"{about}: longest wait of a low task, min", {"": waits.longest / MINUTE}
            )
            passed = PASSED.format(store=store, urgent=urgent.word)
            report.note(0, "virtual time", OURS, passed, {"": waits.passed / MINUTE})


def ceilings(report: Report, servers: Servers, turn: int, server: str, *, single: int, waiting: int) -> None:
    """What a server does with no queue in front of it."""
    with servers.empty(server) as url:
        match server:
            case "redis":
                port = servers.redis.port
                report.bound(turn, server, redis.scripts_alone(port, servers.flush, single=single, waiting=waiting))
                try:
                    report.bound(turn, server, redis.server_alone(program("redis-benchmark"), port, 10 * waiting))
                except Missing as error:
                    report.remark(f"redis-benchmark is missing: {error}")
            case "postgresql":
                report.bound(turn, server, asyncio.run(postgresql.measure(url, single=single, waiting=waiting)))
            case _:
                path = url.removeprefix("sqlite:///")
                report.bound(turn, server, sqlite.measure(path, single=single, waiting=waiting))
