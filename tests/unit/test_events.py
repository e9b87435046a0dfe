"""What can happen to a task."""

from __future__ import annotations

from typing import get_args

import msgspec
from hypothesis import given

from fairlead.core.events import Event, Outcome, Request
from tests.unit.building import events


def test_every_event_has_a_name_of_its_own() -> None:
    names = [kind.name for kind in get_args(Event)]

    assert len(set(names)) == len(names)


def test_an_event_is_said_by_a_lease_holder_or_by_someone_else_never_by_both() -> None:
    assert not set(get_args(Outcome)) & set(get_args(Request))
    assert set(get_args(Outcome)) | set(get_args(Request)) < set(get_args(Event))


@given(events)
def test_an_event_survives_encoding(event: Event) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=Event) == event
