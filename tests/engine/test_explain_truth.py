"""What explain says, held against what then happens, in virtual time over the engine: the short form.

The long form is `python -m bench.explaining`; its table is docs/benchmarks/explain.md.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.explain_world import Scenario
from bench.explaining import MOST_ERROR, MOST_ERROR_STEADY, SCENARIOS, measure


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name.replace(" ", "-"))
def test_what_is_told_is_so(scenario: Scenario) -> None:
    """Every place that is told as exact is, every latest start holds, and nothing said contradicts anything else."""
    truth = measure(replace(scenario, span=scenario.span // 5), range(1), moments=2, each=20)
    assert not truth.contradictions
    assert truth.exact_right == truth.exact and truth.latest_held == truth.latest, truth.wrong[0]


def test_the_starts_are_about_right_under_steady_load_and_after_a_burst() -> None:
    by_name = {scenario.name: scenario for scenario in SCENARIOS}
    for name, most in (("steady load", MOST_ERROR_STEADY), ("bursts", MOST_ERROR)):
        error = measure(replace(by_name[name], span=by_name[name].span // 2), range(1), moments=3).median_error
        assert error is not None and error <= most, (name, error)
