"""The reference of the Python API has every public name, and says something of each."""

from __future__ import annotations

import re

import fairlead
from scripts.python_page import PAGE, page, told_of


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python scripts/python_page.py"


def test_every_public_name_is_told_of() -> None:
    assert set(fairlead.__all__) - told_of() == set()


def test_something_is_said_of_each() -> None:
    parts = re.split(r"^#{3,4} (.+)\n", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    said = {
        title: re.sub(r"```text\n.*?```", "", text, flags=re.DOTALL)
        for title, text in zip(*[iter(parts)] * 2, strict=True)
    }
    assert [title for title, text in said.items() if not text.replace("From synchronous code:", "").strip()] == []
    assert len(said) > 100


def test_nothing_private_is_told_of() -> None:
    assert re.findall(r"^#### .+\._\w+", PAGE.read_text("utf-8"), flags=re.MULTILINE) == []


def test_every_way_to_call_is_shown_and_every_option_told() -> None:
    page = PAGE.read_text("utf-8")
    assert "group(calls: Iterable[Step], *, callback: Call[R]) -> Chain[R]\ngroup(" in page
    options = page.partition("\n### Options\n")[2].partition("\n### ")[0]
    untold = [line for line in options.splitlines() if line.startswith("- `") and "` – " not in line]
    # A long type is told of on the next line.
    assert [line for line in untold if line.endswith("`")] == []
    assert "microseconds" in page.partition("\n### Submission\n")[2].partition("\n### ")[0]
