"""The SQL of `sql/`, made ready for one schema."""

from __future__ import annotations

from functools import cache, reduce
from importlib import resources
from typing import Final

from fairlead.storage.postgres.rows import CLAIMED, COLUMNS

_PREPARED: Final = frozenset(
    {"add", "add_new", "add_one", "claim", "heads", "take", "extend", "settle", "change", "get", "due", "standing"}
    | {"wake", "fronts", "running", "running_keys", "dues", "due_set", "front_leave", "front_come", "look_later"}
    | {"time", "scan", "fold"}
)
"""The statements worth a plan of their own in every session."""


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

    def text(self, name: str) -> str:
        """The text of a file, for this schema."""
        words = {"{schema}": f'"{self._schema}"', "{columns}": COLUMNS, "{claimed}": CLAIMED}
        return reduce(lambda text, word: text.replace(*word), words.items(), _read(name))


@cache
def _read(name: str) -> str:
    """A file without its comments: they are for readers of the file, not for the wire."""
    lines = (resources.files(__package__) / "sql" / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("--"))
