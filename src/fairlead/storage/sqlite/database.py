"""The file: opening it, its settings, its schema, its transactions, and what its errors mean."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from fairlead.core.errors import StoreError, StoreFull, StoreMismatch, StoreReadOnly, StoreUnavailable
from fairlead.core.identity import TaskId
from fairlead.core.task import Status
from fairlead.storage.deadline import PATIENCE as PATIENCE
from fairlead.storage.sql_files import statements_in
from fairlead.storage.sqlite.file_permissions import create

Standing: TypeAlias = tuple[int, int, Status, str | None]
"""A task's number, its lane, how it stands, and its concurrency key."""


class Memory:
    """What a connection remembers of the tasks that it has claimed, by id, so that their settle need not read them.

    A worker settles nearly every task on the connection that claimed it, with nothing in between. SQLite tells whether
    anyone else, in this process or another, has written to the file meanwhile: then nothing that was remembered counts.
    What this connection writes itself it takes note of, and a transaction that is rolled back takes all memories with
    it.
    """

    def __init__(self) -> None:
        self._tasks: dict[TaskId, Standing] = {}
        self._version: int | None = None

    def current(self, connection: sqlite3.Connection) -> dict[TaskId, Standing]:
        """Those that stand so in the transaction under way; the caller keeps it true of what it writes."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._tasks.clear()
        return self._tasks

    def forget(self) -> None:
        self._tasks.clear()


Result = TypeVar("Result")
Subject = TypeVar("Subject")

# Not by `importlib.resources`, which is for packages inside archives and brings in what reads and makes those.
_FOLDER: Final = Path(__file__).parent

statement: Final = statements_in(_FOLDER / "sql")
"""The statement of a name."""

_ROWS_AT_ONCE: Final = (100, 10, 1)
"""Few sizes, so that each is prepared once and found again."""

_APPLICATION_ID: Final = 0x66_6C_65_64
"""Marks the file as ours, so that another program's database is not written into."""

_PRAGMAS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA foreign_keys = OFF",
    "PRAGMA temp_store = MEMORY",
    # Small: a commit that has moved pages looks through all of the cache, and the system keeps the file in memory too.
    "PRAGMA cache_size = -4096",
    "PRAGMA wal_autocheckpoint = 1000",
    "PRAGMA journal_size_limit = 67108864",
)

# SQLite looks for a lock ever more seldom, down to ten times a second: among busy processes the one that has waited
# longest is then the least likely to get it. So it is told to give up soon, and asked again until patience ends.
_KEEN: Final = "PRAGMA busy_timeout = 20"
_PAUSE: Final = 0.005

_DESCRIPTORS: Final = "/proc/self/fd"
_LINKS_HOLD: Final = 1.0
"""For how long, in seconds, descriptors and the folder alone are looked at."""
_TICK: Final = 100_000_000
"""Nanoseconds within which the system may give two changes of a folder the same time, and much more."""
_PARTS: Final = 2


class Connection(sqlite3.Connection):
    """A connection to the file, and what it remembers."""

    memory: Memory
    path: str
    identity: tuple[int, int]
    """Which file it is of, whatever is at the path now."""
    log: str
    """Where the file's log is: what was committed last is in that alone."""
    log_identity: tuple[int, int] | None = None
    """Which log it writes; None until there is one. It stays the same for as long as any process has the file open."""
    links: tuple[tuple[str, str], ...] = ()
    """Descriptors of both in this process, and where they led when both were found at their paths."""
    many_lanes: int = 0
    """How many more claims are to take it that there are many lanes, without counting them."""
    links_until: float = 0.0
    """When to look for both at their paths once more, on the monotonic clock."""
    folder: str
    folder_state: tuple[int, int, int] | None = None
    """Which folder it is and when it last changed, if both were there after that; None if it may be changing now."""


