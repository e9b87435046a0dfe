"""Queries: which tasks are meant, as people write it and as it is kept.

    state:dead_letter,failed type:send_* error:Timeout created:>-1h params.user_id:42 -tag:eu "free text"

A query is a list of terms that all must hold; a term names a field and one or more values of which one must hold, and
a minus turns it around. This module has the values, and how they are written: `str(query)` is the canonical text, and
reading that gives the same query. `fairlead.core.query.parser` reads, `fairlead.core.query.match` decides.
"""

from __future__ import annotations

import enum
import re
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from msgspec import Struct

from fairlead.core.instant import DAY, HOUR, MINUTE, SECOND, Instant, Span
from fairlead.core.task import Priority, State

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNITS: Final = {"w": 7 * DAY, "d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "ms": 1_000, "us": 1}
"""The units of a relative moment, the largest first."""
PARAMETERS: Final = "params"
"""What the field of a parameter begins with."""

_BARE: Final = re.compile(r"[^\s\",*\\<>:-][^\s\",*\\]*")
_BARE_TEXT: Final = re.compile(r"[^\s\",*\\<>:-][^\s\",*\\:]*")


class Kind(enum.Enum):
    """What the values of a field are."""

    STATE = enum.auto()
    PRIORITY = enum.auto()
    NAME = enum.auto()
    """Compared as a whole; a star stands for any characters."""
    ID = enum.auto()
    """A name in hexadecimal digits, in any case and with or without dashes."""
    TEXT = enum.auto()
    """Looked for inside, in any case; a star stands for any characters."""
    MOMENT = enum.auto()
    NUMBER = enum.auto()
    PARAMETER = enum.auto()


FIELDS: Final[dict[str, Kind]] = {
    "state": Kind.STATE,
    "queue": Kind.NAME,
    "type": Kind.NAME,
    "priority": Kind.PRIORITY,
    "worker": Kind.NAME,
    "tag": Kind.NAME,
    "tenant": Kind.NAME,
    "id": Kind.ID,
    "error": Kind.TEXT,
    "fingerprint": Kind.ID,
    "created": Kind.MOMENT,
    "ready": Kind.MOMENT,
    "ended": Kind.MOMENT,
    "attempts": Kind.NUMBER,
    "retries": Kind.NUMBER,
}
"""The fields by name; those of parameters, `params.<path>`, come beside."""


class Word(Struct, frozen=True, tag=True):
    """A text; with `glob`, one in which a star stands for any characters."""

    text: str
    glob: bool = False

    def __str__(self) -> str:
        return self.text if self.glob or _plain(self.text, _BARE) else quoted(self.text)


class Ago(Struct, frozen=True, tag=True):
    """A moment so far from now; before it, if negative."""

    offset: Span

    def __str__(self) -> str:
        sign, size = "-" if self.offset <= 0 else "+", abs(self.offset)
        unit = next(unit for unit, length in UNITS.items() if size % length == 0 and (size or unit == "s"))
        return f"{sign}{size // UNITS[unit]}{unit}"


class At(Struct, frozen=True, tag=True):
    """A moment as it is written: a day, a minute, a second or a microsecond, from its first instant to its last."""

    first: Instant
    last: Instant

    def __str__(self) -> str:
        text = (EPOCH + timedelta(microseconds=self.first)).replace(tzinfo=None).isoformat(timespec="microseconds")
        return f"{text[: _LENGTHS[self.last - self.first + 1]]}{'' if self.last - self.first + 1 == DAY else 'Z'}"


_LENGTHS: Final[dict[Span, int]] = {DAY: 10, MINUTE: 16, SECOND: 19, 1: 26}
"""How much of a moment is written, by how long it lasts."""


class Number(Struct, frozen=True, tag=True):
    """A number."""

    value: int | float

    def __str__(self) -> str:
        return repr(self.value)


Edge: TypeAlias = Ago | At | Number


class Within(Struct, frozen=True, tag=True):
    """From one edge to another, both included as a whole unless they are open; None for no edge."""

    low: Edge | None = None
    high: Edge | None = None
    low_open: bool = False
    """Whether it begins only behind its low edge."""
    high_open: bool = False
    """Whether it ends already before its high edge."""

    def __str__(self) -> str:
        if self.low is not None and self.high is not None:
            single = self.low == self.high and not isinstance(self.low, Ago)
            return str(self.low) if single else f"{self.low}..{self.high}"
        if self.low is not None:
            return f"{'>' if self.low_open else '>='}{self.low}"
        return f"{'<' if self.high_open else '<='}{self.high}"


Value: TypeAlias = Word | Within


class Term(Struct, frozen=True, kw_only=True):
    """One condition: any of these values, in this field; or, negated, none of them."""

    field: str
    """One of `FIELDS`, `params.<path>`, or empty for text anywhere in the error or the parameters."""
    values: tuple[Value, ...]
    negated: bool = False

    @property
    def kind(self) -> Kind:
        """What its values are."""
        if not self.field:
            return Kind.TEXT
        return FIELDS.get(self.field, Kind.PARAMETER)

    @property
    def words(self) -> tuple[str, ...]:
        """Its values, if all are plain texts without a star; otherwise nothing."""
        plain = [value.text for value in self.values if isinstance(value, Word) and not value.glob]
        return tuple(plain) if len(plain) == len(self.values) else ()

    def __str__(self) -> str:
        sign = "-" if self.negated else ""
        if self.field:
            return f"{sign}{self.field}:{','.join(map(str, self.values))}"
        (value,) = self.values
        text = value.text if isinstance(value, Word) else ""
        return f"{sign}{text if _plain(text, _BARE_TEXT) else quoted(text)}"


class Query(Struct, frozen=True):
    """Which tasks are meant: those of which every term is true."""

    terms: tuple[Term, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.terms))

    def names(self, field: str) -> bool:
        """Whether any term is about this field."""
        return any(term.field == field for term in self.terms)

    def and_(self, *terms: Term) -> Query:
        """The query with further terms that must hold."""
        return Query((*self.terms, *(term for term in terms if term not in self.terms)))


EVERYTHING: Final = Query()
"""The query that every task answers."""


def term(field: str, *words: str) -> Term:
    """The condition that a field is one of these words exactly."""
    return Term(field=field, values=tuple(Word(word) for word in words))


def states_of(named: Term) -> frozenset[State]:
    """The states that a term about the state admits."""
    states = frozenset(State(word) for word in named.words)
    return frozenset(State) - states if named.negated else states


def priorities_of(named: Term) -> frozenset[Priority]:
    """The priorities that a term about the priority admits."""
    priorities = frozenset(Priority.parse(word) for word in named.words)
    return frozenset(Priority) - priorities if named.negated else priorities


def quoted(text: str) -> str:
    """A text in quotes, in which nothing has a meaning of its own."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _plain(text: str, bare: re.Pattern[str]) -> bool:
    return ".." not in text and bare.fullmatch(text) is not None


DEAD: Final = term("state", State.DEAD_LETTER)
"""The condition that a task is a dead letter."""


def dead_letters_of(query: Query) -> Query:
    """A query about dead letters, unless it says which states it is about."""
    return query if query.names("state") else query.and_(DEAD)
