"""The SQL of `sql/`, made ready for one schema, and batches that are split so that no statement changes a row twice."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import reduce
from pathlib import Path
from typing import Final

from fairlead.storage.postgres.rows import CLAIMED, COLUMNS
from fairlead.storage.sql_files import statements_in

_read: Final = statements_in(Path(__file__).with_name("sql"))

_PREPARED: Final = frozenset(
    {
        "add.tasks",
        "add.new",
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
        "claim.take",
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
_REFUSALS: Final = {"claim.of_all": "claim.other_types", "claim.of_groups": "claim.too_far"}
"""Why a claim looks for nothing, by where it would."""
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

    def __getitem__(self, name: str) -> Statement:
        return self.reaching(name, 0)

    def reaching(self, name: str, reach: int) -> Statement:
        """A statement that looks at so many candidates."""
        statement = self._made.get((name, reach))
        if statement is None:
            text = self.text(name).replace("{reach}", str(reach))
            statement = self._made[name, reach] = Statement(text, prepared=name in _PREPARED)
        return statement

    def best(self, reach: int, heads: str, *, by_turns: bool) -> Statement:
        """The claim that looks at so many candidates there, of which some take turns with others or none does."""
        order = "claim.by_turns" if by_turns else "claim.by_rank"
        statement = self._made.get((heads + order, reach))
        if statement is None:
            parts = {
                "{heads}": self.text(heads),
                "{candidates}": self.text(order),
                "{refusals}": self.text(_REFUSALS[heads]) if heads in _REFUSALS else "",
                "{from}": self.text("claim.from"),
                "{member}": self.text("claim.member").replace("{type_set}", "$8"),
                "{reach}": str(reach),
                "{window}": str(_WINDOW * reach),
            }
            text = reduce(lambda text, part: text.replace(*part), parts.items(), self.text("claim.best"))
            statement = self._made[heads + order, reach] = Statement(text, prepared=True)
        return statement

    def heads(self, reach: int, first: str) -> Statement:
        """The first tasks of lanes, as many as that at a time, looked for there."""
        statement = self._made.get((first, reach))
        if statement is None:
            parts = {
                "{first}": self.text(first),
                "{from}": self.text("claim.from"),
                "{member}": self.text("claim.member").replace("{type_set}", "$3"),
                "{reach}": str(reach),
                "{window}": str(_WINDOW * reach),
            }
            text = reduce(lambda text, part: text.replace(*part), parts.items(), self.text("claim.heads"))
            statement = self._made[first, reach] = Statement(text, prepared=True)
        return statement

    def moving(self, window: int) -> Statement:
        """The move of bounds past so many tasks."""
        statement = self._made.get(("bounds.move", window))
        if statement is None:
            parts = {
                "{from}": self.text("claim.from"),
                "{member}": self.text("claim.member").replace("{type_set}", "$2"),
                "{window}": str(window),
            }
            text = reduce(lambda text, part: text.replace(*part), parts.items(), self.text("bounds.move"))
            statement = self._made["bounds.move", window] = Statement(text, prepared=True)
        return statement

    def text(self, name: str, *, late: bool = False) -> str:
        """The text of a statement, for this schema; late if it may be long before it is committed."""
        words = {
            "{below}": "true" if late else _read("add.below"),
            "{late}": _read("add.late") if late else "",
            "{name}": self._schema,
            "{schema}": f'"{self._schema}"',
            "{columns}": COLUMNS,
            "{claimed}": CLAIMED,
        }
        return reduce(lambda text, word: text.replace(*word), words.items(), _read(name))


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
