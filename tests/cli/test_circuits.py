"""Circuits from the command line."""

from __future__ import annotations

from fairlead.core.circuit import CircuitState
from fairlead.engine.runtime.inline import run_inline
from tests.cli.running import Folder


def test_circuits_are_set_listed_turned_and_removed(folder: Folder) -> None:
    folder.ok("submit", "other")
    assert "no circuits" in folder.quick("circuits", "list").out
    said = folder.quick("circuits", "set", "mail", "--failure-ratio", "0.25", "--min-outcomes", "8").out
    assert "the circuit breaker of mail is closed; it opens at 25% of at least 8 in 60 s, for 30 s" in said
    folder.quick("circuits", "set", "mail", "--probes", "5", "--window", "10", "--open-for", "3600")
    (shown,) = folder.quick("circuits", "list", "--json").json["circuits"]
    assert shown["settings"] == {
        "failure_ratio": 0.25,
        "window_seconds": 10.0,
        "min_outcomes": 8,
        "open_seconds": 3600.0,
        "probes": 5,
    }
    folder.quick("submit", "mail")
    assert folder.quick("circuits", "open", "mail", "--json").json["state"] == "open"
    assert run_inline(folder.engine().circuits.get("mail")).state is CircuitState.OPEN
    for place in (("stats",), ("queues", "show", "default"), ("circuits", "list")):
        assert "tried again in" in folder.quick(*place).out, place
    assert folder.quick("stats", "--json").json["circuits"][0]["state"] == "open"
    assert "mail is closed" in folder.quick("circuits", "close", "mail").out
    assert "circuit breaker of" not in folder.quick("stats").out
    assert "no circuit any more" in folder.quick("circuits", "remove", "mail").out


def test_mistakes_are_told_in_one_line(folder: Folder) -> None:
    folder.ok("submit", "mail")
    missing = folder.quick("circuits", "open", "mail")
    assert (missing.code, missing.err.count("\n")) == (1, 1) and "'mail' has no circuit breaker" in missing.err
    wrong = folder.quick("circuits", "set", "mail", "--failure-ratio", "2")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1) and "failure_ratio 2.0" in wrong.err
    wrong = folder.quick("circuits", "set", "mail", "--window", "-1")
    assert wrong.code == 2 and "window" in wrong.err
