"""References and the glossary say what the code says."""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from fairlead.app.config_keys import KEYS
from fairlead.core import errors, retry
from fairlead.core.circuit import CircuitSettings
from fairlead.core.instant import DAY, HOUR, MINUTE, SECOND
from fairlead.core.queues.order import HeadStart, Promote, Strict, Weighted
from fairlead.core.retry import Backoff, RetryRule
from fairlead.core.settings import Defaults, DelayCeilings, PriorityDefaults, Retention, Rules, Settings
from fairlead.core.task import Priority, State
from tests.docs.reading import ROOT, anchors, section, table

DOCS = ROOT / "docs"
SETTINGS = DOCS / "reference" / "settings.md"
ERRORS = DOCS / "reference" / "errors.md"
GLOSSARY = DOCS / "glossary.md"

STRUCTS: list[type[Struct]] = [
    Settings,
    Rules,
    Retention,
    DelayCeilings,
    Defaults,
    PriorityDefaults,
    Backoff,
    RetryRule,
    CircuitSettings,
    Promote,
    Strict,
    HeadStart,
    Weighted,
]
EVERY_ERROR = [
    value
    for value in {**vars(errors), **vars(retry)}.values()
    if isinstance(value, type) and issubclass(value, Exception)
]
WORDS = re.findall(r"^## (.+)$", GLOSSARY.read_text("utf-8"), re.MULTILINE)


def shown(value: object, annotation: str = "") -> str:
    """A default as the reference writes it."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case Priority():
            return value.word
        case int() if annotation == "Span":
            units = ((DAY, "day"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s"))
            length, unit = next(each for each in units if value % each[0] == 0 and (value or each[0] == SECOND))
            count = value // length
            return f"{count} {unit}{'s' if unit == 'day' and count != 1 else ''}"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.10g}"
        case str():
            return f"`{value}`"
        case tuple():
            return ", ".join(map(shown, value)) or "none"
        case _:
            kind = type(value).__name__
            return f"[{kind}](#{kind.lower()})"


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_setting_is_in_the_reference_with_its_default(struct: type[Struct]) -> None:
    expected = {
        field.name: "–" if field.required else shown(field.default, struct.__annotations__[field.name])
        for field in msgspec.structs.fields(struct)
        if not isinstance(field.default, PriorityDefaults)
    }
    rows = table(section(SETTINGS, struct.__name__)) if expected else {}

    assert {name: row[0] for name, row in rows.items() if name in expected} == expected


def test_the_reference_gives_the_defaults_of_each_priority() -> None:
    defaults = Defaults()
    rows = table(section(SETTINGS, "PriorityDefaults").partition("By priority:")[2])

    assert rows == {
        priority.word: (str(defaults.of(priority).max_retries), shown(defaults.of(priority).timeout, "Span"))
        for priority in Priority
    }


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_in_the_reference_with_its_default_and_meaning(key: str) -> None:
    known = KEYS[key]

    assert table(section(SETTINGS, "Keys"))[key] == (shown(known.default), known.doc.replace("|", "\\|"))


def test_the_reference_names_no_key_that_does_not_exist() -> None:
    assert list(table(section(SETTINGS, "Keys"))) == list(KEYS)


@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: error.__name__)
def test_every_error_is_in_the_reference_and_in_its_tree(error: type[Exception]) -> None:
    assert section(ERRORS, error.__name__).strip()
    assert re.search(rf"\b{error.__name__}\b", ERRORS.read_text("utf-8").split("```")[1])


def test_the_reference_names_no_error_that_does_not_exist() -> None:
    assert anchors(ERRORS) - {"errors"} == {error.__name__.lower() for error in EVERY_ERROR}


def test_the_glossary_is_in_alphabetical_order_and_has_no_word_twice() -> None:
    assert sorted(set(WORDS)) == WORDS


@pytest.mark.parametrize("word", WORDS)
def test_every_word_of_the_glossary_has_what_others_call_it(word: str) -> None:
    (also,) = re.findall(r"^\*Also:\* (.+?)\.$", section(GLOSSARY, word), re.MULTILINE | re.DOTALL)

    assert word not in re.split(r"[,;]\s+", also)


@pytest.mark.parametrize("word", WORDS)
def test_every_word_of_the_glossary_exists_in_the_code(word: str) -> None:
    entry = section(GLOSSARY, word)
    places = re.findall(r"`(fairlead\.[\w.]+)`", entry)

    assert places or "*Not built yet.*" in entry
    for place in places:
        resolve(place)


def resolve(place: str) -> Any:
    """What a dotted name stands for: a module, something in it, or a field of that."""
    parts = place.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(_member, parts[length:], found)
    raise LookupError(f"no module of {place}")


def _member(owner: Any, member: str) -> Any:
    if member in getattr(owner, "__struct_fields__", ()):
        return member
    return getattr(owner, member)


def test_the_glossary_names_every_state_and_priority() -> None:
    assert [state for state in State if f"`{state}`" not in section(GLOSSARY, "state")] == []
    assert [each for each in Priority if f"`{each.word}`" not in section(GLOSSARY, "priority")] == []
