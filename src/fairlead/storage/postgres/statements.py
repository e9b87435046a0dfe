"""The SQL of `sql/`, made ready for one schema, and batches that are split so that no statement changes a row twice."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Final

from fairlead.core.queues.fairness import STEP
from fairlead.storage.postgres.rows import CLAIMED, COLUMNS
from fairlead.storage.sql_files import statements_in

_read: Final = statements_in(Path(__file__).with_name("sql"))

_PREPARED: Final = frozenset(
    {
        "add.tasks",
        "add.one",
        "add.standing",
        "bounds.raise",
        "bounds.survey",
        "bounds.turn",
        "bounds.writers",
        "change.extend",
        "change.curtail",
        "change.settle",
        "change.apply",
        "change.fold_tally",
        "limits.wake",
        "limits.fronts",
        "limits.running",
        "limits.running_keys",
        "limits.dues",
        "limits.due_set",
        "limits.front_leave",
        "limits.front_come",
        "limits.look_later",
        "read.get",
        "read.due",
        "read.time",
        "read.clocks",
        "records.all",
    }
)
"""The statements worth a plan of their own in every session."""
_PARTS: Final = {
    "add.new": ("{turned}", "{turn_columns}", "{turns}"),
    "claim.best": (
        "{first}",
        "{candidates}",
        "{covered}",
        "{head}",
        "{apart}",
        "{places}",
        "{turned}",
        "{taken}",
        "{order}",
    ),
    "claim.heads": ("{first}", "{turns}", "{keyed}"),
    "claim.take": ("{turned}",),
    "bounds.move": (),
}
"""What a statement is composed of."""
_FAIR: Final = (
    "claim.by_fair_turn",
    "claim.keyed_apart",
    "claim.fair_places",
    "claim.fair_turned",
    "claim.fair_taken",
    "claim.fair_order",
)
_NOT_FAIR: Final = ("claim.by_wait", "claim.apart", "", "", "taken", "")
"""What a claim is composed of by whether fair tasks wait."""
_BY_WAIT: Final = {"{wait}": "ready_at", "{begun}": "(t.ready_at, t.id) >= (l.from_ready_at, l.from_id)"}
_BY_TURN: Final = {"{wait}": "place", "{begun}": "t.place IS NOT NULL"}
"""In which order the first tasks are."""
_SHARED: Final = {"{known}": "claim.known", "{from}": "claim.from", "{admitted}": "claim.admitted"}
"""What several statements have in common."""
_WORDS: Final = {
    "claim.best": {
        "{open_route}": "",
        "{open_type}": "",
        "{type_set}": "$8",
        "{types}": "$17::text[]",
        "{excluded}": "$18::text[]",
    },
    "claim.heads": {
        "{open_route}": "claim.open_route",
        "{open_type}": "claim.open_type",
        "{type_set}": "$3",
        "{types}": "$7::text[]",
        "{excluded}": "$8::text[]",
    },
    "add.new": {},
    "claim.take": {},
    "bounds.move": {"{type_set}": "$2"},
}
"""What the parts of a statement name otherwise in each."""
_WINDOW: Final = 4
"""How many times the candidates that it looks for a claim passes over at most, in a queue of many types."""


class Statement:
    """A text to run, and whether a session should prepare it."""

    __slots__ = ("prepared", "text")

    def __init__(self, text: str, *, prepared: bool) -> None:
        self.text = text.encode()
        self.prepared = prepared


class Statements:
    """All statements of one schema."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._made: dict[tuple[str, int], Statement] = {}
        self._composite: dict[tuple[str, ...], Statement] = {}

    def __getitem__(self, name: str) -> Statement:
        return self.reaching(name, 0)

    def reaching(self, name: str, reach: int) -> Statement:
        """A statement that looks at so many candidates."""
        statement = self._made.get((name, reach))
        if statement is None:
            text = self.text(name).replace("{reach}", str(reach))
            statement = self._made[name, reach] = Statement(text, prepared=name in _PREPARED)
        return statement

    def new(self, *, by_turn: bool) -> Statement:
        """The addition of new tasks, of which some take turns or none does."""
        parts = ("add.turned", "add.turn_columns", "add.turns") if by_turn else ("", "", "")
        return self._composed("add.new", 0, parts)

    def best(self, reach: int, first: str, *, covered: bool, by_turns: bool, fair: bool) -> Statement:
        """The claim that looks at so many candidates there, of which promoted ones take turns with others or none is.

        Covered: if they are of all types, as far as is known, and only some may be taken. Fair: if fair tasks wait.
        """
        candidates = "claim.by_turns" if by_turns else "claim.by_rank"
        parts = (first, candidates, "claim.covered" if covered else "true", *(_FAIR if fair else _NOT_FAIR))
        return self._composed("claim.best", reach, parts)

    def heads(self, reach: int, first: str, *, by_turn: bool, with_keyed: bool) -> Statement:
        """The first tasks of lanes, as many as that at a time, looked for there; of fair tasks also by turn.

        With keyed: and whether tasks with concurrency keys wait.
        """
        parts = (first, "claim.turns" if by_turn else "", "claim.keyed" if with_keyed else "")
        return self._composed("claim.heads", reach, parts)

    def take(self, *, by_turn: bool) -> Statement:
        """The taking of tasks, by which turns go on or not."""
        return self._composed("claim.take", 0, ("claim.turned" if by_turn else "",))

    def moving(self, window: int) -> Statement:
        """The move of bounds past so many tasks."""
        return self._composed("bounds.move", window, ())

    def _composed(self, name: str, reach: int, parts: tuple[str, ...]) -> Statement:
        """A statement that has such parts and reaches so far."""
        variant = name, *parts, str(reach)
        statement = self._composite.get(variant)
        if statement is None:
            words = {
                "{head}": "",
                **{word: self._part(part) for word, part in zip(_PARTS[name], parts, strict=False)},
                "{first_by_turn}": _replaced(self._part(parts[0]), _BY_TURN) if "{first}" in _PARTS[name] else "",
                **_BY_WAIT,
                **{word: self.text(part) for word, part in _SHARED.items()},
                **{word: self._part(part) for word, part in _WORDS[name].items()},
                "{reach}": str(reach),
                "{window}": str(_WINDOW * reach),
                "{step}": str(STEP),
            }
            statement = self._composite[variant] = Statement(_replaced(self.text(name), words), prepared=True)
        return statement

    def _part(self, part: str) -> str:
        """A parameter as it is, or the text of a part."""
        return self.text(part) if part.startswith(("claim.", "add.")) else part

    def text(self, name: str, *, late: bool = False) -> str:
        """The text of a statement, for this schema; late if it may be long before it is committed."""
        words = {
            "{below}": "true" if late else _read("add.below"),
            "{routes}": _read("add.held_routes") if late else "{schema}.route",
            "{late}": _read("add.late") if late else "",
            "{name}": self._schema,
            "{schema}": f'"{self._schema}"',
            "{columns}": COLUMNS,
            "{claimed}": CLAIMED,
        }
        return _replaced(_read(name), words)


def _replaced(text: str, words: Mapping[str, str]) -> str:
    return reduce(lambda text, word: text.replace(*word), words.items(), text)


def rounds(things: Sequence[Hashable]) -> list[list[int]]:
    """The places of the things, in as few lists as can be: within one no thing comes twice, and they keep their order.

    A statement changes a row at most once; what a batch says about one task several times takes effect in turn.
    """
    if len(set(things)) == len(things):
        return [list(range(len(things)))] if things else []
    turns: dict[Hashable, int] = {}
    split: list[list[int]] = []
    for place, thing in enumerate(things):
        turn = turns.get(thing, 0)
        turns[thing] = turn + 1
        if turn == len(split):
            split.append([])
        split[turn].append(place)
    return split
