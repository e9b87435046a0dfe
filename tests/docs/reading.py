"""The pages under test, and the parts of them that tests look at."""

from __future__ import annotations

import itertools
import re
import textwrap
from pathlib import Path
from typing import Final

from msgspec import Struct

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    [
        *(ROOT / f"{page}.md" for page in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)

_FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>[a-z]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_HEADING: Final = re.compile(r"^(#+) (.+)$", re.MULTILINE)


class Block(Struct, frozen=True):
    """A block of code in a page."""

    page: Path
    line: int
    language: str
    body: str

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


def name(page: Path) -> str:
    """A page as people call it."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """The code blocks of a page."""
    text = page.read_text("utf-8")
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match["language"], textwrap.dedent(match["body"]))
        for match in _FENCE.finditer(text)
    ]


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """What a link into a page may name after its `#`."""
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for _, title in _HEADING.findall(prose(page))}


def section(page: Path, title: str) -> str:
    """What a page says under a heading, up to the next heading of that level or a higher one."""
    text = page.read_text("utf-8")
    for heading in _HEADING.finditer(text):
        if heading[2] == title:
            rest = text[heading.end() :]
            end = re.search(rf"^#{{1,{len(heading[1])}}} ", rest, re.MULTILINE)
            return rest[: end.start()] if end else rest
    raise LookupError(f"{name(page)} has no heading {title!r}")


def table(text: str) -> dict[str, tuple[str, ...]]:
    """The rows of the first table in a text, without its header, by what stands in their first column."""
    lines = itertools.takewhile(_in_table, itertools.dropwhile(lambda line: not _in_table(line), text.splitlines()))
    return {cells[0].strip("`"): cells[1:] for cells in list(map(_cells, lines))[2:]}


def rows(text: str) -> list[tuple[str, ...]]:
    """The rows of all tables in a text, without their headers."""
    found: list[tuple[str, ...]] = []
    for in_table, lines in itertools.groupby(text.splitlines(), key=_in_table):
        if in_table:
            found += [_cells(line) for line in lines][2:]
    return found


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|")))


def _in_table(line: str) -> bool:
    return line.startswith("|")
