"""What an explanation says by rule."""

from __future__ import annotations

import pytest

from fairlead.core.explain.explanation import sweep_is_late
from fairlead.core.instant import MILLISECOND, SECOND


@pytest.mark.parametrize(
    ("since", "late"),
    [(-SECOND, False), (0, False), (84 * MILLISECOND, False), (2 * SECOND, False), (2 * SECOND + 1, True)],
)
def test_a_sweep_is_late_after_twice_its_interval(since: int, late: bool) -> None:
    assert sweep_is_late(1_000 * SECOND, 1_000 * SECOND + since, SECOND) is late
