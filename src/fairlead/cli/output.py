"""What a command writes: JSON for scripts, tables and colours on a terminal, plain text elsewhere.

Answers go to stdout; errors, logs and progress go to stderr. What comes from tasks is never trusted: it could hold
sequences that command the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from fairlead.core.secret_mask import masked_text
from fairlead.wire.text import clean as clean
from fairlead.wire.text import one_line as one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_GAP: Final = "  "
_LEAST: Final = 8
"""A column is cut to no less than this."""


def complain(message: str, *, as_json: bool, pointer: str = "") -> None:
    """Say on stderr what is wrong, in one line; and where, in two more."""
    message = masked_text(message)
    if as_json:
        said = {"error": message, "pointer": pointer} if pointer else {"error": message}
        sys.stderr.write(msgspec.json.encode(said).decode() + "\n")
    else:
        where = "".join(f"  {line}\n" for line in clean(pointer).splitlines())
        sys.stderr.write(f"fairlead: {one_line(message)}\n{where}")
    sys.stderr.flush()


def warn(message: str, code: str, *, as_json: bool) -> None:
    """Say on stderr what may not be as it is meant to be, in one line."""
    message = masked_text(message)
    if as_json:
        sys.stderr.write(msgspec.json.encode({"warning": message, "code": code}).decode() + "\n")
    else:
        sys.stderr.write(f"fairlead: warning: {one_line(message)}\n")
    sys.stderr.flush()


def write_json(value: object) -> None:
    """One JSON document on a line of its own."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def write(text: str = "") -> None:
    """One or more lines of plain text."""
    sys.stdout.write(clean(text) + "\n")


def on_terminal() -> bool:
    """Whether a person reads stdout."""
    return sys.stdout.isatty()


def console(*, stderr: bool = False) -> Console:
    """A rich console; imported only when something is drawn."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


class Cell(Struct, frozen=True):
    """A cell of a table, with a style for terminals."""

    text: str
    style: str = ""


class Column(Struct, frozen=True):
    """A column of a table. On a terminal too narrow for the table, it may be cut short or left out."""

    title: str
    right: bool = False
    cut: bool = False
    optional: bool = False


def write_table(columns: Sequence[Column], rows: Iterable[Sequence[Cell | str]]) -> None:
    """A table: fitted to a terminal; always whole elsewhere."""
    screen = console() if on_terminal() else None
    for line in table_lines(columns, rows, None if screen is None else screen.width):
        write_styled(line, screen)


def table_lines(columns: Sequence[Column], rows: Iterable[Sequence[Cell | str]], width: int | None) -> list[list[Cell]]:
    """The lines of a table, its header first: fitted to a width, or whole if there is none."""
    header = [Cell(column.title, "bold") for column in columns]
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    lines = [[Cell(one_line(cell.text), cell.style) for cell in line] for line in (header, *cells)]
    widths = [max(len(cell.text) for cell in column) for column in zip(*lines, strict=True)]
    if width is not None:
        widths = _fit(columns, widths, width)
    return [
        _joined([_sized(cell, size, column) for cell, size, column in zip(line, widths, columns, strict=True) if size])
        for line in lines
    ]


def _fit(columns: Sequence[Column], widths: list[int], available: int) -> list[int]:
    """The widths on a terminal: what is optional goes first, then what may be cut is cut, the widest most."""
    fitted = list(widths)

    def excess() -> int:
        shown = [width for width in fitted if width]
        return sum(shown) + len(_GAP) * (len(shown) - 1) - available

    for position, column in enumerate(columns):
        if column.optional and excess() > 0:
            fitted[position] = 0
    cut = [position for position, column in enumerate(columns) if column.cut and fitted[position] > _LEAST]
    while cut and excess() > 0:
        widest = max(cut, key=lambda position: fitted[position])
        if fitted[widest] <= _LEAST:
            break
        fitted[widest] -= 1
    return fitted


def _sized(cell: Cell, width: int, column: Column) -> Cell:
    text = cell.text if len(cell.text) <= width else f"{cell.text[: width - 1]}…"
    return Cell(text.rjust(width) if column.right else text.ljust(width), cell.style)


def _joined(parts: list[Cell]) -> list[Cell]:
    """The parts of a line with gaps between them and no blanks at its end."""
    gapped = [cell for part in parts for cell in (part, Cell(_GAP))]
    while gapped and not gapped[-1].text.strip():
        gapped.pop()
    if gapped:
        gapped[-1] = Cell(gapped[-1].text.rstrip(), gapped[-1].style)
    return gapped


def write_styled(parts: Iterable[Cell], screen: Console | None = None) -> None:
    """One line of text whose parts have styles on a terminal."""
    if not on_terminal():
        write("".join(part.text for part in parts))
        return
    (screen or console()).print(styled(parts), soft_wrap=True)


def styled(parts: Iterable[Cell]) -> Text:
    """One line of text for a rich console."""
    from rich.text import Text

    line = Text()
    for part in parts:
        line.append(clean(part.text), style=part.style)
    return line


def pretty(document: bytes) -> str:
    """A JSON text laid out for reading; its numbers and the order of its keys stay as they are."""
    return msgspec.json.format(document, indent=2).decode()
