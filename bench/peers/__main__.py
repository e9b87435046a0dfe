"""`python -m bench.peers`: the same work on fairlead and on its peers, side by side, as ratios.

Every round asks every contestant in turn, so that a slow minute of the machine does not decide. Redis runs without
persistence, PostgreSQL and SQLite durably. What cannot be installed or fails is reported, with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench.peers.contest import Contest, Failed, percentile
from bench.peers.environments import OURS, PEERS, ROOT, Contestant, Environment, Missing
from bench.peers.reporting import Report
from tests.servers.postgres import started
from tests.servers.redis import started_single

FOLDER: Final = ROOT / "build" / "peers"


class Size:
    """How much is done of everything."""

    def __init__(self, *, quick: bool) -> None:
        self.one = 300 if quick else 3_000
        self.crowd = 1_000 if quick else 10_000
        self.bulk = 5_000 if quick else 50_000
        self.slow_drain = 1_000 if quick else 10_000
        self.drain = 5_000 if quick else 40_000
        self.pace = 30 if quick else 150
        self.low, self.high = (2_000, 100) if quick else (20_000, 1_000)


QUICK_RUNNERS: Final = frozenset({"fairlead", "BullMQ", "PgQueuer"})
"""Those that run enough tasks a second for a short queue to hide their start."""


def measure(contest: Callable[[], Contest], name: str, size: Size) -> Iterator[tuple[str, Callable[[], object]]]:
    """The work, by name; each call answers its figures."""
    count = size.drain if name in QUICK_RUNNERS else size.slow_drain
    yield "submit one by one", lambda: {"": contest().rate("one", size.one)}
    yield "submit one by one, awaited", lambda: {"": contest().rate("one-async", size.one)}
    yield "submit by 50 at once", lambda: {"": contest().rate("crowd", size.crowd)}
    yield "submit in bulk of 1,000", lambda: {"": contest().rate("bulk", size.bulk)}
    yield "run, 1 process", lambda: _drained(contest(), count, 1)
    yield "run, 2 processes", lambda: _drained(contest(), count, 2)
    yield "latency", lambda: _latency(contest(), size.pace)
    yield "low before the last high", lambda: {"": contest().overtaken(size.low, size.high)}
    yield "idle worker", lambda: dict(zip((", MB", ", % of a core"), contest().idle(), strict=True))


def _drained(contest: Contest, count: int, processes: int) -> dict[str, float]:
    rate, cost = contest.drain(count, processes)
    return {"": rate, ", CPU s per 10,000": cost}


def _latency(contest: Contest, count: int) -> dict[str, float]:
    latencies = contest.latencies(count)
    return {", p50": percentile(latencies, 50), ", p99": percentile(latencies, 99)}


class Servers:
    """The servers that all contestants share; each use starts with an empty one."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=ROOT, prefix=".bench-")))
        self._redis = stack.enter_context(contextlib.contextmanager(started_single)())
        self._postgres = stack.enter_context(contextlib.contextmanager(started)())
        self._files = 0

    def empty(self, kind: str) -> str:
        match kind:
            case "redis":
                self._redis.ask("FLUSHALL")
                return self._redis.url()
            case "postgresql":
                return self._postgres.url(self._postgres.create_database())
            case _:
                self._files += 1
                return f"sqlite:///{self._folder}/tasks-{self._files}.db"


def environments(chosen: list[Contestant], servers: Servers, report: Report) -> list[Environment]:
    """Those that can be had; the others are reported as missing."""
    ready = []
    for contestant in chosen:
        try:
            environment = Environment(contestant, FOLDER)
            contest = Contest(environment, servers.empty(contestant.server))
            report.has(contestant, str(contest.ask("version")))
            ready.append(environment)
        except (Missing, Failed) as error:
            report.lacks(contestant, str(error))
    return ready


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, for a first impression")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", help="a contestant, by name; may be repeated; fairlead always runs")
    parser.add_argument("--server", action="append", help="redis, postgresql or sqlite; may be repeated")
    parser.add_argument("--work", action="append", help="a kind of work, by how its name begins; may be repeated")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "peers-report")
    arguments = parser.parse_args()
    chosen = [
        contestant
        for contestant in (*OURS, *PEERS)
        if (not arguments.only or contestant.name in ("fairlead", *arguments.only))
        and (not arguments.server or contestant.server in arguments.server)
    ]
    report = Report()
    size = Size(quick=arguments.quick)
    with contextlib.ExitStack() as stack:
        servers = Servers(stack)
        contestants = environments(chosen, servers, report)
        for _ in range(1 if arguments.quick else arguments.rounds):
            run_round(contestants, servers, size, report, tuple(arguments.work or ("",)))
    report.show()
    report.save(arguments.output)


def run_round(
    contestants: list[Environment], servers: Servers, size: Size, report: Report, wanted: tuple[str, ...]
) -> None:
    """Each kind of work in turn, on every contestant in turn."""
    work: dict[str, list[tuple[Contestant, Callable[[], object]]]] = defaultdict(list)
    for environment in contestants:
        contestant = environment.contestant

        def contest(environment: Environment = environment) -> Contest:
            return Contest(environment, servers.empty(environment.contestant.server))

        for name, run in measure(contest, contestant.name, size):
            if name.startswith(wanted):
                work[name].append((contestant, run))
    for name, runs in work.items():
        for contestant, run in runs:
            try:
                report.note(contestant, name, run())
            except Failed as error:
                report.failed(contestant, name, str(error))


if __name__ == "__main__":
    main()
