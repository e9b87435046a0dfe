"""The values: what a task is and how it stands."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from fairlead.core.errors import InvalidTask
from fairlead.core.instant import LATEST
from fairlead.core.task import ENDED, WAITING, Lane, Priority, Spec, State, Status, Task
from tests.unit.building import a_spec, a_task, tasks


@pytest.mark.parametrize(
    ("word", "priority"),
    [
        ("critical", Priority.CRITICAL),
        ("high", Priority.HIGH),
        ("medium", Priority.MEDIUM),
        ("normal", Priority.MEDIUM),
        ("low", Priority.LOW),
    ],
)
def test_a_priority_is_known_by_its_word(word: str, priority: Priority) -> None:
    assert Priority.parse(word) is priority


@pytest.mark.parametrize("priority", Priority)
def test_the_word_of_a_priority_leads_back_to_it(priority: Priority) -> None:
    assert Priority.parse(priority.word) is priority


@pytest.mark.parametrize("word", ["urgent", "", "HIGH", 1, None, ["low"]], ids=repr)
def test_an_unknown_priority_is_refused_with_those_there_are(word: object) -> None:
    with pytest.raises(InvalidTask, match="use one of critical, high, medium, low") as refusal:
        Priority.parse(word)  # type: ignore[arg-type]

    assert refusal.value.field == "priority"
    assert repr(word) in str(refusal.value)


def test_the_more_urgent_priority_is_the_smaller_number() -> None:
    assert sorted(Priority) == [Priority.CRITICAL, Priority.HIGH, Priority.MEDIUM, Priority.LOW]


def test_a_state_is_waiting_or_ended_or_executing() -> None:
    assert {State.EXECUTING} == set(State) - ENDED - WAITING
    assert not ENDED & WAITING
    assert all(state.ended == (state in ENDED) and state.waiting == (state in WAITING) for state in State)


def test_a_task_waits_in_the_lane_of_its_queue_type_capabilities_and_present_priority() -> None:
    task = a_task(spec=a_spec(queue="mail", type="send", requires=("gpu",)), priority=Priority.LOW)

    assert task.lane == Lane("mail", "send", ("gpu",), Priority.LOW)


@given(tasks())
def test_spec_and_status_survive_encoding(task: Task) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(task.spec), type=Spec) == task.spec
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(task.status), type=Status) == task.status


@pytest.mark.parametrize("moment", [LATEST + 1, 2**62, -1])
@pytest.mark.parametrize(
    ("what", "field"),
    [("spec", "created_at"), ("spec", "key_until"), ("status", "ready_at"), ("status", "alarm"),
     ("status", "started_at"), ("status", "ended_at")],
)  # fmt: skip
def test_a_moment_that_there_is_not_cannot_be_decoded(what: str, field: str, moment: int) -> None:
    """One wrong bit can make it, and no listing could show it."""
    value = getattr(a_task(), what)
    decode = msgspec.msgpack.Decoder(type(value)).decode
    assert decode(msgspec.msgpack.encode(replace(value, **{field: LATEST})))
    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.msgpack.encode(replace(value, **{field: moment})))
