"""The page of where fairlead differs from its founding designs tells each such thing with its reason."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.docs.reading import ROOT, rows, section

PAGE: Final = ROOT / "docs/explanation/founding-designs.md"

TITLES: Final = re.findall(r"^## (.+)$", PAGE.read_text("utf-8"), re.MULTILINE)

SUPERSEDED: Final = {
    "Promotion without a job",
    "60 minutes, and what is bounded",
    "A budget for crashes",
    "No Redlock",
    "No probes of workers",
    "No gRPC",
    "`assigned` is folded into executing",
}
"""What the designs asked for, and was given up on purpose."""


def test_all_that_was_superseded_is_told() -> None:
    assert set(TITLES) >= SUPERSEDED


def test_the_table_leads_to_each_of_them_in_their_order() -> None:
    links = [row[2] for row in rows(PAGE.read_text("utf-8"))]
    anchors = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in TITLES]
    assert links == [f"[why](#{anchor})" for anchor in anchors]


@pytest.mark.parametrize("title", TITLES)
def test_each_says_what_was_designed_what_there_is_and_why(title: str) -> None:
    begins = re.findall(r"^\*(.+?):\*", section(PAGE, title), re.MULTILINE)
    assert begins[:3] == ["The designs", "fairlead", "Why"]
