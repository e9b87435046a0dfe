"""The SQL of `sql/`, made ready for one schema."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fairlead.storage.postgres.statements import Statement
from fairlead.storage.sql_files import statements_in

_read: Final = statements_in(Path(__file__).with_name("sql"))

_PREPARED: Final = frozenset({"change.add", "change.update", "read.get", "read.versions", "read.live"})
"""The statements worth a plan of their own in every session."""


class Statements:
    """All statements of one schema."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._made: dict[tuple[str, ...], Statement] = {}

    def __getitem__(self, name: str) -> Statement:
        return self.filled(name)

    def filled(self, name: str, **words: str) -> Statement:
        """A statement with words of ours in its gaps."""
        key = (name, *words.values())
        statement = self._made.get(key)
        if statement is None:
            statement = self._made[key] = Statement(self.text(name, **words), prepared=name in _PREPARED)
        return statement

    def text(self, name: str, **words: str) -> str:
        """The text of a statement, for this schema."""
        text = self.fitted(_read(name))
        for gap, word in words.items():
            text = text.replace(f"{{{gap}}}", word)
        return text

    def fitted(self, text: str) -> str:
        """A text, for this schema."""
        return text.replace("{schema}", f'"{self._schema}"')
