"""The bench of peers, as far as it can be wrong without being slow: what it compares, and how it runs a contestant."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers.contest import Contest, Failed
from bench.peers.drawing import bars
from bench.peers.environments import ADAPTERS, OURS, PEERS, Contestant, Environment
from bench.peers.reporting import Report
from bench.peers.targets import BEST, BEST_PYTHON, Target, compared

FIGURES = {
    ("redis", "run", "fairlead"): 900.0,
    ("redis", "run", "Huey"): 100.0,
    ("redis", "run", "RQ"): 300.0,
    ("redis", "run", "BullMQ"): 450.0,
    ("sqlite", "run", "Huey"): 1_000.0,
}


@pytest.mark.parametrize(
    ("against", "peer", "ratio"), [("Huey", "Huey", 9.0), (BEST_PYTHON, "RQ", 3.0), (BEST, "BullMQ", 2.0)]
)
def test_we_are_compared_with_whom_a_target_names(against: str, peer: str, ratio: float) -> None:
    comparison = compared(FIGURES, Target("redis", "run", 2.5, against))
    assert comparison is not None
    assert (comparison.peer, comparison.ratio) == (peer, ratio)
    assert comparison.reached is (ratio >= 2.5)


def test_less_is_better_where_a_target_says_so() -> None:
    comparison = compared(FIGURES, Target("redis", "run", 1.0, BEST, at_most=True))
    assert comparison is not None and comparison.peer == "Huey" and not comparison.reached


def test_what_was_not_measured_is_not_compared() -> None:
    assert compared(FIGURES, Target("sqlite", "run", 1.0, "Huey")) is None
    assert compared(FIGURES, Target("redis", "run", 1.0, "SAQ")) is None


def test_every_contestant_has_an_adapter() -> None:
    assert {one.adapter for one in (*OURS, *PEERS)} == {
        path.name for path in ADAPTERS.iterdir() if path.name.startswith("on_")
    }


@pytest.mark.slow
def test_a_contestant_is_measured(tmp_path: Path) -> None:
    ours = Contestant("fairlead", "on_fairlead.py", "sqlite")
    contest = Contest(Environment(ours, tmp_path), f"sqlite:///{tmp_path}/tasks.db")
    rate, cost = contest.drain(2_000, processes=1)
    assert rate > 0 and cost > 0
    mixed = Contest(Environment(ours, tmp_path), f"sqlite:///{tmp_path}/mixed.db")
    assert mixed.overtaken(300, 20) == 0


def test_what_a_contestant_cannot_do_is_said(tmp_path: Path) -> None:
    ours = Contestant("fairlead", "on_fairlead.py", "sqlite")
    with pytest.raises(Failed, match="unknown scheme"):
        Contest(Environment(ours, tmp_path), "nowhere://").rate("one", 1)


def test_a_report_has_what_is_missing_too(tmp_path: Path) -> None:
    report = Report()
    ours, theirs, absent = (Contestant(name, "", "redis") for name in ("fairlead", "Huey", "RQ"))
    report.has(ours, "1.0")
    report.lacks(absent, "no network")
    for value in (100.0, 300.0):
        report.note(ours, "submit one by one", {"": value})
    report.note(theirs, "submit one by one", {"": 100.0, ", awaited": None})
    report.save(tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| submit one by one | 200 ±50% | 100 |" in text
    assert "| redis | submit one by one | Huey | 2.00 | ≥ 1.2 | reached |" in text
    assert "RQ (redis) is missing: no network" in text


def test_a_picture_shows_names_as_text() -> None:
    assert "<b>" not in bars("<b>", {"<b>": 1.0, "fairlead": 2.0}, "fairlead")
