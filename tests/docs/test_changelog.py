"""The changelog has the form that people and programs expect."""

from __future__ import annotations

import re
from typing import Final

from fairlead import __version__
from tests.docs.reading import ROOT, prose

TEXT: Final = prose(ROOT / "CHANGELOG.md")
SECTIONS: Final = ("Breaking changes", "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def test_unreleased_comes_first_and_then_the_newest_version() -> None:
    first, *versions = re.findall(r"^## \[(.+?)\]", TEXT, re.MULTILINE)
    numbers = [_number(version) for version in versions]

    assert first == "Unreleased"
    assert numbers == sorted(set(numbers), reverse=True)
    assert numbers[:1] <= [_number(__version__)], "the code's version is older than the changelog's newest"


def test_every_version_has_the_same_sections_in_the_same_order() -> None:
    for entry in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]:
        found = re.findall(r"^### (.+)$", entry, re.MULTILINE)

        assert found == [section for section in SECTIONS if section in found]


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
