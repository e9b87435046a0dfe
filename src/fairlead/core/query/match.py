"""Whether a task is one of those that a query means, and whether a text is what a pattern such as `send-*` means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, assert_never

import msgspec

from fairlead.core.dead_letters import fingerprint_of
from fairlead.core.instant import Instant
from fairlead.core.query.query import (
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
    priorities_of,
    states_of,
)
from fairlead.core.task import Failure, Task

Matcher: TypeAlias = Callable[[Task], bool]

_MISSING: Final = object()
_decode: Final = msgspec.json.Decoder().decode


def admits(query: Query, task: Task, now: Instant) -> bool:
    """Whether the query means this task, with relative moments counted from now."""
    return matcher(query, now)(task)


def matcher(query: Query, now: Instant) -> Matcher:
    """What decides for many tasks whether the query means them, with relative moments counted from now."""
    parameters = [term for term in query.terms if term.kind is Kind.PARAMETER]
    texts = [term for term in query.terms if term.kind is Kind.TEXT]
    # What is quick to tell comes first.
    conditions = [_condition(term, now) for term in query.terms if term.kind not in (Kind.PARAMETER, Kind.TEXT)]
    if parameters:
        conditions.append(_with_parameters(parameters))
    if texts:
        conditions.append(_saying(texts))
    if len(conditions) == 1:
        return conditions[0]
    return lambda task: all(condition(task) for condition in conditions)


def _condition(term: Term, now: Instant) -> Matcher:
    if term.kind is Kind.STATE:
        states = states_of(term)
        return lambda task: task.status.state in states
    if term.kind is Kind.PRIORITY:
        priorities = priorities_of(term)
        return lambda task: task.status.priority in priorities
    positive = _positive(term, now)
    return (lambda task: not positive(task)) if term.negated else positive


def _positive(term: Term, now: Instant) -> Matcher:
    if term.field in _NAMES:
        return _named(_NAMES[term.field], term.values)
    return _measured(_MEASURES[term.field], term.values, now)


_NAMES: Final[dict[str, Callable[[Task], Iterable[str | None]]]] = {
    "queue": lambda task: (task.spec.queue,),
    "type": lambda task: (task.spec.type,),
    "worker": lambda task: (task.status.lease.worker,) if task.status.lease else (),
    "tag": lambda task: task.spec.tags,
    "tenant": lambda task: (task.spec.tenant,),
    "id": lambda task: (task.spec.id,),
    "fingerprint": lambda task: (fingerprint_of(task.status.failure),) if task.status.failure else (),
}
_MEASURES: Final[dict[str, Callable[[Task], int | None]]] = {
    "created": lambda task: task.spec.created_at,
    "ready": lambda task: task.status.ready_at,
    "ended": lambda task: task.status.ended_at,
    "attempts": lambda task: task.status.attempts,
    "retries": lambda task: task.status.retries,
}


def _named(names: Callable[[Task], Iterable[str | None]], values: Sequence[Value]) -> Matcher:
    words = [value for value in values if isinstance(value, Word)]
    exact = frozenset(word.text for word in words if not word.glob)
    globs = [Glob(word.text).matches for word in words if word.glob]
    if not globs:
        return lambda task: any(name in exact for name in names(task))
    return lambda task: any(
        name is not None and (name in exact or any(glob(name) for glob in globs)) for name in names(task)
    )


def _saying(terms: Sequence[Term]) -> Matcher:
    """Whether the error, or for free text also the parameters, has what these terms look for in it.

    All of them together, so that a text is folded once, however many ask for it.
    """
    sought = [
        ([_finder(value) for value in term.values if isinstance(value, Word)], not term.field, term.negated)
        for term in terms
    ]

    def says(task: Task) -> bool:
        failure = task.status.failure
        error = "" if failure is None else _said(failure).casefold()
        parameters: str | None = None
        for finders, anywhere, negated in sought:
            found = failure is not None and any(find(error) for find in finders)
            if not found and anywhere:
                if parameters is None:
                    parameters = _text_of(task.spec.parameters).casefold()
                found = any(find(parameters) for find in finders)
            if found is negated:
                return False
        return True

    return says


def _finder(word: Word) -> Callable[[str], bool]:
    """Whether a folded text has the word in it somewhere."""
    folded = word.text.casefold()
    return Glob(f"*{folded}*").matches if word.glob else lambda said: folded in said


def _said(failure: Failure) -> str:
    return f"{failure.type}: {failure.message}"


def _text_of(parameters: bytes) -> str:
    """Parameters as they read; what was written as an escape is looked for as the letter it means."""
    if b"\\" in parameters:
        parameters = msgspec.json.encode(_decode(parameters))
    return parameters.decode(errors="replace")


def _measured(measure: Callable[[Task], int | None], values: Sequence[Value], now: Instant) -> Matcher:
    tests = [_within(value, now) for value in values if isinstance(value, Within)]

    def measured(task: Task) -> bool:
        size = measure(task)
        return size is not None and any(test(size) for test in tests)

    return measured


def bounds(within: Within, now: Instant) -> tuple[int | float | None, int | float | None]:
    """The least and the greatest whole number, or instant, that lie within; None for no bound."""
    low, high = within.low, within.high
    least = None if low is None else (_last(low, now) + 1 if within.low_open else _first(low, now))
    most = None if high is None else (_first(high, now) - 1 if within.high_open else _last(high, now))
    return least, most


def _within(within: Within, now: Instant) -> Callable[[int | float], bool]:
    if isinstance(within.low, Number) or isinstance(within.high, Number):
        return _within_numbers(within)
    least, most = bounds(within, now)
    return lambda size: (least is None or size >= least) and (most is None or size <= most)


def _within_numbers(within: Within) -> Callable[[int | float], bool]:
    low = within.low.value if isinstance(within.low, Number) else None
    high = within.high.value if isinstance(within.high, Number) else None

    def holds(size: int | float) -> bool:
        if low is not None and (size <= low if within.low_open else size < low):
            return False
        return high is None or (size < high if within.high_open else size <= high)

    return holds


def _first(edge: Edge, now: Instant) -> int | float:
    match edge:
        case Ago(offset):
            return now + offset
        case At(first, _):
            return first
        case Number(value):
            return value
        case _:
            assert_never(edge)


def _last(edge: Edge, now: Instant) -> int | float:
    return edge.last if isinstance(edge, At) else _first(edge, now)


def _with_parameters(terms: Sequence[Term]) -> Matcher:
    """Whether the parameters are as these terms want them; all together, so that they are decoded once."""
    sought = [(term.field.split(".")[1:], _value_test(term.values), term.negated) for term in terms]

    def matches(task: Task) -> bool:
        document = _decode(task.spec.parameters)
        return all(_has(_at(document, path), test) is not negated for path, test, negated in sought)

    return matches


def _has(found: Any, test: Callable[[Any], bool]) -> bool:
    """Whether a value, or if it is a list anything in it, passes the test."""
    if found is _MISSING:
        return False
    return test(found) or (isinstance(found, list) and any(map(test, found)))


def _at(document: Any, path: Sequence[str]) -> Any:
    for step in path:
        match document:
            case dict() if step in document:
                document = document[step]
            case list() if step.isascii() and step.isdigit() and int(step) < len(document):
                document = document[int(step)]
            case _:
                return _MISSING
    return document


def _value_test(values: Sequence[Value]) -> Callable[[Any], bool]:
    """Whether a value is one of these, in time that does not grow with how many of them are plain words."""
    plain = [value.text for value in values if isinstance(value, Word) and not value.glob]
    words = frozenset(plain)
    literals = [_LITERALS[text] for text in plain if text in _LITERALS]
    numbers = frozenset(number for text in plain for number in _numbers(text))
    ranges = [_within_numbers(value) for value in values if isinstance(value, Within)]
    globs = [Glob(value.text).matches for value in values if isinstance(value, Word) and value.glob]
    anything = any(isinstance(value, Word) and value.glob and value.text == "*" for value in values)

    def passes(found: Any) -> bool:
        if anything:
            return True
        if isinstance(found, str):
            return found in words or any(matches(found) for matches in globs)
        if found is None or isinstance(found, bool):
            return any(found is literal for literal in literals)
        return isinstance(found, int | float) and (found in numbers or any(holds(found) for holds in ranges))

    return passes


_LITERALS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}


def _numbers(text: str) -> tuple[int | float, ...]:
    try:
        return (int(text) if text.lstrip("+-").isdigit() else float(text),)
    except ValueError:
        return ()


_STARS: Final = re.compile(r"\*+")


class Glob:
    """A pattern such as `send-*.eu`; every other character stands for itself."""

    __slots__ = ("_first", "_last", "_middle", "_whole")

    def __init__(self, text: str) -> None:
        first, *rest = _STARS.split(text)
        self._first = first
        self._whole = not rest
        self._last = rest[-1] if rest else ""
        self._middle = [piece for piece in rest[:-1] if piece]

    def matches(self, text: str) -> bool:
        """Whether the pattern is the whole text."""
        if self._whole:
            return text == self._first
        end = len(text) - len(self._last)
        if end < len(self._first) or not text.startswith(self._first) or not text.endswith(self._last):
            return False
        # The leftmost place of each piece leaves the most room for those behind it, so no other need be tried.
        at = len(self._first)
        for piece in self._middle:
            found = text.find(piece, at, end)
            if found < 0:
                return False
            at = found + len(piece)
        return True
