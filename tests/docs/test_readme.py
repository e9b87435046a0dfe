"""The README: what it tells people to type is there."""

from __future__ import annotations

import re
from pathlib import Path

import fairlead
from fairlead.cli.program import COMMANDS
from tests.docs.reading import PAGES, ROOT, blocks, name, prose

README = ROOT / "README.md"
LONGEST_EXAMPLE = 10


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {
        (name(page), target)
        for page in PAGES
        for target in re.findall(r"(?:^|`)make ([a-z]+)", page.read_text("utf-8"), re.MULTILINE)
    }

    assert {(page, target) for page, target in named if target not in targets} == set()
    assert {("README.md", "run"), ("README.md", "test")} <= named


def commands(page: Path) -> set[str]:
    """The commands of fairlead that a page tells people to type: in its text, and in blocks that are not Python."""
    typed = "\n".join(block.body for block in blocks(page) if block.language != "python")
    return {
        *re.findall(r"`fairlead ([a-z]+)", prose(page)),
        *re.findall(r"^(?:\w+=)?(?:\S*/)?fairlead ([a-z]+)", typed, re.MULTILINE),
    }


def test_every_command_that_a_page_names_exists() -> None:
    named = {(name(page), command) for page in PAGES for command in commands(page)}

    assert {(page, command) for page, command in named if command not in COMMANDS} == set()
    assert {("README.md", "worker"), ("docs/how-to/run-in-production.md", "worker")} <= named


def test_the_example_is_short() -> None:
    (example,) = (block for block in blocks(README) if block.language == "python")

    assert len([line for line in example.body.splitlines() if line.strip()]) <= LONGEST_EXAMPLE


def test_what_examples_import_from_fairlead_is_exported() -> None:
    imported = {
        (name(page), word.strip())
        for page in PAGES
        for block in blocks(page)
        for words in re.findall(r"^from fairlead import (.+)$", block.body, re.MULTILINE)
        for word in words.split(",")
    }

    assert imported
    assert {(page, word) for page, word in imported if word not in fairlead.__all__} == set()
