"""What an explanation says by rule."""

from __future__ import annotations

import pytest

from fairlead.core.explain.explanation import Cause, CauseCode, Explanation, sweep_is_late
from fairlead.core.instant import MILLISECOND, SECOND
from fairlead.core.task import Priority, State
from fairlead.testing.builders import an_id


@pytest.mark.parametrize(
    ("since", "late"),
    [(-SECOND, False), (0, False), (84 * MILLISECOND, False), (2 * SECOND, False), (2 * SECOND + 1, True)],
)
def test_a_sweep_is_late_after_twice_its_interval(since: int, late: bool) -> None:
    assert sweep_is_late(1_000 * SECOND, 1_000 * SECOND + since, SECOND) is late


@pytest.mark.parametrize(
    ("state", "summary"),
    [
        (State.EXECUTING, "it is executing: attempt 1 has run for 2s"),
        (State.DEAD_LETTER, "it is a dead letter: attempt 1 has run for 2s"),
    ],
)
def test_the_summary_is_a_sentence_about_the_state(state: State, summary: str) -> None:
    explanation = Explanation(
        task_id=an_id(),
        type="echo",
        queue="default",
        state=state,
        at=0,
        priority=Priority.LOW,
        effective_priority=Priority.LOW,
        causes=(Cause(CauseCode.EXECUTING, "attempt 1 has run for 2s"),),
    )
    assert explanation.summary == summary
