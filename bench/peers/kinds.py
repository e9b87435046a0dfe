"""The kinds of work, and how much is done of each."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from bench.peers.contest import Contest
from bench.peers.environments import Contestant

Figures: TypeAlias = Mapping[str, float | None]
"""Figures by what follows the name of the work; None is what a contestant cannot do."""


class Amounts(Struct, frozen=True, kw_only=True):
    """How much is done, where nothing makes a contestant do less."""

    one: int = 3_000
    crowd: int = 10_000
    bulk: int = 50_000
    run: int = 40_000
    pace: int = 200
    low: int = 50_000
    high: int = 1_000
    waiting: int = 20_000

    def submitted(self, whole: int, contestant: Contestant) -> int:
        """What a contestant submits of this: whole thousands, and no fewer than one, unless the whole is less."""
        return min(whole, max(1_000, round(whole * contestant.submits / 1_000) * 1_000))

    def ran(self, contestant: Contestant) -> int:
        """What a contestant runs of a full queue."""
        return max(500, round(self.run * contestant.runs / 100) * 100)


QUICK: Final = Amounts(one=300, crowd=1_000, bulk=5_000, run=5_000, pace=30, low=2_000, high=100, waiting=2_000)


class Kind(Struct, frozen=True):
    """One kind of work, which answers figures."""

    name: str
    run: Callable[[Contest, Amounts], Figures]
    once: bool = False
    """It comes out alike every time, so that one round does for peers."""
    servers: frozenset[str] = frozenset({"redis", "postgresql", "sqlite", "http"})


def _one(contest: Contest, amounts: Amounts) -> Figures:
    return {"": contest.rate("one", amounts.submitted(amounts.one, contest.contestant))}


def _one_awaited(contest: Contest, amounts: Amounts) -> Figures:
    return {"": contest.rate("one-async", amounts.submitted(amounts.one, contest.contestant))}


def _crowd(contest: Contest, amounts: Amounts) -> Figures:
    return {"": contest.rate("crowd", amounts.submitted(amounts.crowd, contest.contestant))}


def _bulk(contest: Contest, amounts: Amounts) -> Figures:
    return {"": contest.rate("bulk", amounts.submitted(amounts.bulk, contest.contestant))}


def _drained(contest: Contest, amounts: Amounts, processes: int) -> Figures:
    rate, cost = contest.drain(amounts.ran(contest.contestant), processes)
    return {"": rate, ", CPU s per 10,000": cost}


def _latency(contest: Contest, amounts: Amounts) -> Figures:
    cuts = statistics.quantiles(contest.latencies(amounts.pace), n=100)
    return {f", p{share} ms": cuts[share - 1] for share in (50, 95, 99)}


def _overtaken(contest: Contest, amounts: Amounts) -> Figures:
    low = amounts.submitted(amounts.low, contest.contestant)
    return {"": contest.overtaken(low, amounts.high)}


def _idle(contest: Contest, amounts: Amounts) -> Figures:
    del amounts
    shared, resident, processor = contest.idle()
    return {", MB with its children (Pss)": shared, ", MB of its process (RSS)": resident, ", % of a core": processor}


_STORES: Final = frozenset({"redis", "postgresql", "sqlite"})
KINDS: Final = (
    Kind("submit one by one", _one),
    Kind("submit one by one, awaited", _one_awaited),
    Kind("submit by 50 at once", _crowd),
    Kind("submit in bulk of 1,000", _bulk),
    Kind("run, 1 process", lambda contest, amounts: _drained(contest, amounts, 1)),
    Kind("run, 2 processes", lambda contest, amounts: _drained(contest, amounts, 2)),
    Kind("latency", _latency),
    Kind("low before the last high", _overtaken, once=True, servers=_STORES),
    Kind("idle worker", _idle, once=True),
)
"""In this order. How many bytes a task takes is asked of the server, and so is not among them."""
