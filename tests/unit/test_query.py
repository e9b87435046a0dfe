"""The query language: what it means, how it is written, and how it points at a mistake."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.core.dead_letters import fingerprint_of
from fairlead.core.errors import QueryError
from fairlead.core.identity import WorkerId
from fairlead.core.instant import DAY, HOUR, LATEST, MINUTE, SECOND
from fairlead.core.query.match import admits
from fairlead.core.query.parser import parse_query
from fairlead.core.query.query import FIELDS, Ago, At, Kind, Number, Query, Term, Within, Word
from fairlead.core.task import Failure, Lease, Priority, State, Task
from fairlead.testing.builders import NOW, a_task, a_token

TIMEOUT = Failure(type="TimeoutError", message="no answer from smtp-7 within 30 s")


def task_with(**changes: Any) -> Task:
    """A dead letter that most tests ask for; changes to its status and its spec are given by name."""
    task = a_task(
        queue="emails",
        type="send_mail",
        state=State.DEAD_LETTER,
        parameters=b'{"user_id":42,"to":"Ada","items":[{"sku":"a-1"},"b"],"ok":true,"note":null,"x":1.5,"\\u00e9":"\\u00fc"}',
        priority=Priority.HIGH,
    )
    spec = {name: changes.pop(name) for name in list(changes) if name in task.spec.__struct_fields__}
    status = {"failure": TIMEOUT, "attempts": 4, "retries": 3, **changes}
    return Task(replace(task.spec, **{"tags": ("eu", "nightly"), **spec}), replace(task.status, **status))


@pytest.mark.parametrize(
    "query",
    [
        "",
        "state:dead_letter",
        "state:failed,dead_letter",
        "-state:queued",
        "queue:emails",
        "queue:e*s",
        "type:send_*",
        "type:other,send_mail",
        "-type:receive_*",
        "priority:high",
        "-priority:low,normal",
        "tag:eu",
        "tag:e*,x",
        "-tag:us",
        "-tenant:*",
        "-worker:*",
        "error:timeout",
        'error:"no answer"',
        "error:no*smtp",
        "created:>-1h",
        "created:2027-01-15",
        "created:2027-01-15T08:00Z",
        "created:2027-01-15T10:00+02:00",
        "created:2027-01-01..2027-01-15",
        "created:<=2027-01-15",
        "created:..+1s",
        "ended:>=-1m",
        "ready:-1d..+0s",
        "attempts:4",
        "attempts:>3",
        "attempts:1..4",
        "retries:<=3",
        "retries:1,3",
        "params.user_id:42",
        "params.user_id:41,42",
        "params.user_id:40..50",
        "params.user_id:>=42",
        "params.to:Ada",
        "params.to:A*",
        "params.items.0.sku:a-1",
        "params.items:b",
        "params.ok:true",
        "params.note:null",
        "params.note:*",
        "params.x:1.5",
        "-params.missing:*",
        "-params.ok:false",
        "smtp-7",
        '"NO ANSWER"',
        "ada",
        "ü",
        "-absent",
        'state:dead_letter queue:emails type:send_* error:Timeout priority:high params.user_id:42 -tag:us "within 30"',
    ],
)
def test_a_task_is_meant(query: str) -> None:
    assert admits(parse_query(query), task_with(), NOW)


@pytest.mark.parametrize(
    "query",
    [
        "state:queued",
        "-state:dead_letter,failed",
        "queue:email",
        "type:send",
        "type:Send_*",
        "priority:low",
        "tag:u*",
        "-tag:eu",
        "tenant:*",
        "worker:*",
        "error:Connection",
        "created:>+1s",
        "created:<2027-01-15",
        "created:>2027-01-15",
        "created:2027-01-14",
        "ended:<-1m",
        "attempts:>4",
        "retries:4..",
        "params.user_id:43",
        "params.user_id:4*",
        "params.user_id:>42",
        "params.user_id.deeper:1",
        "params.items.7:b",
        "params.ok:1",
        "params.missing:*",
        "absent",
        "state:dead_letter queue:other",
    ],
)
def test_a_task_is_not_meant(query: str) -> None:
    assert not admits(parse_query(query), task_with(), NOW)


def test_a_task_is_found_by_its_id_in_any_spelling() -> None:
    task = task_with()
    dashed = f"{task.id[:8]}-{task.id[8:12]}-{task.id[12:]}".upper()

    assert all(admits(parse_query(f"id:{text}"), task, NOW) for text in (task.id, dashed, f"{task.id[:9]}*"))
    assert not admits(parse_query(f"-id:{task.id}"), task, NOW)


def test_a_task_is_found_by_the_fingerprint_of_its_error_its_worker_and_its_tenant() -> None:
    lease = Lease(token=a_token(), worker=WorkerId("host-1-abc"), until=NOW)
    task = task_with(tenant="acme", lease=lease)

    assert admits(parse_query(f"fingerprint:{fingerprint_of(TIMEOUT)} worker:host-1-* tenant:acme"), task, NOW)
    assert not admits(parse_query("tenant:other"), task, NOW)


def test_what_has_not_happened_is_in_no_range_of_moments() -> None:
    task = task_with(ended_at=None)

    assert not admits(parse_query("ended:>1970-01-02"), task, NOW)
    assert admits(parse_query("-ended:>1970-01-02"), task, NOW)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("  state:failed   queue:a ", "state:failed queue:a"),
        ("priority:normal", "priority:medium"),
        ('queue:"emails"', "queue:emails"),
        ("created:>-60m", "created:>-1h"),
        ("created:>-90m", "created:>-90m"),
        ("created:2026-11-15T10:00+02:00", "created:2026-11-15T08:00Z"),
        ("created:2026-11-15T08:00:30.5Z", "created:2026-11-15T08:00:30.500000Z"),
        ("attempts:5..", "attempts:>=5"),
        ("attempts:5..5", "attempts:5"),
        ("attempts:+5", "attempts:5"),
        ("state:failed state:failed", "state:failed"),
        ("state:failed,failed", "state:failed"),
        ('"one"', "one"),
        ('"a:b"', '"a:b"'),
        (r'"say \"hi\" \\"', r'"say \"hi\" \\"'),
        ("id:01A1DE85-43E9", "id:01a1de8543e9"),
        ('params.path:"*"', 'params.path:"*"'),
    ],
)
def test_a_query_has_one_canonical_text(text: str, canonical: str) -> None:
    assert str(parse_query(text)) == canonical
    assert str(parse_query(canonical)) == canonical


@pytest.mark.parametrize(
    ("query", "marked", "said"),
    [
        ("state:ded_letter", "ded_letter", "did you mean dead_letter?"),
        ("queue:a sate:failed", "sate", "did you mean state?"),
        ("priority:urgent", "urgent", "use one of critical"),
        ("created:yesterday", "yesterday", "is not a moment"),
        ("created:-1h", "-1h", "write created:>-1h"),
        ("created:>2026-13-01", "2026-13-01", "is not a moment"),
        ("attempts:many", "many", "is not a number"),
        ("attempts:1..x", "x", "is not a number"),
        ("attempts:..", "..", "no end at all"),
        ('error:"open', '"open', "never closed"),
        ("queue: a", " ", "needs a value"),
        ("queue:a, b", " ", "needs a value"),
        ("queue:>5", ">", "cannot be compared"),
        ("params:5", "params", "names no parameter"),
        ("params.a..b:5", "params.a..b", "names no parameter"),
        ("params.a:>b", ">b", "does not compare with a number"),
        ("id:xyz", "xyz", "hexadecimal"),
        ('queue:"a"b', "b", "a value ends here"),
        ('queue:""', '""', "never empty"),
        ('""', '""', "looks for nothing"),
        ("http://x", "http", "put text with a colon in quotes"),
        ("queue:a - tag:b", "-", "must be followed"),
    ],
)
def test_a_mistake_is_pointed_at(query: str, marked: str, said: str) -> None:
    with pytest.raises(QueryError, match=r".") as caught:
        parse_query(query)

    error = caught.value
    assert said in str(error)
    assert query[error.position : error.position + error.length] == marked
    shown, carets = error.pointer.split("\n")
    assert shown == query
    assert carets == " " * error.position + "^" * len(marked)


def test_the_pointer_shows_what_is_near_the_mistake_of_a_long_query() -> None:
    with pytest.raises(QueryError) as caught:
        parse_query("queue:a " * 40 + "sate:failed " + "queue:b " * 40)

    shown, carets = caught.value.pointer.split("\n")
    assert len(shown) < 120
    assert shown[carets.index("^") : carets.rindex("^") + 1] == "sate"


def test_a_query_is_bounded() -> None:
    for query in ("a" * 5_000, "queue:" + ",".join(map(str, range(700)))):
        with pytest.raises(QueryError, match=r"characters long|more than 500"):
            parse_query(query)


@pytest.mark.parametrize("query", ["x{}", "-x{}", "params.m:x{}*", "params.m:>{}", "attempts:{}..99", "tag:x{}*"])
def test_what_has_to_be_tried_one_after_the_other_is_bounded_further(query: str) -> None:
    many = [query.format(number) for number in range(51)]
    assert len(parse_query(" ".join(many[:50])).terms) >= 1
    with pytest.raises(QueryError, match="more than 50 values with a star, comparisons and free texts; split it"):
        parse_query(" ".join(many))


names = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=12)
globs = st.from_regex(r"[a-z_.]{0,5}\*[a-z_.*]{0,5}", fullmatch=True).map(lambda text: Word(text, glob=True))
spans = st.integers(-400 * DAY, 400 * DAY)
days = st.integers(0, LATEST // DAY - 2).map(lambda day: At(day * DAY, day * DAY + DAY - 1))


def lasting(length: int) -> st.SearchStrategy[At]:
    """Moments that are written so that they last so long."""
    return st.integers(0, (LATEST - 2 * DAY) // length).map(lambda n: At(n * length, n * length + length - 1))


moments = st.one_of(spans.map(Ago), days, lasting(MINUTE), lasting(SECOND))
numbers = (st.integers() | st.floats(allow_nan=False, allow_infinity=False)).map(Number)


def ranges(edges: st.SearchStrategy[Any]) -> st.SearchStrategy[Within]:
    return st.one_of(
        st.builds(lambda edge, opened: Within(low=edge, low_open=opened), edges, st.booleans()),
        st.builds(lambda edge, opened: Within(high=edge, high_open=opened), edges, st.booleans()),
        st.tuples(edges, edges).filter(lambda pair: pair[0] != pair[1]).map(lambda pair: Within(*pair)),
    )


def values(field: str) -> st.SearchStrategy[Any]:
    match FIELDS.get(field, Kind.PARAMETER):
        case Kind.STATE:
            return st.sampled_from(State).map(lambda state: Word(state.value))
        case Kind.PRIORITY:
            return st.sampled_from(Priority).map(lambda priority: Word(priority.word))
        case Kind.ID:
            return st.from_regex(r"[0-9a-f]{1,32}", fullmatch=True).map(Word)
        case Kind.MOMENT:
            return ranges(moments) | days.map(lambda day: Within(day, day))
        case Kind.NUMBER:
            return ranges(numbers)
        case Kind.PARAMETER:
            return names.map(Word) | globs | ranges(numbers)
        case _:
            return names.map(Word) | globs


def terms(field: str) -> st.SearchStrategy[Term]:
    listed = st.lists(values(field), min_size=1, max_size=3, unique=True).map(tuple)
    return st.builds(Term, field=st.just(field), values=listed, negated=st.booleans())


fields = st.sampled_from([*FIELDS, "params.user_id", "params.a.0.b-c"])
free = st.builds(Term, field=st.just(""), values=names.map(lambda text: (Word(text),)), negated=st.booleans())
queries = st.lists(fields.flatmap(terms) | free, max_size=5, unique=True).map(lambda made: Query(tuple(made)))


@given(queries)
def test_a_query_that_is_written_and_read_is_the_same(query: Query) -> None:
    assert parse_query(str(query)) == query


@given(st.text(max_size=60) | st.from_regex(r'(-?(state|queue|created|params\.a|x):[><"a-z0-9*,.-]{0,8} ?){0,4}'))
def test_whatever_is_written_is_read_to_a_canonical_text_or_pointed_at(text: str) -> None:
    try:
        query = parse_query(text)
    except QueryError as error:
        assert 0 <= error.position <= len(text)
        assert "^" in error.pointer
    else:
        assert parse_query(str(query)) == query
        assert str(parse_query(str(query))) == str(query)
        admits(query, task_with(), NOW + HOUR)
