"""Pages: their links lead somewhere, their code compiles, and they look alike."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.reading import PAGES, ROOT, Block, anchors, blocks, name, prose

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
WIDTH = 120
TEMPLATE = ROOT / "docs" / "adr" / "0000-template.md"
"""Its links only show what a link will look like."""
PYTHON = [block for page in PAGES for block in blocks(page) if block.language == "python"]

each_page = pytest.mark.parametrize("page", PAGES, ids=name)


def links(page: Path) -> list[tuple[Path, str]]:
    """The pages and anchors that a page leads to within the project."""
    if page == TEMPLATE:
        return []
    targets = [target for target in LINK.findall(prose(page)) if "://" not in target]
    return [
        ((page.parent / path).resolve() if path else page, anchor)
        for path, _, anchor in (target.partition("#") for target in targets)
    ]


@each_page
def test_every_link_leads_to_something_that_is_there(page: Path) -> None:
    assert [target for target, _ in links(page) if not target.exists()] == []


@each_page
def test_every_picture_is_there_and_has_words_for_those_who_cannot_see_it(page: Path) -> None:
    pictures = IMAGE.findall(prose(page))

    assert [target for _, target in pictures if not (page.parent / target).exists()] == []
    assert [target for words, target in pictures if not words] == []


@each_page
def test_every_anchor_is_a_heading_of_its_page(page: Path) -> None:
    lost = [
        (name(target), anchor)
        for target, anchor in links(page)
        if anchor and target.suffix == ".md" and target.exists() and anchor not in anchors(target)
    ]

    assert lost == []


def test_every_page_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    reached: set[Path] = set()
    ahead = [index]
    while ahead:
        page = ahead.pop()
        if page in reached:
            continue
        reached.add(page)
        for target, _ in links(page):
            ahead.extend(target.glob("*.md") if target.is_dir() else [target] if target in PAGES else [])

    assert [name(page) for page in PAGES if page not in reached and page.name != "README.md"] == []


WRITTEN = [page for page in PAGES if not page.read_text("utf-8").startswith("<!-- Generated")]


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_lines_are_wrapped(page: Path) -> None:
    long = [
        number
        for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1)
        if len(line) > WIDTH and not line.lstrip().startswith("|")  # A table cannot be wrapped.
    ]

    assert long == []


@each_page
def test_a_page_has_one_title(page: Path) -> None:
    assert len(re.findall(r"^# ", prose(page), re.MULTILINE)) == 1


@each_page
def test_an_item_of_a_numbered_list_begins_a_line(page: Path) -> None:
    number, within = 0, []
    for line in prose(page).splitlines():
        if line.startswith("#"):
            number = 0
        if item := re.match(r" *(\d+)\. ", line):
            number = int(item[1])
        if number and f" {number + 1}. " in line.lstrip():
            within.append(line)

    assert within == []


READ_FIRST = [page for page in PAGES if page.parent.name in {"docs", "how-to", "explanation", "contributing"}]


@pytest.mark.parametrize("page", READ_FIRST, ids=name)
def test_a_page_begins_with_what_it_is_for(page: Path) -> None:
    beginning = page.read_text("utf-8").partition("# ")[2].split("\n\n")[1]

    assert not beginning.startswith(("#", "|", "```", "    ", "- ", "![")), beginning


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_in_a_page_compiles(block: Block) -> None:
    compile(block.body, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


def test_adrs_are_numbered_once_and_have_every_part() -> None:
    records = [page for page in PAGES if page.parent.name == "adr" and page.name != "README.md"]
    numbers = [record.name[:4] for record in records]

    assert len(set(numbers)) == len(numbers)
    for record in records:
        text = record.read_text("utf-8")
        assert text.startswith(f"# {record.name[:4]} – "), name(record)
        for part in ("Context", "Decision", "Consequences", "What would change our mind"):
            assert f"\n## {part}\n" in text, f"{name(record)} has no {part}"
