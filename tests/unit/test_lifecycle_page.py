"""The page on the life of a task says what the table says."""

from __future__ import annotations

from fairlead.core.transitions import TRANSITIONS
from scripts.lifecycle_page import PAGE, SENTENCES, arrows, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python scripts/lifecycle_page.py"


def test_every_transition_is_an_arrow_and_every_arrow_has_its_sentence() -> None:
    assert len(arrows()) == sum(len(targets) for targets in TRANSITIONS.values())
    assert set(arrows()) == set(SENTENCES)


def test_every_sentence_is_one() -> None:
    assert [sentence for sentence in SENTENCES.values() if not sentence.endswith(".") or ". " in sentence] == []
