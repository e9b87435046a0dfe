"""`quarantine`: what cannot be decoded and was set aside."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import App, Parameter
from msgspec import Struct

from fairlead.admin.quarantine.api import parts_of, quarantined_shown, quarantined_whole
from fairlead.cli.commands.operations import Yes
from fairlead.cli.options import COMMON_WITH_STORE, PLAIN, CommonWithStore, reached
from fairlead.cli.output import Cell, Column, complain, pretty, write, write_json, write_styled, write_table
from fairlead.cli.times import ago
from fairlead.core.errors import InvalidSettings, NotInQuarantine
from fairlead.core.health.quarantine import Quarantined
from fairlead.engine.runtime.inline import run_inline

quarantine = App(
    name="quarantine",
    default_parameter=PLAIN,
    group_commands="Quarantine",
    help="""List, show, export, restore and discard the records in quarantine: those that cannot be decoded.

    Their bytes are kept until you restore or discard them. A record is named by its kind and its name:
    `schedule/nightly`.""",
)

_Record: TypeAlias = Annotated[str, Parameter(name="RECORD", help="Its kind and its name, as `list` shows it.")]


class _Mended(Struct, frozen=True):
    """What is read of a file that `export` wrote: its other fields are for people."""

    parts: dict[str, str]


def list_quarantined(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """List the records in quarantine; with `--json`, one record per line."""
    with reached(common) as connection:
        engine = connection.inline()
        found, now = run_inline(engine.quarantine.all()), engine.clock.now()
    if common.json:
        for each in found:
            write_json(quarantined_shown(each))
    elif not found:
        write("the quarantine is empty")
    else:
        columns = [Column("RECORD"), Column("QUEUE", cut=True, optional=True), Column("FOUND", right=True)]
        columns += [Column("ERROR", cut=True)]
        write_table(
            columns,
            [
                [Cell(each.key, "bold"), each.queue or "-", ago(each.found_at, now), Cell(each.error, "red")]
                for each in found
            ],
        )


def show(record: _Record, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Show a record in quarantine: its error and its size. With `--json`, its bytes too, in base64."""
    with reached(common) as connection:
        engine = connection.inline()
        found, now = run_inline(engine.quarantine.get(record)), engine.clock.now()
    if common.json:
        write_json(quarantined_whole(found))
        return
    _field("record", found.key, "bold")
    if found.queue is not None:
        _field("queue", found.queue)
    _field("found", ago(found.found_at, now))
    _field("error", found.error, "red")
    for part, value in found.parts.items():
        _field(part, f"{len(value):,} bytes")
    _field("remedy", f"fairlead quarantine export {found.key} > record.json; mend its parts, which are base64; then")
    _field("", f"fairlead quarantine restore {found.key} --from record.json")
    _field("", f"or give it up: fairlead quarantine discard {found.key}")


def export(record: _Record, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Write a record in quarantine as JSON, its bytes in base64, so that it can be repaired and restored."""
    with reached(common) as connection:
        found = run_inline(connection.inline().quarantine.get(record))
    whole = quarantined_whole(found)
    if common.json:
        write_json(whole)
    else:
        write(pretty(msgspec.json.encode(whole)))


def restore(
    record: _Record,
    /,
    *,
    source: Annotated[
        str | None,
        Parameter(
            name="--from", help="Take the bytes from this file, which `export` wrote; - is stdin.", metavar="FILE"
        ),
    ] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Restore a record from quarantine: with the bytes of a file, or with those that were found.

    Refused if they still cannot be decoded, or if a new record has the same name.
    """
    parts = None if source is None else _parts(source)
    with reached(common) as connection:
        found = run_inline(connection.inline().quarantine.restore(record, parts))
    if common.json:
        write_json(quarantined_shown(found))
    else:
        write(f"{found.key} is back in its place")


def discard(
    *records: Annotated[str, Parameter(name="RECORD", help="Its kind and its name, as `list` shows it; or several.")],
    yes: Yes = False,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> int:
    """Delete records in quarantine for good, with their bytes.

    A queue whose settings are discarded has no settings of its own, and is no longer paused; a key, or a schedule, is
    deleted.
    """
    if not records:
        raise InvalidSettings("name the records to discard, such as schedule/nightly; `list` shows them")
    with reached(common) as connection:
        desk = connection.inline().quarantine
        if not yes and not _confirmed(records):
            write("nothing was discarded")
            return 1
        done: list[Quarantined] = []
        missing: list[NotInQuarantine] = []
        for record in records:
            try:
                done.append(run_inline(desk.discard(record)))
            except NotInQuarantine as error:
                missing.append(error)
    if common.json:
        errors = [{"record": unknown.key, "error": str(unknown)} for unknown in missing]
        write_json({"records": [quarantined_shown(each) for each in done], "errors": errors})
    else:
        for each in done:
            write(f"{each.key} is discarded")
        for unknown in missing:
            complain(str(unknown), as_json=False)
    return 1 if missing else 0


def _confirmed(records: tuple[str, ...]) -> bool:
    if not sys.stdin.isatty():
        raise InvalidSettings("a discard cannot be undone, and there is no terminal to ask on; pass --yes")
    # On stderr: what a script reads from stdout is the answer alone.
    sys.stderr.write(
        f"{', '.join(records)} will be discarded with all bytes, and that cannot be undone.\nType yes to discard: "
    )
    sys.stderr.flush()
    return sys.stdin.readline().strip() == "yes"


def _parts(source: str) -> dict[str, bytes]:
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"the file {source} cannot be read: {error}; name one that `export` wrote") from None
    try:
        return parts_of(msgspec.json.decode(text, type=_Mended).parts)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidSettings(f"{source} is not as `export` wrote it: {error}; it has `parts`, in base64") from None


def _field(label: str, text: str, style: str = "") -> None:
    write_styled([Cell(f"{label:<8} ", "dim"), Cell(text, style)])


for _name, _command in {
    "list": list_quarantined,
    "show": show,
    "export": export,
    "restore": restore,
    "discard": discard,
}.items():
    # By its place, as the program has its own commands: only so does it know its name in the reference.
    quarantine.command(f"{__name__}:{_command.__name__}", name=_name)
    # Its first line of help is known only when it is loaded.
    quarantine[_name]
