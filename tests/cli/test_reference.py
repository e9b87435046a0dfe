"""The page on the command line says what the commands say."""

from __future__ import annotations

from pathlib import Path

from fairlead.cli.program import COMMANDS
from fairlead.cli.reference import page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m fairlead.cli.reference > docs/reference/cli.md"


def test_it_tells_of_every_command() -> None:
    text = page()
    assert [name for name in COMMANDS if f"\n## fairlead {name}\n" not in text] == []
