"""`python -m bench.peers`: the same work on fairlead and on its peers, side by side, as ratios.

Every round asks every contestant in turn, and fairlead again beside each peer that it is to be compared with, so that a
slow minute of the machine does not decide. Redis runs without persistence, PostgreSQL and SQLite durably. What cannot
be installed or fails is reported, with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from bench.peers import alone
from bench.peers.contest import contesting
from bench.peers.environments import OURS, PEERS, ROOT, Contestant, Environment, Missing
from bench.peers.kinds import KINDS, QUICK, Amounts, Kind
from bench.peers.processes import Failed
from bench.peers.reporting import Report
from bench.peers.servers import Servers
from bench.peers.targets import OBSERVED, rivals

FOLDER: Final = ROOT / "build" / "peers"
BYTES: Final = "bytes per waiting task"
CEILINGS: Final = "ceilings"
GROWTH: Final = "claim + settle"
STARVATION: Final = "starvation"
WRK: Final = "submit by wrk"
_STORES: Final = ("redis", "postgresql", "sqlite")


class Driver:
    """One run."""

    def __init__(self, servers: Servers, report: Report, amounts: Amounts, wanted: tuple[str, ...]) -> None:
        self._servers = servers
        self._report = report
        self._amounts = amounts
        self._wanted = wanted
        self._contestants: list[Environment] = []
        self._skipped: set[tuple[str, str]] = set()
        """Who cannot do what, or failed at it: it is not tried again."""

    def prepare(self, chosen: list[Contestant]) -> None:
        """Install those that can be had; the others are reported as missing."""
        for contestant in chosen:
            try:
                environment = Environment(contestant, FOLDER)
                with self._servers.empty(contestant.server) as url, contesting(environment, url) as contest:
                    self._report.has(contestant, str(contest.ask("version")))
                self._contestants.append(environment)
            except (Missing, Failed) as error:
                self._report.remark(f"{contestant.label} is missing: {error}")

    def wants(self, work: str) -> bool:
        return work.startswith(self._wanted)

    def run_round(self, turn: int) -> None:
        """Each kind of work in turn, on every contestant in turn."""
        for kind in KINDS:
            if self.wants(kind.name):
                for server in dict.fromkeys(one.contestant.server for one in self._contestants):
                    self._run_kind(turn, kind, server)
        if self.wants(BYTES) and turn == 0:
            for environment in self._contestants:
                if environment.contestant.server in _STORES:
                    self._weigh(environment)

    def _run_kind(self, turn: int, kind: Kind, server: str) -> None:
        contestants = [one for one in self._contestants if one.contestant.server == server]
        if server not in kind.servers or not contestants:
            return
        ours, *peers = contestants
        if kind.once and turn:
            peers = []
        again = rivals(server, kind.name, [one.contestant.name for one in peers])
        # Ours has just run beside the first of them.
        peers.sort(key=lambda one: one.contestant.name not in again)
        for at, environment in enumerate([ours, *peers]):
            if at > 1 and environment.contestant.name in again:
                self._run(turn, kind, ours)
            self._run(turn, kind, environment)

    def _run(self, turn: int, kind: Kind, environment: Environment) -> None:
        contestant = environment.contestant

        def run() -> None:
            with self._servers.empty(contestant.server) as url, contesting(environment, url) as contest:
                figures = kind.run(contest, self._amounts)
            self._report.note(turn, contestant.server, contestant.name, kind.name, figures)
            if set(figures.values()) == {None}:
                self._skipped.add((contestant.label, kind.name))

        self.attempt(contestant.label, kind.name, run)

    def _weigh(self, environment: Environment) -> None:
        contestant = environment.contestant
        count = self._amounts.submitted(self._amounts.waiting, contestant)

        def run() -> None:
            with self._servers.empty(contestant.server) as url, contesting(environment, url) as contest:
                weight = contest.bytes_waiting(count, lambda: self._servers.size(contestant.server, url))
            self._report.note(0, contestant.server, contestant.name, BYTES, {"": weight})

        self.attempt(contestant.label, BYTES, run)

    def attempt(self, who: str, work: str, run: Callable[[], None]) -> None:
        """Have some work done; what fails is reported and not tried again, and the rest goes on."""
        if (who, work) in self._skipped:
            return
        try:
            run()
        except Failed as error:
            self._give_up(who, work, str(error))
        except Exception as error:
            # Half an hour of figures is not to be lost for one.
            self._give_up(who, work, f"{type(error).__name__}: {error}")

    def _give_up(self, who: str, work: str, why: str) -> None:
        self._skipped.add((who, work))
        self._report.remark(f"{who} failed at “{work}”: {why}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, for a first impression")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", help="a contestant, by name; may be repeated; fairlead always runs")
    parser.add_argument("--server", action="append", help="redis, postgresql, sqlite or http; may be repeated")
    parser.add_argument("--work", action="append", help="a kind of work, by how its name begins; may be repeated")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "peers-report")
    arguments = parser.parse_args()
    chosen = [
        contestant
        for contestant in (*OURS, *PEERS)
        if (not arguments.only or contestant.name in ("fairlead", *arguments.only))
        and (not arguments.server or contestant.server in arguments.server)
    ]
    rounds = 1 if arguments.quick else max(1, arguments.rounds)
    with contextlib.ExitStack() as stack:
        servers = Servers(stack)
        amounts = QUICK if arguments.quick else Amounts()
        whole = not (arguments.only or arguments.server or arguments.work)
        report = Report(amounts, servers.versions, whole=whole)
        driver = Driver(servers, report, amounts, tuple(arguments.work or ("",)))
        try:
            driver.prepare(chosen)
            measure(driver, report, servers, {one.server for one in chosen}, rounds, quick=arguments.quick)
        finally:
            # What was measured before someone lost patience, too.
            report.save(arguments.output)
            report.show()


def measure(driver: Driver, report: Report, servers: Servers, chosen: set[str], rounds: int, *, quick: bool) -> None:
    """All rounds, and what is measured of fairlead and of the servers alone."""
    single, waiting = (200, 5_000) if quick else (2_000, 20_000)
    seconds = 2 if quick else alone.SECONDS_OF_HTTP // rounds
    stores = [server for server in _STORES if server in chosen]
    for turn in range(rounds):
        driver.run_round(turn)
        if driver.wants(WRK) and "http" in chosen:
            driver.attempt("fairlead", WRK, partial(alone.over_http, report, servers, turn, seconds))
        if driver.wants(CEILINGS):
            for server in stores:
                bare = partial(alone.ceilings, report, servers, turn, server, single=single, waiting=waiting)
                driver.attempt(server, CEILINGS, bare)
    if driver.wants(GROWTH):
        backlogs, repeats = ((10_000, 50_000), 2) if quick else ((10_000, 100_000, 1_000_000), 7)
        for server in stores:
            driver.attempt(server, GROWTH, partial(alone.growth, report, servers, server, backlogs, repeats))
    if driver.wants(OBSERVED) and "sqlite" in chosen:
        driver.attempt("fairlead", OBSERVED, partial(alone.observed, report, servers, "sqlite", 1 if quick else 21))
    if driver.wants(STARVATION):
        driver.attempt("fairlead", STARVATION, partial(alone.starvation, report, servers))


if __name__ == "__main__":
    main()
