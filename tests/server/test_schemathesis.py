"""Whatever a caller sends, the answer is one that the OpenAPI document declares, and never a fault of the server.

schemathesis makes the requests: those that the document allows and those that it does not, alone and in sequences
along its links, with all of its checks on but for what `exercising` leaves out and why. The WebSocket is not in the
document, and neither are streams that do not end.
"""

from __future__ import annotations

import pytest

from tests.server.exercising import exercise

SEED = 20_260_301
LUCKY = {"POST /api/v1/quarantine/{kind}/{name}/restore"}
"""What only succeeds with bytes that somebody has mended."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_found_in_a_short_run() -> None:
    outcome = exercise(examples=8, sequenced=100, seed=SEED, coverage=False)

    assert outcome.total >= 250
    assert outcome.failures == {}


@pytest.mark.soak
def test_nothing_is_found_in_a_long_run() -> None:
    outcome = exercise(examples=60, sequenced=2_000, seed=SEED)

    assert outcome.total >= 4_000
    assert outcome.failures == {}
    assert outcome.unanswered() <= LUCKY
