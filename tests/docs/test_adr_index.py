"""The index of decision records lists each of them once, and says of each what has superseded it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from msgspec import Struct

from tests.docs.reading import ROOT, rows

ADR: Final = ROOT / "docs" / "adr"
INDEX: Final = ADR / "README.md"
_LINK: Final = r"\[(\d{4})\]"


class Record(Struct, frozen=True):
    """A record, as its first lines tell of it."""

    file: str
    title: str
    superseded_by: tuple[str, ...]
    supersedes: tuple[str, ...]

    @property
    def number(self) -> str:
        return self.file[:4]


def read(path: Path) -> Record:
    heading, _, rest = path.read_text("utf-8").partition("\n\n")
    status = " ".join(rest.partition("\n\n")[0].split()).partition("Status: ")[2]
    by, _, over = status.partition("Supersedes ")
    return Record(
        file=path.name,
        title=heading.partition(" – ")[2],
        superseded_by=tuple(re.findall(f"superseded by {_LINK}", by)),
        supersedes=tuple(re.findall(_LINK, over.partition(". ")[0])),
    )


RECORDS: Final = [read(path) for path in sorted(ADR.glob("[0-9]*.md")) if path.name != "0000-template.md"]
LISTED: Final = [row for row in rows(INDEX.read_text("utf-8")) if row[0].startswith("[")]


def row(record: Record) -> tuple[str, str]:
    """The first columns of a record's row in the index."""
    return f"[{record.number}]({record.file})", record.title


def test_every_record_is_listed_once_with_its_title() -> None:
    listed = [(link, title) for link, title, _ in LISTED]
    missing = [row(record) for record in RECORDS if row(record) not in listed]
    wrong = [each for each in listed if each not in map(row, RECORDS) or listed.count(each) > 1]

    assert not missing, "add to the part of docs/adr/README.md that it is about:\n" + "\n".join(
        f"| {link} | {title} |  |" for link, title in missing
    )
    assert not wrong, f"docs/adr/README.md lists what is no record's title, or lists it twice: {wrong}"


def test_each_part_of_the_index_is_in_order() -> None:
    for part in INDEX.read_text("utf-8").split("\n## ")[1:]:
        numbers = [link for link, *_ in rows(part) if link.startswith("[")]
        assert numbers == sorted(numbers), part.partition("\n")[0]


def test_the_index_says_what_has_superseded_a_record() -> None:
    marked = {link: tuple(re.findall(_LINK, mark)) for link, _, mark in LISTED}
    expected = {row(record)[0]: record.superseded_by for record in RECORDS}

    assert marked == expected, "the last column of docs/adr/README.md differs from the status lines of the records"


def test_both_records_say_that_one_supersedes_the_other() -> None:
    said_by_the_older = {(record.number, newer) for record in RECORDS for newer in record.superseded_by}
    said_by_the_newer = {(older, record.number) for record in RECORDS for older in record.supersedes}

    only_older, only_newer = said_by_the_older - said_by_the_newer, said_by_the_newer - said_by_the_older
    assert not only_older, f"the later record's status line lacks `Supersedes …`: {only_older}"
    assert not only_newer, f"the earlier record's status line lacks `superseded by …`: {only_newer}"
    assert said_by_the_older
