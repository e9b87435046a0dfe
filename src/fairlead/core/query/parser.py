"""Reading queries: from what a person wrote to a `Query`, or to an error that points at the mistake."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from fairlead.core.errors import InvalidTask, QueryError
from fairlead.core.instant import DAY, LATEST, LONGEST, MINUTE, SECOND, Instant
from fairlead.core.query.query import (
    EPOCH,
    FIELDS,
    PARAMETERS,
    UNITS,
    Ago,
    At,
    Edge,
    Kind,
    Number,
    Query,
    Term,
    Value,
    Within,
    Word,
)
from fairlead.core.task import Priority, State
from fairlead.core.validation import is_unicode, shown

MOST_CHARACTERS: Final = 4_000
MOST_VALUES: Final = 500
MOST_PATTERNS: Final = 50
"""How many of them may have a star, compare, or be free text: each is looked for by itself, wherever it could be."""

_FIELD: Final = re.compile(r"([A-Za-z_][^\s\":,]*):")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BARE_VALUE: Final = re.compile(r"[^\s\",]+")
_BARE_TEXT: Final = re.compile(r"[^\s\"]+")
_SIGN: Final = re.compile(r">=|<=|>|<")
_RELATIVE: Final = re.compile(rf"([+-])(\d{{1,18}}(?:\.\d{{1,6}})?)({'|'.join(UNITS)})")
_MOMENT: Final = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)(?:[T ](?P<minute>\d\d:\d\d)(?P<second>:\d\d(?P<rest>\.\d{1,6})?)?)?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
_NUMBER: Final = re.compile(r"[+-]?\d{1,300}(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?")
_MOMENT_FORMS: Final = "a moment such as 2026-11-15, 2026-11-15T08:00Z, -1h or -7d"
_ESCAPED: Final = re.compile(r"\\([\"\\])")
_HEX: Final = re.compile(r"[0-9a-f*]*")


def parse_query(text: str) -> Query:
    """The query that a text means; raises QueryError, which points at the mistake."""
    if not isinstance(text, str):
        raise QueryError(f"query {shown(text)} is not a text; write one such as 'state:failed queue:mail'", "", 0)
    if not is_unicode(text):
        raise QueryError("the query is not valid Unicode; remove its lone surrogates", shown(text), 0)
    return _Reader(text).query()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._values = 0
        self._patterns = 0

    def query(self) -> Query:
        if len(self._text) > MOST_CHARACTERS:
            size = len(self._text)
            raise self._mistake(f"the query is {size:,} characters long; use {MOST_CHARACTERS:,} at most", 0, 1)
        terms: list[Term] = []
        while self._skip_blanks():
            terms.append(self._term())
        return Query(tuple(dict.fromkeys(terms)))

    def _skip_blanks(self) -> bool:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at < len(self._text)

    def _term(self) -> Term:
        begin = self._at
        negated = self._text[begin] == "-"
        self._at += negated
        if named := _FIELD.match(self._text, self._at):
            field = self._field(named[1], named.start(1))
            self._at = named.end()
            return Term(field=field, values=self._list(field), negated=negated)
        if quoted := self._quoted():
            text = quoted[0]
        elif bare := _BARE_TEXT.match(self._text, self._at):
            self._at = bare.end()
            text = bare[0]
        else:
            raise self._mistake("a minus must be followed by what is not wanted, such as -tag:eu", begin, 1)
        if not text:
            raise self._mistake('"" looks for nothing; write a text between the quotes', begin, self._at - begin)
        self._count(is_pattern=True)
        return Term(field="", values=(Word(text),), negated=negated)

    def _field(self, name: str, at: int) -> str:
        if name in FIELDS:
            return name
        head, _, path = name.partition(".")
        if head == PARAMETERS:
            if not path or not all(path.split(".")):
                raise self._mistake(f"{name}: names no parameter; write {PARAMETERS}.user_id:42", at, len(name))
            return name
        raise self._mistake(
            f"there is no field {name!r}; {_near(name, [*FIELDS, PARAMETERS])}the fields are {', '.join(FIELDS)} and "
            f"{PARAMETERS}.<path>; put text with a colon in quotes",
            at,
            len(name),
        )

    def _list(self, field: str) -> tuple[Value, ...]:
        values: list[Value] = []
        while True:
            value = self._value(field)
            self._count(is_pattern=not isinstance(value, Word) or value.glob)
            values.append(value)
            if self._at >= len(self._text) or self._text[self._at] != ",":
                break
            self._at += 1
        if self._at < len(self._text) and not self._text[self._at].isspace():
            raise self._mistake("a value ends here; put a space before the next term, or a comma", self._at, 1)
        return tuple(dict.fromkeys(values))

    def _count(self, *, is_pattern: bool) -> None:
        self._values += 1
        self._patterns += is_pattern
        if self._values > MOST_VALUES:
            raise self._mistake(f"the query has more than {MOST_VALUES} values; split it", self._at - 1, 1)
        if self._patterns > MOST_PATTERNS:
            raise self._mistake(
                f"the query has more than {MOST_PATTERNS} values with a star, comparisons and free texts; split it",
                self._at - 1,
                1,
            )

    def _value(self, field: str) -> Value:
        begin = self._at
        kind = FIELDS.get(field, Kind.PARAMETER)
        if quoted := self._quoted():
            (text,) = quoted
            glob = False
        elif bare := _BARE_VALUE.match(self._text, begin):
            text, self._at = bare[0], bare.end()
            glob = "*" in text
        else:
            raise self._mistake(f"{field}: needs a value; write it without a blank behind the colon or comma", begin, 1)
        length = self._at - begin
        match kind:
            case Kind.STATE:
                return self._one_of(text, [str(state) for state in State], "state", begin, length)
            case Kind.PRIORITY:
                return self._priority(text, begin, length)
            case Kind.MOMENT | Kind.NUMBER:
                return self._measure(field, kind, text, begin, length)
            case Kind.PARAMETER if not quoted and (within := self._numeric(text)) is not None:
                return within
            case Kind.ID:
                text = text.replace("-", "").lower()
                if not text or not _HEX.fullmatch(text):
                    raise self._mistake(
                        f"{field} is written in hexadecimal digits; a star stands for any, as in 01a1*", begin, length
                    )
            case _ if not quoted and _SIGN.match(text):
                raise self._mistake(f"{field} cannot be compared by size; write {field}:value, or use quotes", begin, 1)
        if not text and kind is not Kind.PARAMETER:
            raise self._mistake(f"{field} is never empty; write a value between the quotes", begin, length)
        return Word(text, glob)

    def _one_of(self, text: str, words: list[str], what: str, at: int, length: int) -> Word:
        if text in words:
            return Word(text)
        raise self._mistake(
            f"there is no {what} {text!r}; {_near(text, words)}use one of {', '.join(words)}", at, length
        )

    def _priority(self, text: str, at: int, length: int) -> Word:
        try:
            return Word(Priority.parse(text).word)
        except InvalidTask:
            return self._one_of(text, [priority.word for priority in Priority], "priority", at, length)

    def _measure(self, field: str, kind: Kind, text: str, at: int, length: int) -> Within:
        sign = _SIGN.match(text)
        low, dots, high = text.partition("..")
        if sign:
            edge = self._edge(field, kind, text[sign.end() :], at + sign.end(), length - sign.end())
            return _compared(sign[0], edge)
        if dots:
            edges = [
                self._edge(field, kind, part, at + text.index(part), len(part)) if part else None
                for part in (low, high)
            ]
            if edges == [None, None]:
                raise self._mistake(f"{field}:.. has no end at all; write {field}:1..5 or the like", at, length)
            return Within(edges[0], edges[1])
        edge = self._edge(field, kind, text, at, length)
        if isinstance(edge, Ago):
            raise self._mistake(
                f"{field}:{text} would be a single instant; write {field}:>{text} for since then, "
                f"{field}:<{text} for before",
                at,
                length,
            )
        return Within(edge, edge)

    def _numeric(self, text: str) -> Value | None:
        """The numbers that a value of a parameter means if it compares; a plain number is a word like any other."""
        if sign := _SIGN.match(text):
            number = _number(text[sign.end() :])
            if number is None:
                raise self._mistake(
                    f"{text!r} does not compare with a number; put it in quotes if the value begins with a sign",
                    self._at - len(text),
                    len(text),
                )
            return _compared(sign[0], number)
        low, dots, high = text.partition("..")
        edges = [_number(part) if part else None for part in (low, high)]
        if not dots or None in (edges[0] if low else 0, edges[1] if high else 0) or edges == [None, None]:
            return None
        return Word(str(edges[0])) if edges[0] == edges[1] else Within(edges[0], edges[1])

    def _edge(self, field: str, kind: Kind, text: str, at: int, length: int) -> Edge:
        edge = _number(text) if kind is Kind.NUMBER else _moment(text)
        if edge is None:
            form = "a number" if kind is Kind.NUMBER else _MOMENT_FORMS
            raise self._mistake(f"{field}: {text!r} is not {form}", at, max(length, 1))
        return edge

    def _quoted(self) -> tuple[str] | None:
        """The text in the quotes that begin here, if they do."""
        if not self._text.startswith('"', self._at):
            return None
        found = _QUOTED.match(self._text, self._at)
        if found is None:
            raise self._mistake("these quotes are never closed; end them", self._at, len(self._text) - self._at)
        self._at = found.end()
        return (_ESCAPED.sub(r"\1", found[1]),)

    def _mistake(self, message: str, at: int, length: int) -> QueryError:
        return QueryError(message, self._text, at, length)


def _near(text: str, words: list[str]) -> str:
    """What was probably meant instead, as part of a message."""
    # For mistakes only, which are rare.
    import difflib

    near = difflib.get_close_matches(text.lower(), words, n=1, cutoff=0.6)
    return f"did you mean {near[0]}? " if near else ""


def _compared(sign: str, edge: Edge) -> Within:
    opened = len(sign) == 1
    return Within(low=edge, low_open=opened) if sign[0] == ">" else Within(high=edge, high_open=opened)


def _number(text: str) -> Number | None:
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text) if set(text) & set(".eE") else int(text)
    return Number(value) if math.isfinite(value) else None


def _moment(text: str) -> Ago | At | None:
    if relative := _RELATIVE.fullmatch(text):
        sign, amount, unit = relative.groups()
        offset = round(float(amount) * UNITS[unit])
        return Ago(-offset if sign == "-" else offset) if offset <= 100 * LONGEST else None
    written = _MOMENT.fullmatch(text)
    if written is None:
        return None
    try:
        first = _instant(datetime.fromisoformat(text.replace(" ", "T")))
    except (ValueError, OverflowError):
        return None
    length = 1 if written["rest"] else SECOND if written["second"] else MINUTE if written["minute"] else DAY
    return At(first, first + length - 1) if 0 <= first <= LATEST - DAY else None


def _instant(moment: datetime) -> Instant:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)
