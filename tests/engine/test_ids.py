"""Where new ids and lease tokens come from."""

from __future__ import annotations

import os
import random
import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.identity import TaskId, parse_task_id, slot_of, slot_of_id
from fairlead.core.instant import LATEST
from fairlead.engine.runtime.ids import IdMaker, system_chance


@given(st.lists(st.integers(0, LATEST), min_size=2), st.randoms(use_true_random=False))
def test_ids_go_up_whatever_the_clock_does(instants: list[int], luck: random.Random) -> None:
    maker = IdMaker(luck)
    ids = [maker.task_id("default", at) for at in instants]

    assert all(earlier < later for earlier, later in pairwise(ids))
    assert [parse_task_id(task_id) for task_id in ids] == ids


def test_ids_go_up_across_queues_and_each_carries_the_slot_of_its_own() -> None:
    maker = IdMaker(random.Random(1))
    ids = [maker.task_id(queue, 1_000_000) for queue in ("a", "b", "a")]

    assert ids == sorted(ids)
    assert [slot_of_id(task_id) for task_id in ids] == [slot_of("a"), slot_of("b"), slot_of("a")]


def test_ids_made_by_many_threads_are_all_different() -> None:
    maker = IdMaker(random.Random(1))
    made: list[list[TaskId]] = [[] for _ in range(8)]
    start = threading.Barrier(8)

    def make(into: list[TaskId]) -> None:
        start.wait()
        into += [maker.task_id("default", 1_000_000) for _ in range(1_000)]

    threads = [threading.Thread(target=make, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({task_id for into in made for task_id in into}) == 8_000
    assert all(into == sorted(into) for into in made)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_processes_forked_from_one_make_different_ids_and_tokens() -> None:
    maker = IdMaker(system_chance())
    maker.task_id("default", 1_000_000)

    def make() -> list[str]:
        return [*(maker.task_id("default", 1_000_000) for _ in range(20)), *(maker.token() for _ in range(20))]

    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, "\n".join(make()).encode())
        os._exit(0)
    os.close(writing)
    ours = make()
    with os.fdopen(reading) as answer:
        theirs = answer.read().split("\n")
    os.waitpid(child, 0)

    assert len(theirs) == 40
    assert not set(ours) & set(theirs)


def test_tokens_are_never_repeated() -> None:
    maker = IdMaker(random.Random(1))
    tokens = [maker.token() for _ in range(10_000)]

    assert len(set(tokens)) == len(tokens)
    assert {len(token) for token in tokens} == {20}


def test_the_same_seed_makes_the_same_ids() -> None:
    one, other = IdMaker(random.Random(5)), IdMaker(random.Random(5))

    assert [one.task_id("q", 7) for _ in range(5)] == [other.task_id("q", 7) for _ in range(5)]


def test_what_is_drawn_is_of_the_size_asked_for_and_never_the_same_twice() -> None:
    chance = system_chance()
    drawn = [chance.randbytes(size) for size in (1, 15, 16, 4_096, 10_000) * 3]
    assert [len(each) for each in drawn] == [1, 15, 16, 4_096, 10_000] * 3
    assert len({each for each in drawn if len(each) > 1}) == 12
    bits = [chance.getrandbits(48) for _ in range(2_000)]
    assert len(set(bits)) == 2_000
    assert 2**44 < max(bits) < 2**48
    assert {chance.getrandbits(1) for _ in range(100)} == {0, 1}
