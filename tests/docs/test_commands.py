"""Every command line that a page shows is one that the program takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

import pytest
from cyclopts import App

from fairlead.cli.options import switched_on
from fairlead.cli.program import program
from tests.docs.reading import PAGES, Block, blocks

SHELLS: Final = {"sh", "console"}
_ENDS: Final = re.compile(r"[|&;<>]|\d?>.*")


def shown() -> Iterator[tuple[Block, str]]:
    """The lines with a command in the shell blocks of all pages; in a session they begin with `$`."""
    for page in PAGES:
        for block in blocks(page):
            if block.language in SHELLS:
                for line in re.sub(r"\\\n\s*", " ", block.body).splitlines():
                    begins = "$ fairlead " if block.language == "console" else "fairlead "
                    if line.startswith(begins) and "…" not in line:
                        yield block, line.removeprefix("$ ")


def words_of(line: str) -> list[str]:
    """The arguments of a command, up to what the shell does with its output."""
    words = shlex.split(line, comments=True)[1:]
    return words[: next((at for at, word in enumerate(words) if _ENDS.fullmatch(word)), len(words))]


@pytest.fixture(scope="module")
def whole_program() -> App:
    return program()


@pytest.mark.parametrize(("block", "line"), list(shown()), ids=str)
def test_the_program_takes_what_a_page_shows(block: Block, line: str, whole_program: App) -> None:
    whole_program.parse_args(switched_on(words_of(line)), print_error=False, exit_on_error=False)
