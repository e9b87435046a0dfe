"""The commands that pages of the dashboard tell people to type are commands of the program."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import pytest

from fairlead.cli.program import program

_PAGES: Final = Path(__file__).parents[2] / "dashboard" / "src"
_TOLD: Final = sorted(
    {
        " ".join(command.split())
        for page in _PAGES.rglob("*.svelte")
        for command in re.findall(r"<code>\s*(fairlead [^<]+)</code>", page.read_text("utf-8"))
    }
)


def test_pages_tell_people_what_to_type() -> None:
    assert len(_TOLD) >= 5


@pytest.mark.parametrize("command", _TOLD)
def test_the_program_understands_what_a_page_tells(command: str) -> None:
    words = shlex.split(command.replace("{name}", "mail"))[1:]

    function, *_ = program(wanted=words[0]).parse_args(words, print_error=False, exit_on_error=False)

    assert function.__module__.startswith("fairlead.cli.")