def connect(path: Path, *, synchronous: str, patience: float = PATIENCE) -> Connection:
    """A connection to the file, which is created if it is not there; transactions are the caller's."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return _connect(path, synchronous)
        except sqlite3.Error as error:
            # Two processes that make the same file at once get in each other's way, and SQLite does not wait then.
            if not is_busy(error) or time.monotonic() >= deadline:
                raise named(error, path, patience) from error
        time.sleep(_PAUSE)


def _connect(path: Path, synchronous: str) -> Connection:
    create(path)
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=256, factory=Connection
    )
    connection.memory = Memory()
    try:
        found = path.stat()
        connection.path = str(path)
        connection.identity = found.st_dev, found.st_ino
        connection.log = f"{path}-wal"
        connection.folder = str(path.parent)
        connection.execute(_KEEN)
        # Before anything is set: some settings are written into the file, and it may be another program's.
        version = transact(connection, "BEGIN", lambda reading: _version(reading, path))
        for pragma in _PRAGMAS:
            connection.execute(pragma)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        if version < len(_migrations()):
            transact(connection, "BEGIN IMMEDIATE", lambda writing: _migrate(writing, path))
        check_file(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date; a file that is not ours or is newer than this code is refused."""
    version = _version(connection, path)
    for number, script in enumerate(_migrations()[version:], start=version + 1):
        for statement in script.split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT INTO migration (version) VALUES (?)", (number,))
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the schema. Reads more than once, so it must be inside a transaction."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    if mark == 0 and tables == 0:
        return 0
    if mark != _APPLICATION_ID:
        raise StoreMismatch(f"{path} is a database of another program; give fairlead a file of its own")
    (version,) = connection.execute("SELECT max(version) FROM migration").fetchone()
    newest = len(_migrations())
    if version > newest:
        raise StoreMismatch(
            f"{path} has schema version {version} and this fairlead knows {newest}; upgrade fairlead to open it"
        )
    return int(version)


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Raise if this code cannot read the file's schema, where it may not bring it up to date."""
    version = _version(connection, path)
    if version < (newest := len(_migrations())):
        raise StoreReadOnly(
            f"{path} has schema version {version} where this fairlead reads {newest}, and cannot be written to bring "
            f"it up to date; open it once as a user who may write the file and its folder"
        )


@functools.cache
def _migrations() -> list[str]:
    return [script.read_text(encoding="utf-8") for script in sorted((_FOLDER / "migrations").glob("*.sql"))]


def transact(
    connection: Connection,
    begin: str,
    operation: Callable[[Connection], Result],
    deadline: float = 0.0,
) -> Result:
    """An operation in a transaction of its own, for whose locks it waits until the deadline."""
    try:
        patiently(connection.execute, begin, deadline)
        result = operation(connection)
        connection.execute("COMMIT")
    except BaseException:
        connection.memory.forget()
        # Some errors, a full disk among them, have rolled back already; and what caused it is what the caller wants.
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise
    return result


def check_file(connection: Connection) -> None:
    """Raise StoreUnavailable if the file or its log is no longer at its path: nobody will find what is written then.

    This is asked before anything is acknowledged. While nothing in their folder was added, removed or renamed, both are
    there. Else the kernel tells by the name of an open descriptor that its file was deleted or moved. To look at the
    files themselves is dearer by far: a file whose times were asked for has them written at its next change, and the
    next commit has to write those too.
    """
    folder: tuple[int, int, int] | None
    try:
        found = os.stat(connection.folder)  # noqa: PTH116 - half the time of Path.stat, and every call comes by here
        # Not the time of its contents, which anybody may set.
        folder = found.st_dev, found.st_ino, found.st_ctime_ns
    except OSError:
        folder = None
    recent = time.monotonic() < connection.links_until
    if recent and folder == connection.folder_state and folder is not None:
        return
    if not (recent and _hold(connection.links)):
        _check_part(connection.path, connection.identity)
        log = _check_part(connection.log, connection.log_identity)
        if connection.log_identity is None:
            connection.log_identity = log
        connection.links = _links(connection)
        connection.links_until = time.monotonic() + _LINKS_HOLD
    # What changes after this look has a later time, unless the last change is of this moment.
    settled = folder is not None and time.time_ns() - folder[-1] > _TICK and connection.log_identity is not None
    connection.folder_state = folder if settled else None


def _hold(links: tuple[tuple[str, str], ...]) -> bool:
    """Whether descriptors of both files still lead to their paths."""
    try:
        return len(links) == _PARTS and all(os.readlink(link) == path for link, path in links)  # noqa: PTH115
    except OSError:
        # Closed, or there is no such folder: the files themselves tell.
        return False


