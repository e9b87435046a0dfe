"""How many workers a load wants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.errors import InvalidSettings
from fairlead.core.health.autoscale import Load, advise
from fairlead.core.instant import MINUTE, SECOND

COUNTS = st.integers(0, 10_000)
LOADS = st.builds(
    Load,
    ready=COUNTS,
    executing=COUNTS,
    ended=COUNTS,
    spent=st.integers(0, 1_000 * MINUTE),
    workers=st.integers(0, 100),
    slots=COUNTS,
)


def test_nothing_to_do_needs_nobody() -> None:
    assert advise(Load(workers=3, slots=30, ended=100, spent=MINUTE)).workers == 0


def test_the_first_task_needs_a_worker() -> None:
    advice = advise(Load(ready=1))
    assert (advice.workers, advice.backlog_seconds, advice.seconds_per_task) == (1, None, None)


def test_a_backlog_is_worked_off_within_the_span() -> None:
    # 1,200 tasks of 2 s are 2,400 s of work: 40 slots for a minute, beside the 10 that keep up.
    load = Load(ready=1_200, executing=10, ended=300, spent=600 * SECOND, workers=1, slots=10)
    advice = advise(load, within=MINUTE)
    assert (advice.seconds_per_task, advice.backlog_seconds, advice.capacity) == (2.0, 2_400.0, 10.0)
    assert advice.workers == 5
    assert advise(load, within=10 * MINUTE).workers == 2
    assert advise(load, within=MINUTE, capacity=50).workers == 1


def test_without_a_backlog_it_is_as_many_as_are_in_use() -> None:
    assert advise(Load(executing=25, ended=1_500, spent=1_500 * SECOND, workers=9, slots=90)).workers == 3


def test_a_moment_without_tasks_in_between_does_not_take_workers_away() -> None:
    assert advise(Load(ready=1, executing=0, ended=1_800, spent=1_800 * SECOND, workers=3, slots=30)).workers == 3


def test_there_are_never_more_slots_than_tasks() -> None:
    assert advise(Load(ready=3, executing=1, ended=1, spent=60 * SECOND, workers=1, slots=1)).workers == 4


def test_as_long_as_nothing_has_ended_a_full_house_doubles() -> None:
    full = Load(ready=500, executing=20, workers=2, slots=20)
    assert advise(full).workers == 4
    assert advise(Load(ready=500, executing=19, workers=2, slots=20)).workers == 2
    assert advise(Load(ready=1, executing=20, workers=2, slots=20)).workers == 3
    assert advise(Load(ready=0, executing=20, workers=2, slots=20)).workers == 2


@given(LOADS)
def test_more_that_waits_never_wants_fewer(load: Load) -> None:
    more = Load(
        ready=load.ready + 100,
        executing=load.executing,
        ended=load.ended,
        spent=load.spent,
        workers=load.workers,
        slots=load.slots,
    )
    assert advise(more, capacity=10).workers >= advise(load, capacity=10).workers


@given(LOADS)
def test_there_is_somebody_exactly_if_there_is_something_to_do(load: Load) -> None:
    assert (advise(load).workers > 0) == (load.ready + load.executing > 0)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="within 0 s"):
        advise(Load(), within=0)
    with pytest.raises(InvalidSettings, match="capacity 0 is out of range"):
        advise(Load(), capacity=0)
