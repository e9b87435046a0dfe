"""Whether a task is one of those that a query means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, assert_never

import msgspec

from fairlead.core.fingerprint import fingerprint_of
from fairlead.core.instant import Instant
from fairlead.core.query import Ago, At, Edge, Kind, Number, Query, Term, Value, Within, Word, priorities_of, states_of
from fairlead.core.task import Failure, Task

Matcher: TypeAlias = Callable[[Task], bool]

_MISSING: Final = object()
_decode: Final = msgspec.json.Decoder().decode


def admits(query: Query, task: Task, now: Instant) -> bool:
    """Whether the query means this task, with relative moments counted from now."""
    return matcher(query, now)(task)


def matcher(query: Query, now: Instant) -> Matcher:
    """What decides for many tasks whether the query means them, with relative moments counted from now."""
    # What is quick to tell comes first.
    conditions = [_condition(term, now) for term in sorted(query.terms, key=lambda term: term.kind in _SLOW)]
    if len(conditions) == 1:
        return conditions[0]
    return lambda task: all(condition(task) for condition in conditions)


_SLOW: Final = (Kind.TEXT, Kind.PARAMETER)


def _condition(term: Term, now: Instant) -> Matcher:
    positive = _positive(term, now)
    if term.negated and term.kind not in (Kind.STATE, Kind.PRIORITY):
        return lambda task: not positive(task)
    return positive


def _positive(term: Term, now: Instant) -> Matcher:
    match term.kind:
        case Kind.STATE:
            states = states_of(term)
            return lambda task: task.status.state in states
        case Kind.PRIORITY:
            priorities = priorities_of(term)
            return lambda task: task.status.priority in priorities
        case Kind.NAME | Kind.ID:
            return _named(_NAMES[term.field], term.values)
        case Kind.TEXT:
            return _containing(term)
        case Kind.MOMENT | Kind.NUMBER:
            return _measured(_MEASURES[term.field], term.values, now)
        case Kind.PARAMETER:
            return _parameter(term.field.split(".")[1:], term.values)
        case kind:
            assert_never(kind)


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
    globs = [_glob(word.text).fullmatch for word in words if word.glob]
    if not globs:
        return lambda task: any(name in exact for name in names(task))
    return lambda task: any(
        name is not None and (name in exact or any(glob(name) for glob in globs)) for name in names(task)
    )


def _glob(text: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, re.split(r"\*+", text))), flags | re.DOTALL)


def _containing(term: Term) -> Matcher:
    """Whether the error, or for free text also the parameters, has one of the values in it."""
    finders = [_glob(word.text, re.IGNORECASE).search if word.glob else _finder(word.text)
               for word in term.values if isinstance(word, Word)]  # fmt: skip
    anywhere = not term.field

    def contains(task: Task) -> bool:
        failure = task.status.failure
        if failure is not None:
            said = _said(failure)
            if any(find(said) for find in finders):
                return True
        if not anywhere:
            return False
        parameters = _text_of(task.spec.parameters)
        return any(find(parameters) for find in finders)

    return contains


def _finder(text: str) -> Callable[[str], object]:
    folded = text.casefold()
    return lambda said: folded in said.casefold()


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


def _parameter(path: Sequence[str], values: Sequence[Value]) -> Matcher:
    tests = [_value_test(value) for value in values]

    def matches(task: Task) -> bool:
        found = _at(_decode(task.spec.parameters), path)
        if found is _MISSING:
            return False
        return any(test(each) for each in _each(found) for test in tests)

    return matches


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


def _each(found: Any) -> Sequence[Any]:
    """A value itself, and if it is a list what is in it: one of them is enough."""
    return [found, *found] if isinstance(found, list) else [found]


def _value_test(value: Value) -> Callable[[Any], bool]:
    if isinstance(value, Within):
        holds = _within_numbers(value)
        return lambda found: isinstance(found, int | float) and not isinstance(found, bool) and holds(found)
    if value.glob:
        glob = _glob(value.text).fullmatch
        return lambda found: value.text == "*" or (isinstance(found, str) and glob(found) is not None)
    numbers = _numbers(value.text)
    literals = {"true": True, "false": False, "null": None}
    literal = literals.get(value.text, _MISSING)

    def same(found: Any) -> bool:
        if isinstance(found, str):
            return found == value.text
        if found is None or isinstance(found, bool):
            return found is literal
        return isinstance(found, int | float) and found in numbers

    return same


def _numbers(text: str) -> tuple[int | float, ...]:
    try:
        return (int(text) if text.lstrip("+-").isdigit() else float(text),)
    except ValueError:
        return ()
