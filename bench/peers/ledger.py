"""What was measured: figures as they come, and what they come to."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from msgspec import Struct

OURS = "fairlead"


class Figure(Struct, frozen=True):
    """One measured number."""

    round: int
    server: str
    work: str
    contestant: str
    value: float


class Summary(Struct, frozen=True):
    """Several runs of the same."""

    median: float
    least: float
    most: float
    runs: int

    @property
    def spread(self) -> float:
        """Half the distance of the extremes, as a share of the median."""
        return (self.most - self.least) / 2 / self.median if self.median else 0.0


def summed(values: Iterable[float]) -> Summary:
    """The median and the extremes."""
    ordered = sorted(values)
    return Summary(statistics.median(ordered), ordered[0], ordered[-1], len(ordered))


class Ledger:
    """All figures of one run, in the order in which they were measured."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []

    def note(self, figure: Figure) -> None:
        self.figures.append(figure)

    def servers(self) -> list[str]:
        return list(dict.fromkeys(figure.server for figure in self.figures))

    def works(self, server: str) -> list[str]:
        return list(dict.fromkeys(figure.work for figure in self.figures if figure.server == server))

    def contestants(self, server: str, work: str | None = None) -> list[str]:
        """Who was measured there, in the order of their first figure."""
        return list(
            dict.fromkeys(
                figure.contestant for figure in self.figures if figure.server == server and work in (None, figure.work)
            )
        )

    def summary(self, server: str, work: str, contestant: str) -> Summary | None:
        """What came of some work; None if it was not measured."""
        found = [figure.value for _, figure in self._runs(server, work, contestant)]
        return summed(found) if found else None

    def ratios(self, server: str, work: str, peer: str, peers_work: str) -> Summary | None:
        """Our figure over a peer's, run by run.

        Each run of the peer is compared with that run of ours of the same round which is nearest to it, so that a
        machine whose speed drifts hurts both alike. None if there is no such pair.
        """
        ours = self._runs(server, work, OURS)
        ratios = []
        for at, theirs in self._runs(server, peers_work, peer):
            beside = [(abs(at - where), figure) for where, figure in ours if figure.round == theirs.round]
            if beside and theirs.value:
                ratios.append(min(beside, key=lambda one: one[0])[1].value / theirs.value)
        return summed(ratios) if ratios else None

    def _runs(self, server: str, work: str, contestant: str) -> list[tuple[int, Figure]]:
        wanted = (server, work, contestant)
        return [
            (at, figure)
            for at, figure in enumerate(self.figures)
            if (figure.server, figure.work, figure.contestant) == wanted
        ]
