"""The HTTP reference says what the endpoints say."""

from __future__ import annotations

import re

from fairlead.server.docs.pages import ENDPOINTS
from fairlead.server.docs.reference import page
from fairlead.server.http.problems import KINDS
from tests.docs.reading import ROOT, anchors, section, table
from tests.docs.test_pages import WIDTH

PAGE = ROOT / "docs" / "reference" / "http.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == page(), "run python -m fairlead.server.docs.reference > docs/reference/http.md"


def test_it_tells_of_every_endpoint() -> None:
    told = set(re.findall(r"^`([A-Z]+ /\S*)`", PAGE.read_text("utf-8"), re.MULTILINE))

    assert told == {f"{endpoint.method} {endpoint.plain_path}" for endpoint in ENDPOINTS}


def test_it_tells_of_every_kind_of_problem() -> None:
    assert set(KINDS) <= anchors(PAGE)


def test_it_tells_the_defaults_of_fields() -> None:
    assert table(section(PAGE, "SubmitRequest"))["on_failure"][1] == '`"cancel"`'


def test_its_lines_are_wrapped() -> None:
    long = [line for line in page().splitlines() if len(line) > WIDTH and not line.startswith("|")]

    assert long == []
