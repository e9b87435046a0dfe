"""How deeply JSON is nested is told right, and without going over it again and again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.validation import is_deeper


def values(alphabet: str) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.integers() | st.text(alphabet=alphabet),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet=alphabet, max_size=3), inner, max_size=3)
        ),
        max_leaves=30,
    )


ESCAPED = '[]{}",\\:é'
PLAIN = "[]{},:é"


def depth_of(value: Any) -> int:
    match value:
        case dict():
            return 1 + max(map(depth_of, value.values()), default=0)
        case list():
            return 1 + max(map(depth_of, value), default=0)
        case _:
            return 0


@given(value=values(ESCAPED) | values(PLAIN), most=st.integers(0, 6), ascii_only=st.booleans())
def test_it_is_what_walking_the_value_tells(value: object, most: int, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert is_deeper(text, most) == (depth_of(value) > most)


@pytest.mark.parametrize("depth", [64, 65])
def test_brackets_in_texts_and_beside_each_other_do_not_count(depth: int) -> None:
    wide = [{"[{": "]}" * 100, "[\\": '"[[['}] * 200
    text = json.dumps({"wide": wide, "deep": json.loads("[" * (depth - 1) + "]" * (depth - 1))}).encode()
    assert is_deeper(text, 64) == (depth > 64)
