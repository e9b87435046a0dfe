"""What a SQLite store says of its own health: its settings, its file, and the disk under it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

from fairlead.core.health.diagnosis import (
    SQLITE_FULL,
    SQLITE_NORMAL,
    Examination,
    Finding,
    Level,
    Tier,
    durability,
    unknown,
)
from fairlead.storage.sqlite.database import statement
from fairlead.storage.sqlite.file_permissions import privacy

CHECKED: Final = 256 * 1024 * 1024
"""Up to how many bytes a file is read through: a larger one would keep the disk busy for too long."""

_SYNCHRONOUS: Final = ("OFF", "NORMAL", "FULL", "EXTRA")
_NETWORKED: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "9p", "glusterfs", "lustre"})
_LOOKED_AT: Final = 10_000
"""How many entries of an index are looked at."""
_SPARE: Final = 1024**3
_LITTLE: Final = 100 * 1024**2
_LONG_WAL: Final = 256 * 1024**2


class Facts(Struct, frozen=True, kw_only=True):
    """What the database says."""

    journal_mode: str
    synchronous: str
    version: int
    orphans: int
    """Index entries, of those looked at, whose task is not there."""


def facts_of(connection: sqlite3.Connection) -> Facts:
    """What the database says, read in a transaction of someone else's."""
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    (version,) = connection.execute("SELECT max(version) FROM migration").fetchone()
    (orphans,) = connection.execute(statement("health.orphans"), (_LOOKED_AT,)).fetchone()
    return Facts(journal_mode=mode, synchronous=_SYNCHRONOUS[synchronous], version=version, orphans=orphans)


def examined(facts: Facts, path: Path, *, writes: bool = True) -> Examination:
    """What the facts and the file mean, to a process that may write it or may not."""
    tier = SQLITE_FULL if facts.synchronous in ("FULL", "EXTRA") else SQLITE_NORMAL
    return Examination(tier=tier, findings=(*_judged(facts, tier, writes), *_file(path)))


def _judged(facts: Facts, tier: Tier, writes: bool) -> Iterable[Finding]:
    if tier is SQLITE_FULL:
        yield durability(tier)
    else:
        yield durability(tier, Level.YELLOW, "leave ?synchronous out of the store URL to survive a power loss, too")
    yield Finding(what="SQLite", value=f"{sqlite3.sqlite_version}, schema version {facts.version}")
    if not writes:
        yield Finding(
            what="access",
            level=Level.YELLOW,
            value="read-only for this user: from here nothing can be submitted, run or changed",
            remedy="make the file and its folder writable for this user, unless others are to do that",
        )
    elif facts.journal_mode.lower() != "wal":
        yield Finding(
            what="journal mode",
            level=Level.RED,
            value=facts.journal_mode,
            remedy="end every other program that uses the file, then start fairlead again: it sets WAL itself",
        )
    if facts.orphans:
        yield Finding(
            what="orphans",
            level=Level.RED,
            value=f"{facts.orphans:,} index entries name a task that is not there",
            remedy="restore the file from a backup; something else has written into it",
        )
    else:
        yield Finding(what="orphans", value="every index entry that was looked at has its task")


def _file(path: Path) -> Iterable[Finding]:
    # Imported here: it brings in archives and their compression, and every process that has a store has this module.
    import shutil

    filesystem = filesystem_of(path, _mounts())
    if filesystem in _NETWORKED or filesystem.startswith("fuse.sshfs"):
        yield Finding(
            what="filesystem",
            level=Level.RED,
            value=f"{filesystem}, a network filesystem, whose locks SQLite cannot trust",
            remedy="move the file to a disk of this host, or use Redis or PostgreSQL",
        )
    # Half a megabyte, which a process that looks at no disk can do without.

    try:
        private = privacy(path)
        free = shutil.disk_usage(path).free
        wal = path.with_name(f"{path.name}-wal")
        wal_size = wal.stat().st_size if wal.exists() else 0
    except OSError as error:
        yield unknown("file", error, f"make {path} and its folder readable for this user")
        return
    yield private
    yield disk(free)
    if wal_size > _LONG_WAL:
        yield Finding(
            what="write-ahead log",
            level=Level.YELLOW,
            value=f"{wal_size / 1024**2:,.0f} MB: a process that reads for very long keeps it from shrinking",
            remedy="look for a backup or a shell that has the file open, and end it",
        )


def disk(free: int) -> Finding:
    """How much room is left."""
    level = Level.GREEN if free >= _SPARE else Level.YELLOW if free >= _LITTLE else Level.RED
    remedy = "" if level is Level.GREEN else "free some space: on a full disk every submit is refused"
    return Finding(what="disk", level=level, value=f"{free / 1024**2:,.0f} MB free", remedy=remedy)


def sound(path: Path) -> Finding:
    """Whether the file is sound, read through on a connection of its own so that nobody waits for it."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return soundness(connection, path)
    except sqlite3.Error as error:
        return _unsound(str(error))


def soundness(connection: sqlite3.Connection, path: Path) -> Finding:
    """Whether the file is sound, by a connection that nobody else waits for."""
    size = path.stat().st_size
    if size > CHECKED:
        return Finding(
            what="integrity",
            value=f"not checked: a file of {size / 1024**2:,.0f} MB takes long; `PRAGMA quick_check` does it",
        )
    try:
        (answer, *_) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        answer = str(error)
    return Finding(what="integrity", value="quick_check finds no fault") if answer == "ok" else _unsound(answer)


def _unsound(answer: str) -> Finding:
    return Finding(
        what="integrity",
        level=Level.RED,
        value=answer,
        remedy="stop all workers and restore the file from a backup, or `sqlite3 file .recover`",
    )


def filesystem_of(path: Path, mounts: Iterable[str]) -> str:
    """The kind of filesystem that a path is on, by the lines of /proc/self/mountinfo; empty if unknown."""
    best, kind = "", ""
    for line in mounts:
        fields, _, rest = line.partition(" - ")
        words = fields.split()
        point = words[4].replace("\\040", " ") if len(words) > 4 else ""
        if point and path.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, rest.split(" ", 1)[0]
    return kind


def _mounts() -> list[str]:
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
