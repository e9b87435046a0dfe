"""What is to be reached: against the peers within one run, and by ourselves."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from msgspec import Struct

from bench.peers.ledger import OURS, Ledger, Summary
from fairlead.core.instant import MINUTE
from fairlead.core.queues.order import Promote
from fairlead.core.task import Priority

BEST: Final = "the best peer"
BEST_PYTHON: Final = "the best Python peer"
NOT_PYTHON: Final = frozenset({"BullMQ"})


class Target(Struct, frozen=True):
    """What our figure for some work on one kind of server is to be: a share of a peer's, or a number."""

    server: str
    work: str
    bound: float
    against: str | None = None
    """A peer, or BEST or BEST_PYTHON; None for a target without a peer."""
    against_work: str | None = None
    """The peer's work, if it is not the same."""
    at_most: bool = False

    @property
    def peers_work(self) -> str:
        return self.against_work or self.work


RATIOS: Final = (
    Target("redis", "submit one by one", 1.2, "Huey"),
    Target("redis", "submit by 50 at once", 2.5, "SAQ"),
    Target("redis", "submit by 50 at once", 1.3, "BullMQ"),
    Target("redis", "submit in bulk of 1,000", 4.0, "RQ"),
    Target("redis", "submit in bulk of 1,000", 2.2, "BullMQ"),
    Target("redis", "run, 1 process", 7.0, BEST_PYTHON),
    Target("redis", "run, 1 process", 1.5, "BullMQ"),
    Target("redis", "run, 2 processes", 5.0, BEST_PYTHON),
    Target("redis", "run, 2 processes", 2.5, "BullMQ"),
    Target("redis", "latency, p50 ms", 1.0, BEST, at_most=True),
    Target("redis", "latency, p99 ms", 1.0, BEST, at_most=True),
    Target("postgresql", "submit one by one, awaited", 1.2, "PgQueuer"),
    Target("postgresql", "submit by 50 at once", 5.0, "PgQueuer"),
    Target("postgresql", "submit in bulk of 1,000", 1.3, "PgQueuer"),
    Target("postgresql", "run, 1 process", 1.3, "PgQueuer"),
    Target("postgresql", "run, 2 processes", 1.2, "PgQueuer"),
    Target("postgresql", "latency, p50 ms", 1.0, "PgQueuer", at_most=True),
    Target("postgresql", "latency, p99 ms", 1.0, "PgQueuer", at_most=True),
    Target("sqlite", "submit one by one", 1.0, "Huey"),
    Target("sqlite", "submit by 50 at once", 5.0, "Huey", "submit one by one"),
    Target("sqlite", "run, 1 process", 5.0, "Huey"),
    Target("sqlite", "run, 2 processes", 5.0, "Huey"),
)
_STORES: Final = ("redis", "postgresql", "sqlite")
GROWTH: Final = "claim + settle at 1,000,000 waiting, as a share of the rate at 10,000"
OBSERVED: Final = "CPU that metrics and logs at INFO add to a worker, %"
PROMISED: Final = Promote().bound(Priority.LOW) / MINUTE
"""Minutes for which newer tasks may pass a low one, by the order of service."""
PASSED: Final = "{store}, a flood of {urgent}: minutes for which newer tasks passed a low one"
ALONE: Final = (
    *(Target(server, "low before the last high", 0, at_most=True) for server in _STORES),
    *(Target(server, GROWTH, 0.8) for server in _STORES),
    *(Target(server, "run, 1 process, CPU s per 10,000", 0.5, at_most=True) for server in _STORES),
    *(Target(server, "idle worker, MB with its children (Pss)", 45, at_most=True) for server in _STORES),
    *(Target(server, "idle worker, MB of its process (RSS)", 45, at_most=True) for server in _STORES),
    *(Target(server, "idle worker, % of a core", 0.5, at_most=True) for server in _STORES),
    Target("sqlite", "submit in bulk of 1,000", 40_000),
    Target("sqlite", "claim + settle by 100 at 10,000 waiting", 25_000),
    Target("sqlite", "latency, p50 ms", 5, at_most=True),
    Target("sqlite", OBSERVED, 10, at_most=True),
    Target("http", "submit by wrk, 32 connections", 10_000),
    Target("http", "submit by wrk, 32 connections, p95 ms", 10, at_most=True),
    Target("http", "submit by wrk in batches of 100", 30_000),
    *(
        Target("virtual time", PASSED.format(store=store, urgent=urgent), PROMISED, at_most=True)
        for store in ("memory", "redis")
        for urgent in ("high", "critical")
    ),
)
TARGETS: Final = (*RATIOS, *ALONE)


class Verdict(Struct, frozen=True):
    """How a target was met."""

    target: Target
    measured: Summary | None
    """Our figure, or the ratio; None if it was not measured."""
    peer: str | None = None
    """Whom we were compared with."""

    @property
    def reached(self) -> bool | None:
        if self.measured is None:
            return None
        value, bound = self.measured.median, self.target.bound
        return value <= bound if self.target.at_most else value >= bound


def judged(ledger: Ledger, target: Target) -> Verdict:
    """How a target was met; of several peers, against the one whose median is best."""
    if target.against is None:
        return Verdict(target, ledger.summary(target.server, target.work, OURS))
    medians = {
        name: found.median
        for name in ledger.contestants(target.server, target.peers_work)
        if _counts(target.against, name) and (found := ledger.summary(target.server, target.peers_work, name))
    }
    if not medians:
        return Verdict(target, None)
    best: Callable[..., str] = min if target.at_most else max
    peer = best(medians, key=lambda name: medians[name])
    return Verdict(target, ledger.ratios(target.server, target.work, peer, target.peers_work), peer)


def rivals(server: str, work: str, peers: Collection[str]) -> frozenset[str]:
    """Those of the peers with whom targets for this work compare us: we are run again beside each.

    Not beside every Python peer for the best of them: there the targets are several times its figure.
    """
    against = {target.against for target in RATIOS if target.server == server and target.work.startswith(work)}
    return frozenset(name for name in peers if BEST in against or name in against)


def _counts(against: str, name: str) -> bool:
    if name == OURS:
        return False
    if against == BEST:
        return True
    return name not in NOT_PYTHON if against == BEST_PYTHON else name == against
