"""The bench of peers, as far as it can be wrong without being slow: how it runs a contestant, and what it reports."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from bench.ceilings import Ceiling
from bench.peers.contest import contesting
from bench.peers.drawing import bars
from bench.peers.environments import ADAPTERS, OURS, PEERS, Contestant, Environment
from bench.peers.kinds import KINDS, QUICK, Amounts, Kind
from bench.peers.processes import Failed, Worker, until
from bench.peers.reporting import Report

ON_SQLITE = Contestant("fairlead", "on_fairlead.py", "sqlite")


def test_every_contestant_has_an_adapter() -> None:
    assert {one.adapter for one in (*OURS, *PEERS)} == {
        path.name for path in ADAPTERS.iterdir() if path.name.startswith("on_")
    }


def test_contestants_that_share_an_adapter_share_an_environment() -> None:
    """Or each would take the other's away."""
    packages = {(one.adapter, one.packages) for one in PEERS}
    assert len(packages) == len({adapter for adapter, _ in packages})


def test_a_slow_contestant_does_less() -> None:
    slow = Contestant("RQ", "", "redis", submits=0.1, runs=0.04)
    amounts = Amounts()
    assert (amounts.submitted(50_000, slow), amounts.submitted(50_000, ON_SQLITE)) == (5_000, 50_000)
    assert (amounts.ran(slow), amounts.ran(ON_SQLITE)) == (1_600, 40_000)
    assert QUICK.submitted(QUICK.one, slow) == QUICK.one


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
def test_each_kind_of_work_is_measured(kind: Kind, tmp_path: Path) -> None:
    amounts = Amounts(one=50, crowd=100, bulk=2_000, run=1_000, pace=20, low=300, high=20)
    with contesting(Environment(ON_SQLITE, tmp_path), f"sqlite:///{tmp_path}/tasks.db") as contest:
        figures = kind.run(contest, amounts)
    if kind.name == "low before the last high":
        assert figures == {"": 0}
    else:
        assert figures and all(value is not None and value > 0 for value in figures.values())


@pytest.mark.slow
def test_what_a_waiting_task_takes_is_the_growth_for_each(tmp_path: Path) -> None:
    sizes = iter((5_000, 45_000))
    with contesting(Environment(ON_SQLITE, tmp_path), f"sqlite:///{tmp_path}/tasks.db") as contest:
        assert contest.bytes_waiting(100, lambda: next(sizes)) == 400.0


def test_what_a_contestant_cannot_do_is_said(tmp_path: Path) -> None:
    refused = pytest.raises(Failed, match="unknown scheme")
    with contesting(Environment(ON_SQLITE, tmp_path), "nowhere://") as contest, refused:
        contest.rate("one", 1)


def test_a_worker_that_ends_is_not_waited_for() -> None:
    with tempfile.TemporaryFile() as output:
        worker = Worker([sys.executable, "-c", "raise SystemExit('no Redis here')"], {}, output)
        with pytest.raises(Failed, match="its worker ended: no Redis here"):
            until(1, lambda: 0, [worker])


def test_a_report_has_all_that_was_measured_and_what_is_missing(tmp_path: Path) -> None:
    report = Report(QUICK, "Redis 7.0")
    ours, slower = Contestant("fairlead", "", "redis", settings="defaults"), Contestant("RQ", "", "redis", runs=0.1)
    report.has(ours, "1.0")
    report.has(slower, "2.0")
    report.remark("SAQ (redis) is missing: no network")
    for turn, value in enumerate((100.0, 300.0)):
        report.note(turn, "redis", "fairlead", "submit one by one", {"": value})
        report.note(turn, "redis", "Huey", "submit one by one", {"": 100.0, ", awaited": None})
    report.bound(0, "redis", [Ceiling("add one", 1_000.0, "submit one by one")])
    report.save(tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| submit one by one | 200 ±50% | 100 ±0% |" in text
    assert "| redis | submit one by one | Huey | 2 | 1 to 3 | ≥ 1.2 | reached |" in text
    assert "| redis | submit by 50 at once | SAQ | – |  | ≥ 2.5 | not measured |" in text
    assert "| redis | add one | 1,000 | submit one by one | 200 ±50% |" in text
    assert "- RQ (redis), which is slower: 5,000 in bulk" in text and "a full queue of 500\n" in text
    assert "SAQ (redis) is missing: no network" in text
    assert "Redis 7.0" in text
    assert "![redis-submit-one-by-one](redis-submit-one-by-one.svg)" in text
    assert (tmp_path / "redis-submit-one-by-one.svg").exists()


def test_a_picture_shows_names_as_text() -> None:
    assert "<b>" not in bars("<b>", {"<b>": 1.0, "fairlead": 2.0}, "fairlead")


def test_the_best_bar_is_the_first() -> None:
    figures = {"slow": 20.0, "quick": 2.0}
    most, least = bars("rate", figures, "fairlead"), bars("latency", figures, "fairlead", least=True)
    assert most.index(">slow<") < most.index(">quick<")
    assert least.index(">quick<") < least.index(">slow<")
