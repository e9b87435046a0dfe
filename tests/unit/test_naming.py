"""Modules, packages and classes are named by the rules in CONTRIBUTING."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import pytest

import fairlead
import fairlead.local

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "fairlead"
MODULES: Final = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
PLAIN_WORDS: Final = (Path(__file__).parent / "plain_words.txt").read_text("utf-8").split()
GLOSSARY: Final = (ROOT / "docs" / "glossary.md").read_text("utf-8")

MOST_MODULES: Final = 20

NOT_GERUNDS: Final = {"testing", "setting"}
"""A package for tests, by its usual name, and a noun."""

PARALLEL: Final = re.compile(r"storage/(memory|sqlite|redis|postgres|journal)/|client/http/")
"""Stores, and ways to a server, have classes of one name that do one thing, each in its own way."""

SAME_NAME: Final = (
    # What users write in seconds is kept by the struct of that name, from which its class derives.
    *("Backoff", "CircuitSettings", "Defaults", "DelayCeilings", "HeadStart", "PriorityDefaults", "Promote"),
    *("Retention", "Rules", "RetryRule", "Settings"),
    # To be told apart.
    *("Call", "Connection", "Keys", "Kind", "Listener", "Records", "Session", "Throughput"),
)
"""Classes whose name means two things. Take out what is told apart; add none."""

PRESCRIBED: Final = {"Task": {"core/task.py", "local/task.py"}}
"""The class whose name is given: programs that were written for the in-process queue as it was first described import
`fairlead.local.Task`. It means what it does there nowhere else."""


OPERATIONS: Final = {"store", "add", "claim", "change", "read", "feed", "wait", "records", "health", "url"}
"""What each store that keeps tasks outside of the process has a file for. Memory's is read in one sitting."""


def words() -> set[str]:
    """The words that packages and modules are named with."""
    names = {name for path in MODULES for name in path.with_suffix("").parts}
    return {word for name in names for word in re.findall(r"[a-z]+", name)} - {"init", "main"}


def public_words() -> set[str]:
    """The words in the names of the classes that programs import."""
    exported = [getattr(package, name) for package in (fairlead, fairlead.local) for name in package.__all__]
    return {
        word.lower()
        for each in exported
        if isinstance(each, type)
        for word in re.findall(r"[A-Z][a-z]*", each.__name__)
    }


def is_in_glossary(word: str) -> bool:
    """Whether a heading of the glossary has the word, in its singular or its plural."""
    headings = " ".join(re.findall(r"^## (.+)$", GLOSSARY, re.MULTILINE))
    singular = re.sub(r"ies$", "y", word) if word.endswith("ies") else word.removesuffix("s")
    return bool({word, singular} & set(re.findall(r"\w+", headings.lower())))


def test_no_module_is_named_by_a_gerund() -> None:
    gerunds = {word for word in words() if word.endswith("ing")}

    assert gerunds == NOT_GERUNDS


def test_a_package_has_a_bounded_number_of_modules() -> None:
    modules = Counter(path.parent.as_posix() for path in MODULES if path.stem != "__init__")

    assert {package: count for package, count in modules.items() if count > MOST_MODULES} == {}


@pytest.mark.parametrize("store", ["sqlite", "redis", "postgres"])
def test_the_same_operation_has_the_same_file_name_in_every_store(store: str) -> None:
    there = {path.stem for path in (SOURCE / "storage" / store).glob("*.py")}

    assert OPERATIONS - there == set()


def test_a_class_name_means_one_thing() -> None:
    places = defaultdict(set)
    for path in MODULES:
        for node in ast.parse((SOURCE / path).read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                parallel = PARALLEL.match(path.as_posix())
                places[node.name].add("parallel" if parallel else path.as_posix())

    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: twice.pop(name, None) for name in PRESCRIBED} == PRESCRIBED
    assert set(twice) == set(SAME_NAME)


def test_every_word_of_a_name_is_in_the_glossary_or_plain() -> None:
    assert {word for word in words() | public_words() if not is_in_glossary(word)} == set(PLAIN_WORDS)


def test_the_plain_words_are_in_order() -> None:
    assert sorted(set(PLAIN_WORDS)) == PLAIN_WORDS
