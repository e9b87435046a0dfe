"""Names and ids: what they may look like and what a task id carries."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.errors import InvalidTask
from fairlead.core.identity import (
    NOISE_BYTES,
    PLACE,
    SLOTS,
    check_name,
    parse_task_id,
    place_of,
    slot_in,
    slot_of,
    slot_of_id,
    task_id,
    tick_of,
)
from fairlead.core.instant import LATEST
from tests.unit.building import NOW, an_id

instants = st.integers(0, LATEST)
slots = st.integers(0, SLOTS - 1)
noises = st.binary(min_size=NOISE_BYTES, max_size=NOISE_BYTES)


@given(instants, instants, slots, slots, noises, noises)
def test_ids_sort_by_the_time_of_their_submit(
    one: int, other: int, slot: int, other_slot: int, noise: bytes, other_noise: bytes
) -> None:
    early, late = sorted((tick_of(one), tick_of(other)))
    if early != late:
        assert task_id(early, slot, noise) < task_id(late, other_slot, other_noise)


@given(st.integers(0, LATEST - 1))
def test_ticks_never_go_back_and_tell_microseconds_apart(at: int) -> None:
    assert tick_of(at) < tick_of(at + 1)


@given(instants, slots, noises)
def test_an_id_carries_its_slot(at: int, slot: int, noise: bytes) -> None:
    made = task_id(tick_of(at), slot, noise)

    assert slot_of_id(made) == slot_in(bytes.fromhex(made)) == slot
    assert made[PLACE] == place_of(slot)


@given(instants, slots, noises)
def test_an_id_is_a_uuid_of_version_8(at: int, slot: int, noise: bytes) -> None:
    made = uuid.UUID(task_id(tick_of(at), slot, noise))

    assert made.version == 8
    assert made.variant == uuid.RFC_4122


@given(st.text(min_size=1))
def test_a_queue_always_has_the_same_slot(queue: str) -> None:
    if queue.isascii():
        assert slot_of(queue) == slot_of(queue)
        assert 0 <= slot_of(queue) < SLOTS


def test_the_slot_of_a_queue_is_fixed_for_ever() -> None:
    # Ids in stores carry it: a change of the hash would lose their tasks.
    assert (slot_of("default"), slot_of("mail")) == (223, 11336)


@given(instants, slots, noises)
def test_an_id_is_understood_as_people_write_it(at: int, slot: int, noise: bytes) -> None:
    made = task_id(tick_of(at), slot, noise)

    assert parse_task_id(made) == made
    assert parse_task_id(f"  {uuid.UUID(made)}\n".upper()) == made


@pytest.mark.parametrize(
    "text",
    ["", "42", str(uuid.UUID(int=0)), str(an_id())[:-1], str(an_id()) + "0", "g" * 32, "\uff11" * 32],
    ids=["empty", "a number", "another uuid", "short", "long", "not hexadecimal", "other digits"],
)
def test_what_is_not_an_id_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidTask, match="is not a task id; a task id is 32 hexadecimal digits") as refusal:
        parse_task_id(text)

    assert refusal.value.field == "id"
    assert repr(text) in str(refusal.value)


@pytest.mark.parametrize("name", ["a", "A-z_0.9:x", "x" * 200])
def test_letters_digits_and_some_marks_make_a_name(name: str) -> None:
    assert check_name("queue", name) == name


@pytest.mark.parametrize("name", ["", "x" * 201, "a b", "a/b", "ä", "a\n", "a\x00", "{a}", "a*", "a,b"], ids=repr)
def test_anything_else_does_not(name: str) -> None:
    with pytest.raises(InvalidTask, match="is not a valid name; use 1 to 200") as refusal:
        check_name("queue", name)

    assert refusal.value.field == "queue"
    assert repr(name) in str(refusal.value)


def test_an_id_reads_as_its_documentation_says() -> None:
    made = task_id(tick_of(NOW), 0x1ABC, b"\0\0\0\0\x0d\xef")

    assert made == f"{NOW // 1000:012x}" + "8" + "000" + f"{0x8000 | 0x1ABC:04x}" + "000000000def"
