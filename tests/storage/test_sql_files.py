"""Every statement of the SQL files is used, every one that is used is there, and each has a header."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from fairlead.storage.sql_files import statements_in
from tests.storage.sections import STORAGE, files, names, sections

STORES: Final = ("sqlite", "postgres", "journal")
_LIKE_A_NAME: Final = re.compile(r"[a-z_]+\.[a-z_]+")
_OTHER: Final = {"empty.db", "fairlead.store", "fuse.sshfs"}
"""What looks like the name of a statement in the stores' modules, and is none."""
_FILES: Final = [pytest.param(file, id=f"{store}/{file.name}") for store in STORES for file in files(store)]


@pytest.mark.parametrize("store", STORES)
def test_every_statement_is_used(store: str) -> None:
    assert set(names(store)) - _uses(store) == set()


@pytest.mark.parametrize("store", STORES)
def test_every_statement_that_is_used_is_there(store: str) -> None:
    known = set(names(store))
    if store == "journal":
        # It keeps records and examines its server as the store in PostgreSQL does.
        own = {file.stem for file in files(store)}
        known |= {name for name in names("postgres") if name.partition(".")[0] not in own}
    assert _uses(store) - known == set()


@pytest.mark.parametrize("store", STORES)
def test_no_name_is_given_twice(store: str) -> None:
    assert [name for name, times in Counter(names(store)).items() if times > 1] == []


@pytest.mark.parametrize("file", _FILES)
def test_a_file_has_nothing_but_sections_named_after_it(file: Path) -> None:
    assert file.suffix == ".sql"
    found = [name for name, _ in sections(file)]
    assert found
    assert [name for name in found if not re.fullmatch(rf"{file.stem}\.[a-z_]+", name)] == []


@pytest.mark.parametrize("file", _FILES)
def test_a_section_is_a_header_and_one_statement(file: Path) -> None:
    statement = statements_in(file.parent)
    for name, text in sections(file):
        assert re.match(r"-- \S", text), f"{name} does not say what it does"
        assert statement(name), f"{name} is empty"
        assert ";" not in statement(name), f"{name} is more than one statement"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "read.sql").write_text(
        "-- name: read.one\n-- One. Parameters: id.\nSELECT ?\n    -- of many\nLIMIT 1\n\n"
        "-- name: read.one_more\n-- One more.\nSELECT 2\n"
    )
    return tmp_path


def test_a_statement_comes_without_its_comments(folder: Path) -> None:
    statement = statements_in(folder)
    assert statement("read.one") == "SELECT ?\nLIMIT 1"
    assert statement("read.one_more") == "SELECT 2"


def test_a_statement_that_is_not_there_is_an_error(folder: Path) -> None:
    with pytest.raises(KeyError, match=r"read\.two"):
        statements_in(folder)("read.two")
    with pytest.raises(FileNotFoundError, match=r"write\.sql"):
        statements_in(folder)("write.one")


def test_a_statement_is_read_when_it_is_first_needed_and_once(folder: Path) -> None:
    statement = statements_in(folder)
    first = statement("read.one")
    (folder / "read.sql").unlink()
    assert statement("read.one") is first


def _uses(store: str) -> set[str]:
    return {name for module in (STORAGE / store).rglob("*.py") for name in _named_in(module)} - _OTHER


def _named_in(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _LIKE_A_NAME.fullmatch(node.value):
            yield node.value
