"""What figures come to: medians, ratios of neighbouring runs, and whether targets are met."""

from __future__ import annotations

import pytest

from bench.peers.ledger import Figure, Ledger
from bench.peers.targets import BEST, BEST_PYTHON, RATIOS, TARGETS, Target, judged, rivals


def ledger(*figures: tuple[int, str, float], work: str = "run") -> Ledger:
    """Figures on Redis, as round, contestant and value, in the order in which they were measured."""
    noted = Ledger()
    for turn, contestant, value in figures:
        noted.note(Figure(turn, "redis", work, contestant, value))
    return noted


PEERS = ledger((0, "fairlead", 900.0), (0, "Huey", 100.0), (0, "RQ", 300.0), (0, "BullMQ", 450.0))


@pytest.mark.parametrize(
    ("against", "peer", "ratio"), [("Huey", "Huey", 9.0), (BEST_PYTHON, "RQ", 3.0), (BEST, "BullMQ", 2.0)]
)
def test_we_are_compared_with_whom_a_target_names(against: str, peer: str, ratio: float) -> None:
    verdict = judged(PEERS, Target("redis", "run", 2.5, against))
    assert verdict.measured is not None
    assert (verdict.peer, verdict.measured.median) == (peer, ratio)
    assert verdict.reached is (ratio >= 2.5)


def test_less_is_better_where_a_target_says_so() -> None:
    verdict = judged(PEERS, Target("redis", "run", 1.0, BEST, at_most=True))
    assert verdict.peer == "Huey" and verdict.reached is False


@pytest.mark.parametrize(
    "target", [Target("sqlite", "run", 1.0, "Huey"), Target("redis", "run", 1.0, "SAQ"), Target("redis", "idle", 45)]
)
def test_what_was_not_measured_is_not_judged(target: Target) -> None:
    verdict = judged(PEERS, target)
    assert verdict.measured is None and verdict.reached is None


def test_a_target_without_a_peer_is_judged_by_our_median() -> None:
    verdict = judged(
        ledger((0, "fairlead", 0.4), (1, "fairlead", 0.7), (2, "fairlead", 0.5)), Target("redis", "run", 0.5)
    )
    assert verdict.measured is not None and verdict.measured.median == 0.5
    assert (verdict.measured.least, verdict.measured.most, verdict.reached) == (0.4, 0.7, True)


def test_a_ratio_is_the_median_of_the_ratios_of_neighbouring_runs() -> None:
    """A machine that slows down to a tenth hurts both alike; the ratio of medians would read 0.2."""
    drifting = ledger(
        (0, "fairlead", 1_000.0), (0, "RQ", 500.0), (1, "fairlead", 100.0), (1, "RQ", 500.0 / 10), (2, "RQ", 500.0)
    )
    ratios = drifting.ratios("redis", "run", "RQ", "run")
    assert ratios is not None
    assert (ratios.median, ratios.least, ratios.most, ratios.runs) == (2.0, 2.0, 2.0, 2)


def test_of_several_runs_of_ours_in_a_round_the_nearest_counts() -> None:
    again = ledger((0, "fairlead", 10.0), (0, "SAQ", 1.0), (0, "fairlead", 30.0), (0, "RQ", 1.0))
    saq, rq = (again.ratios("redis", "run", peer, "run") for peer in ("SAQ", "RQ"))
    assert saq is not None and rq is not None
    assert (saq.median, rq.median) == (10.0, 30.0)


def test_a_peer_may_be_compared_by_other_work() -> None:
    noted = ledger((0, "Huey", 100.0), work="one by one")
    noted.note(Figure(0, "redis", "at once", "fairlead", 600.0))
    verdict = judged(noted, Target("redis", "at once", 5.0, "Huey", "one by one"))
    assert verdict.measured is not None and verdict.measured.median == 6.0


def test_a_spread_is_half_the_distance_of_the_extremes() -> None:
    summary = ledger((0, "RQ", 80.0), (1, "RQ", 100.0), (2, "RQ", 140.0)).summary("redis", "run", "RQ")
    assert summary is not None and (summary.median, summary.spread) == (100.0, 0.3)


def test_we_run_again_beside_the_peers_that_targets_name() -> None:
    peers = ["Huey", "SAQ", "BullMQ"]
    assert rivals("redis", "submit by 50 at once", peers) == {"SAQ", "BullMQ"}
    assert rivals("redis", "submit by 50 at once", ["Huey", "SAQ"]) == {"SAQ"}
    assert rivals("redis", "latency", peers) == set(peers)
    assert rivals("postgresql", "latency", ["PgQueuer", "Procrastinate"]) == {"PgQueuer"}
    assert rivals("sqlite", "idle worker", ["Huey"]) == frozenset()


def test_no_target_is_there_twice() -> None:
    assert len(set(TARGETS)) == len(TARGETS) > len(RATIOS)
