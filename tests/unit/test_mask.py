"""What may be secret in a URL, or in a text that quotes one, is hidden; what helps to find a mistake is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.errors import FairleadError, InvalidSettings, InvalidTask
from fairlead.core.retry import Reject
from fairlead.core.secret_mask import Masked, masked, masked_all, masked_text
from fairlead.core.task import Failure
from fairlead.core.validation import check_login
from tests.canaries import CANARY, URLS


@pytest.mark.parametrize("url", URLS)
def test_no_way_of_writing_a_url_shows_its_secret(url: str) -> None:
    for shown in (masked(url), masked_text(url), masked_text(f"the store {url!r} is away: {url}"), masked(masked(url))):
        assert CANARY.lower() not in shown.lower()


@pytest.mark.parametrize("url", URLS)
def test_what_is_masked_stays_as_it_is(url: str) -> None:
    assert masked(masked(url)) == masked(url)
    assert masked_text(masked_text(url)) == masked_text(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://ada:pw@cache:6379/0?timeout=5", "redis://ada:***@cache:6379/0?timeout=5"),
        ("rediss+sentinel://a:1,b:2/main?prefix=x", "rediss+sentinel://a:1,b:2/main?prefix=x"),
        ("postgresql://db/tasks?sslmode=require&password=pw", "postgresql://db/tasks?sslmode=require&password=***"),
        ("postgresql+psycopg://ada:pw@db/tasks", "postgresql+psycopg://ada:***@db/tasks"),
        ("postgresql://ada:pw@[2001:db8::1]:5432,b/tasks", "postgresql://ada:***@[2001:db8::1]:5432,b/tasks"),
        ("https://token:x-oauth-basic@host/path", "https://***@host/path"),
        ("host=db user=ada password='p w' dbname=x", "host=db user=ada password=*** dbname=x"),
        ("sqlite:////home/me@corp/tasks.db?synchronous=normal", "sqlite:////home/me@corp/tasks.db?synchronous=normal"),
        ("memory://", "memory://"),
        ("redis://localhost", "redis://localhost"),
        ("https://queue.example.com/fairlead", "https://queue.example.com/fairlead"),
        ("Name <name@example.com>", "Name <name@example.com>"),
        ("tasks.db", "tasks.db"),
        (None, None),
        (5, 5),
    ],
)
def test_what_is_no_secret_is_shown(url: object, shown: object) -> None:
    assert masked(url) == shown


@pytest.mark.parametrize(
    "text",
    [
        "task 7 ended; see https://example.com/docs and write to bob@example.com",
        "wrong password: FATAL: password authentication failed for user 'ada'",
        "TimeoutError after 5 s (http://127.0.0.1:8420/docs)",
        '{"mail": "bob@example.com", "at": "12:30"}',
        "a=1 b=2",
        "parameter 'token': expected str, got int; the type of 'api_key': str",
        "    token = get_token(account)\n    secret = vault['x']\n    if token == other: password = self.password",
    ],
)
def test_a_text_without_secrets_is_left_alone(text: str) -> None:
    assert masked_text(text) == text


def test_a_secret_is_known_by_the_name_that_it_has_in_a_mapping() -> None:
    for text in (f"{{'password': '{CANARY}'}}", f'{{"api_key":"{CANARY}"}}', f"Boom({{'PGPASSWORD': '{CANARY}'}})"):
        assert CANARY not in masked_text(text)


def test_a_text_loses_its_secrets_and_nothing_else() -> None:
    key = f"fl_abcdefgh_{'k' * 32}"
    said = (
        f"cannot reach postgresql://ada:{CANARY}@db/x, nor 'redis://:{CANARY} {CANARY}@h' (u:{CANARY}@h, {key}): "
        f"{{'password': '{CANARY}'}} api_key={CANARY} PGPASSWORD=\"{CANARY}\""
    )
    shown = masked_text(said)
    assert CANARY not in shown and "k" * 32 not in shown
    assert shown.startswith("cannot reach postgresql://ada:***@db/x, nor 'redis://:***@h' (u:***@h, fl_abcdefgh_***)")


@given(
    secret=st.text("ab%/?#@:&=; '\"[]\\", min_size=1, max_size=12),
    scheme=st.sampled_from(["redis", "postgresql", "postgresql+psycopg", "smtps", "https", "x"]),
    hosts=st.sampled_from(["h", "h:1", "h1:1,h2:2", "[::1]:5"]),
    tail=st.sampled_from(["", "/0", "/db?sslmode=require", "/x?timeout=5&prefix=p"]),
)
def test_whatever_is_in_a_password_is_hidden(secret: str, scheme: str, hosts: str, tail: str) -> None:
    # Letters that are nowhere else say where the password was.
    password = f"Q{secret}Q".replace("a", "Q")
    shown = masked(f"{scheme}://user:{password}@{hosts}{tail}")
    assert "Q" not in shown and shown.endswith(f"@{hosts}{tail}")


def test_every_error_and_every_failure_of_an_attempt_is_masked() -> None:
    url = f"redis://u:{CANARY}@h"
    for error in (FairleadError(url), InvalidSettings(f"no {url}"), InvalidTask("x", f"x {url}"), Reject(f"at {url}")):
        assert CANARY not in f"{error} {error!r} {error.args}"
    failure = Failure(type="Boom", message=f"at {url}", traceback=f"Traceback\n  connect({url!r})\nBoom: {url}")
    assert CANARY not in repr(failure.storable())


def test_a_value_shows_no_secret() -> None:
    class Place(Masked, frozen=True):
        url: str
        pin: str
        words: list[str]
        hidden = ("pin",)

    place = Place(f"redis://u:{CANARY}@h", CANARY, [f"x://{CANARY}@h"])
    assert repr(place) == "Place(url='redis://u:***@h', pin='***', words=['x://***@h'])"
    assert CANARY not in str(masked_all({"a": [place.url, (place.words[0],)], "b": 5}))


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:12/34@h", "redis://u:p@s/w@h", "redis://u:p#w@h", "redis://u:p?w@h", "redis://u:word",
        "postgresql://u:p@s?x=w@h/db", "redis://:word/0",
    ],
)  # fmt: skip
def test_a_url_is_refused_when_it_is_not_clear_where_its_password_ends(url: str) -> None:
    with pytest.raises(InvalidSettings, match="as %40"):
        check_login("store URL", url)


@pytest.mark.parametrize(
    "url",
    ["redis://u:p@h:1/0", "redis://u:p@w@h", "postgresql://h/db?user=me@server", "postgresql:///db", "redis://[::1]:5",
     "postgresql://u:p%2Fw@h1:1,h2/db", "redis://h:"],
)  # fmt: skip
def test_and_taken_when_it_is(url: str) -> None:
    check_login("store URL", url)


@pytest.mark.parametrize(
    "text",
    ["a" * 300_000 + "=", ":" * 300_000 + "@", 'a://"' * 60_000, "password='" * 30_000, " " * 300_000 + "=",
     "a://u:p@h" * 30_000, "'" * 300_000 + "=", "fl_" * 100_000, "redis://" + ":" * 300_000, "@a://" * 60_000],
    ids=lambda text: text[:8],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_no_text_takes_long(text: str) -> None:
    """Each takes well under a second; what is quadratic would take hours."""
    masked_text(text)
    masked(text)
