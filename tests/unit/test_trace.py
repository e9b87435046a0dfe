"""The trace in a traceparent."""

from __future__ import annotations

import pytest

from fairlead.core.identity import is_traceparent, trace_id_of

ID = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_a_traceparent_has_the_id_of_its_trace() -> None:
    assert trace_id_of(f"00-{ID}-00f067aa0ba902b7-01") == ID
    assert is_traceparent(f"00-{ID}-00f067aa0ba902b7-01")


@pytest.mark.parametrize(
    "own",
    [
        "order-17",
        ID,
        f"00-{ID}-00f067aa0ba902b7",
        f"ff-{ID}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{ID}-{'0' * 16}-01",
        f"00-{ID.upper()}-00f067aa0ba902b7-01",
        f"00-{ID}-00f067aa0ba902b7-01\n",
    ],
)
def test_any_other_text_is_an_id_itself(own: str) -> None:
    assert trace_id_of(own) == own
    assert not is_traceparent(own)


def test_a_task_without_a_trace_has_no_id_of_one() -> None:
    assert trace_id_of(None) is None
