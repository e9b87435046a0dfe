"""The words of a query string mean what they say, and nothing more."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import pytest
from msgspec import Struct

from fairlead.server.http.problems import Refusal
from fairlead.server.http.url import parse_query
from fairlead.wire.tasks import Moment


class Query(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One parameter of each kind."""

    queue: str | None = None
    priority: Literal["high", "low"] | None = None
    limit: int | None = None
    since: Moment | None = None


def test_what_is_not_said_is_not_there() -> None:
    assert parse_query(Query, b"") == Query()


def test_text_becomes_what_the_parameter_is() -> None:
    query = parse_query(Query, b"queue=a%20b&priority=low&limit=5&since=2026-03-01T09:30:00Z")

    assert query == Query(queue="a b", priority="low", limit=5, since=datetime(2026, 3, 1, 9, 30, tzinfo=UTC))


def test_a_queue_may_be_called_null() -> None:
    assert parse_query(Query, b"queue=null").queue == "null"


@pytest.mark.parametrize("query", [b"priority=null", b"limit=Null", b"since=null"])
def test_the_word_null_does_not_widen_what_is_asked_for(query: bytes) -> None:
    with pytest.raises(Refusal, match="null is not a value; leave it out"):
        parse_query(Query, query)


@pytest.mark.parametrize("query", [b"since=0.5", b"since=1700000000"])
def test_a_number_is_not_a_moment(query: bytes) -> None:
    with pytest.raises(Refusal, match="is not a date and time; write it like 2026-03-01T09:30:00Z"):
        parse_query(Query, query)
