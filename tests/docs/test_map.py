"""The map of the code is what the code is, and its questions are answered by files that are there."""

from __future__ import annotations

import re
from typing import Final

import pytest

from scripts.code_map import PAGE, SOURCE, drawn, page
from tests.docs.reading import ROOT, rows, section

QUESTIONS: Final = [tuple(cell.strip("`") for cell in row) for row in rows(section(PAGE, "Where is it decided …"))]
FOUND: Final = [question for question in QUESTIONS if question[2] == "yes"]
ADDING: Final = PAGE.with_name("add-something.md")


def words(question: str) -> list[str]:
    """What somebody with this question searches for."""
    return [word.replace(" ", "_") for word in re.findall(r"\*\*(.+?)\*\*", question)]


def test_the_generated_part_is_up_to_date() -> None:
    text = PAGE.read_text("utf-8")

    assert text == page(text), "run make map"


def test_an_import_that_follows_from_others_is_not_drawn() -> None:
    assert drawn({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == [("a", "b"), ("b", "c")]


def test_there_are_thirty_questions_and_most_are_answered_by_a_name() -> None:
    assert len({question for question, *_ in QUESTIONS}) == 30
    assert len(FOUND) >= 20


@pytest.mark.parametrize(("question", "path", "by_name"), QUESTIONS)
def test_a_question_is_answered_by_a_file_that_bears_its_word_or_not(question: str, path: str, by_name: str) -> None:
    assert (SOURCE / path).is_file()
    assert words(question)
    assert by_name == ("yes" if any(word in path for word in words(question)) else "no")


@pytest.mark.parametrize("path", re.findall(r"`([\w/]+/[\w/]*\.(?:py|ts|md))`", ADDING.read_text("utf-8")))
def test_a_file_that_is_to_be_changed_is_there(path: str) -> None:
    assert (ROOT / path).exists() or (SOURCE / path).exists()
