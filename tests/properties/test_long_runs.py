"""The machines of the conformance suite, for longer and never the same twice."""

import pytest
from hypothesis import settings

from fairlead.testing.leases import check_leases
from fairlead.testing.machine import compare_with_memory
from fairlead.testing.steps import opened_memory
from fairlead.testing.strategies import STEADY

LONG = settings(STEADY, max_examples=1_000, stateful_step_count=100, derandomize=False)

pytestmark = pytest.mark.soak


def test_memory_agrees_with_the_reference_for_long() -> None:
    compare_with_memory(opened_memory, settings=LONG)


def test_memory_keeps_its_leases_for_long() -> None:
    check_leases(opened_memory, settings=LONG)
