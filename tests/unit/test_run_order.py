"""The order in which the files of a distributed run are begun."""

from __future__ import annotations

from tests.order import in_turn


def test_files_that_wait_and_files_that_work_take_turns_and_none_is_lost() -> None:
    waiting = [["w1"], ["w21", "w22"]]
    working = [["a1"], ["b1", "b2", "b3"], ["c1", "c2"]]

    assert in_turn(waiting, working) == ["b1", "b2", "b3", "w21", "w22", "c1", "c2", "w1", "a1"]
