"""What is to be reached, as ratios to the peers within one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

OURS: Final = "fairlead"
BEST: Final = "the best peer"
BEST_PYTHON: Final = "the best Python peer"
NOT_PYTHON: Final = frozenset({"BullMQ"})


class Target(Struct, frozen=True):
    """How our figure is to compare with a peer's figure for some work on one kind of server."""

    server: str
    work: str
    ratio: float
    against: str
    against_work: str | None = None
    """The peer's work, if it is not the same."""
    at_most: bool = False


TARGETS: Final = (
    Target("redis", "submit one by one", 1.2, "Huey"),
    Target("redis", "submit by 50 at once", 2.5, "SAQ"),
    Target("redis", "submit by 50 at once", 1.3, "BullMQ"),
    Target("redis", "submit in bulk of 1,000", 4.0, "RQ"),
    Target("redis", "submit in bulk of 1,000", 2.2, "BullMQ"),
    Target("redis", "run, 1 process", 7.0, BEST_PYTHON),
    Target("redis", "run, 1 process", 1.5, "BullMQ"),
    Target("redis", "run, 2 processes", 5.0, BEST_PYTHON),
    Target("redis", "run, 2 processes", 2.5, "BullMQ"),
    Target("redis", "latency, p50", 1.0, BEST, at_most=True),
    Target("redis", "latency, p99", 1.0, BEST, at_most=True),
    Target("postgresql", "submit one by one, awaited", 1.2, "PgQueuer"),
    Target("postgresql", "submit by 50 at once", 5.0, "PgQueuer"),
    Target("postgresql", "submit in bulk of 1,000", 1.3, "PgQueuer"),
    Target("postgresql", "run, 1 process", 1.3, "PgQueuer"),
    Target("postgresql", "run, 2 processes", 1.2, "PgQueuer"),
    Target("postgresql", "latency, p50", 1.0, "PgQueuer", at_most=True),
    Target("postgresql", "latency, p99", 1.0, "PgQueuer", at_most=True),
    Target("sqlite", "submit one by one", 1.0, "Huey"),
    Target("sqlite", "submit by 50 at once", 5.0, "Huey", "submit one by one"),
    Target("sqlite", "run, 1 process", 5.0, "Huey"),
    Target("sqlite", "run, 2 processes", 5.0, "Huey"),
)


class Comparison(Struct, frozen=True):
    """How our figure compares with a peer's."""

    target: Target
    peer: str
    ratio: float

    @property
    def reached(self) -> bool:
        wanted = self.target.ratio
        return self.ratio <= wanted if self.target.at_most else self.ratio >= wanted


Figures = Mapping[tuple[str, str, str], float]
"""Medians by server, work and contestant."""


def compared(figures: Figures, target: Target) -> Comparison | None:
    """How we compare; None if either was not measured."""
    ours = figures.get((target.server, target.work, OURS))
    work = target.against_work or target.work
    peers = {
        name: value
        for (server, done, name), value in figures.items()
        if server == target.server and done == work and name != OURS and _counts(target.against, name)
    }
    if ours is None or not peers:
        return None
    best: Callable[..., str] = min if target.at_most else max
    peer = best(peers, key=lambda name: peers[name])
    return Comparison(target, peer, ours / peers[peer])


def _counts(against: str, name: str) -> bool:
    if against == BEST:
        return True
    return name not in NOT_PYTHON if against == BEST_PYTHON else name == against
