"""A star stands for any characters, none among them, and nothing else is special."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.query.match import Glob


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("*", "anything\nat all", True),
        ("a", "a", True),
        ("a*", "abc", True),
        ("*c", "abc", True),
        ("a*c", "ac", True),
        ("a*a", "a", False),
        ("ab*ba", "aba", False),
        ("a**b", "a-b", True),
        ("*b*", "abc", True),
        ("a*b*c", "a-c-b-c", True),
        ("*ab*ab*", "ab", False),
        ("a.c", "abc", False),
        ("[a]*", "a", False),
        ("a*\\", "a\\", True),
    ],
)
def test_a_star_stands_for_any_characters(pattern: str, text: str, matches: bool) -> None:
    assert Glob(pattern).matches(text) is matches


@given(pattern=st.text("ab*.", max_size=8), text=st.text("ab.", max_size=8))
def test_it_agrees_with_a_regular_expression(pattern: str, text: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert Glob(pattern).matches(text) == (re.fullmatch(expression, text, re.DOTALL) is not None)


def test_many_stars_take_one_walk_through_the_text() -> None:
    """As a regular expression this takes longer than anybody waits."""
    assert not Glob("*a" * 500 + "*b").matches("a" * 100_000)
