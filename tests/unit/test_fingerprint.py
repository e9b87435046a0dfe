"""Fingerprints: the same error with different ids is one group, and another error is another."""

from __future__ import annotations

import pytest

from fairlead.core.dead_letters import fingerprint_of, pattern_of
from fairlead.core.task import Failure


@pytest.mark.parametrize(
    ("messages", "pattern"),
    [
        (["user 42 not found", "user 1234567 not found"], "user <n> not found"),
        (["order A17-B3 failed", "order A9-B12 failed"], "order A<n>-B<n> failed"),
        (["took 1.5 s of 30", "took 29,75 s of 30"], "took <n> s of <n>"),
        (
            ["no 019a85f3c2d08000a3d25f1e9c7b4a60", "no 01a1de85-43e9-8af1-80df-27e580779234"],
            "no <id>",
        ),
        (["object at 0x7f3a90 is gone", "object at 0xdeadbeef01 is gone"], "object at <hex> is gone"),
        (["commit 3f9ac81d is bad", "commit 00ffee1234 is bad"], "commit <hex> is bad"),
        (["key 'user:1' is missing", 'key "x y" is missing'], "key <value> is missing"),
        (["cannot open /srv/a/b.txt", "cannot open /home/ada/c.d/e"], "cannot open <path>"),
        (["GET https://a.example/x?y=1 failed", "GET http://b.example:80/ failed"], "GET <url> failed"),
        (["bounce from ada@example.org", "bounce from b.c+d@mail.example.com"], "bounce from <email>"),
        (["due 2026-11-15T08:00:00Z", "due 2027-01-02 09:30:00.25+02:00"], "due <time>"),
        (["ids 1, 2, 3 clash", "ids 4, 5 clash"], "ids <n>… clash"),
        (["two\n  lines", "two lines"], "two lines"),
        (["can't decide, won't decide"], "can't decide, won't decide"),
        (["", "  "], ""),
    ],
)
def test_what_varies_is_named_instead(messages: list[str], pattern: str) -> None:
    assert {pattern_of(message) for message in messages} == {pattern}


def test_an_error_of_another_type_or_with_other_words_has_another_fingerprint() -> None:
    failures = [
        Failure(type="KeyError", message="user 1"),
        Failure(type="LookupError", message="user 1"),
        Failure(type="KeyError", message="order 1"),
    ]

    assert len({fingerprint_of(failure) for failure in failures}) == 3


def test_a_fingerprint_is_the_same_for_ever() -> None:
    # Queries that name one are kept: changing how it is made must be a decision.
    assert (
        fingerprint_of(Failure(type="TimeoutError", message="no answer from smtp-7 within 30 s")) == "9026825fbd1e959f"
    )


def test_long_messages_are_the_same_if_their_beginning_is() -> None:
    assert pattern_of("word " * 500 + "one") == pattern_of("word " * 400 + "two")