def _links(connection: Connection) -> tuple[tuple[str, str], ...]:
    """A descriptor for each of the two files, and where it leads; fewer where the system does not list them."""
    wanted = {connection.path: connection.identity, connection.log: connection.log_identity}
    found: dict[str, str] = {}
    try:
        for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - names, not paths
            link = f"{_DESCRIPTORS}/{name}"
            with contextlib.suppress(OSError):
                path = os.readlink(link)  # noqa: PTH115
                if path in wanted:
                    there = os.stat(link)  # noqa: PTH116
                    if (there.st_dev, there.st_ino) == wanted[path]:
                        found[path] = link
    except OSError:
        return ()
    return tuple((link, path) for path, link in found.items())


def _check_part(path: str, identity: tuple[int, int] | None) -> tuple[int, int] | None:
    """Which file is at a path; raises StoreUnavailable if there was one, and it is not that."""
    try:
        found = os.stat(path)  # noqa: PTH116 - as above
    except FileNotFoundError:
        if identity is None:
            return None
        happened = "was deleted"
    except OSError:
        return identity
    else:
        there = found.st_dev, found.st_ino
        if identity in (None, there):
            return there
        happened = "was replaced by another file"
    raise StoreUnavailable(
        f"{path} {happened} while it was open, so nothing that is written now would be found; put the file back, and "
        f"start this process again"
    )


def write_rows(connection: sqlite3.Connection, name: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Run a statement for rows of values, many at a time.

    It costs SQLite the same as one by one. But it is one long call, during which the interpreter's other threads run,
    where one by one they would be in each other's way at every row.
    """
    if not rows:
        return
    start = 0
    for size in _ROWS_AT_ONCE:
        while len(rows) - start >= size:
            chunk = rows[start : start + size]
            connection.execute(_for_rows(name, len(chunk[0]), size), list(itertools.chain.from_iterable(chunk)))
            start += size


@functools.cache
def _for_rows(name: str, columns: int, rows: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return statement(name).format(rows=", ".join([row] * rows))


def patiently(run: Callable[[Subject], Result], subject: Subject, deadline: float) -> Result:
    """Run what is one statement, again while another process is in its way, until the deadline."""
    while True:
        try:
            return run(subject)
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise


def is_busy(error: Exception) -> bool:
    """Whether another process was in the way."""
    return isinstance(error, sqlite3.Error) and _primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def named(error: sqlite3.Error, path: Path, patience: float = PATIENCE) -> StoreError:
    """Our error for one of SQLite's, with the file and the remedy."""
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE:
        return _full(path)
    match _primary_code(error):
        case sqlite3.SQLITE_FULL:
            return _full(path)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return _read_only(path, error)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return locked(path, patience)
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return StoreMismatch(f"{path} is not a readable SQLite database ({error}); restore it or use another file")
        case sqlite3.SQLITE_CANTOPEN:
            return _not_opened(path, error)
        case _:
            return StoreUnavailable(f"{path}: {error}; whether the call took effect is unknown, repeating it is safe")


def _primary_code(error: sqlite3.Error) -> int:
    # The low byte; the rest only says more closely where it happened.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def locked(path: Path, patience: float) -> StoreError:
    """Our error for a file that others did not let us have."""
    return StoreUnavailable(
        f"{path} was locked by another process for {patience:g} s; nothing was stored. Repeat the call, and look for "
        f"a process that holds the file"
    )


def _full(path: Path) -> StoreError:
    return StoreFull(f"the disk of {path} is full; nothing was stored. Free some space and repeat the call")


def _read_only(path: Path, error: sqlite3.Error) -> StoreError:
    return StoreReadOnly(
        f"{path} cannot be written ({error}); nothing was stored. Make the file and its folder writable for this user"
    )


def _not_opened(path: Path, error: sqlite3.Error) -> StoreError:
    """SQLite does not say why it could not open one of the file's parts; the folder does."""
    if not path.parent.is_dir():
        return StoreUnavailable(f"{path} cannot be opened: there is no folder {path.parent}; create it")
    if path.exists() and not os.access(path, os.R_OK):
        return StoreUnavailable(f"{path} cannot be opened: this user may not read it; make it readable for this user")
    if not os.access(path.parent, os.W_OK):
        return _read_only(path, error)
    return StoreUnavailable(f"{path} cannot be opened ({error}); check that it is a file this user may read and write")
