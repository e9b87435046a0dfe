"""Who may read and write the files of a store: nobody but the user who made them, whatever the umask says.

The log and its index get the permissions of the file: SQLite gives them.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fairlead.core.health.diagnosis import Finding, Level

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700

_LOOKED_AT: Final = 1_000
"""How many pipes are looked at."""
_creating: Final = threading.Lock()


def create(path: Path) -> None:
    """Make the file, empty and private, if it is not there. What keeps it from being made, SQLite tells better."""
    if path.exists():
        return
    # One at a time: to close a file ends the locks that SQLite has on it in this process.
    with _creating, contextlib.suppress(OSError):
        made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            _restrict(made, FILE_MODE)
        finally:
            os.close(made)


def create_folder(path: str) -> None:
    """Make a private folder if it is not there."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, FOLDER_MODE)  # noqa: PTH102 - every queue that is waited for comes by here
        _restrict(path, FOLDER_MODE)


def open_pipe(path: str, flags: int) -> int:
    """Open a pipe; raises OSError for anything else, which somebody who may write the folder has put there."""
    opened = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    if not stat.S_ISFIFO(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.ENXIO, "it is no pipe", path)
    return opened


def create_pipe(path: str) -> None:
    """Make a private named pipe if it is not there."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, FILE_MODE)
        _restrict(path, FILE_MODE)


def privacy(path: Path) -> Finding:
    """Who else may open the store: its file, what belongs to it, or the folder of its pipes."""
    shown = stat.filemode(path.stat().st_mode)
    folder = path.parent.stat().st_mode if os.name == "posix" else 0
    if folder & stat.S_IWOTH and not folder & stat.S_ISVTX:
        return Finding(
            what="permissions",
            level=Level.RED,
            value=f"{stat.filemode(folder)}: every user of this host may put other files in the place of those in "
            f"{path.parent}",
            remedy=f"take that right away: chmod o-w {_quoted(path.parent)}",
        )
    modes = list(_modes(path)) if os.name == "posix" else []
    everybody = [part for part, mode in modes if mode & stat.S_IRWXO]
    group = [part for part, mode in modes if mode & stat.S_IRWXG]
    if everybody:
        return Finding(
            what="permissions",
            level=Level.RED,
            value=f"{shown}: every user of this host may open {_named(everybody)}",
            remedy=f"take the rights of others away: {_command('go=', path)}",
        )
    if group:
        return Finding(
            what="permissions",
            level=Level.YELLOW,
            value=f"{shown}: the group may open {_named(group)}",
            remedy=f"unless it is meant to, take its rights away: {_command('g=', path)}",
        )
    return Finding(what="permissions", value=f"{shown}: nobody but its user may open it")


def _restrict(made: int | str, mode: int) -> None:
    """Set what the umask has taken away: without it not even the owner could open what was made."""
    if os.name == "posix" and stat.S_IMODE(os.stat(made).st_mode) != mode:  # noqa: PTH116 - may be a descriptor
        os.chmod(made, mode)  # noqa: PTH101 - as above


def _modes(path: Path) -> Iterator[tuple[Path, int]]:
    """The files, the folder and the pipes that are there, and their modes."""
    bells = bells_of(path)
    pipes: list[Path] = []
    with contextlib.suppress(OSError), os.scandir(bells) as entries:
        pipes = [Path(entry.path) for entry in itertools.islice(entries, _LOOKED_AT)]
    for part in (path, *(path.with_name(f"{path.name}-{end}") for end in ("wal", "shm", "journal")), bells, *pipes):
        with contextlib.suppress(OSError):
            yield part, stat.S_IMODE(part.lstat().st_mode)


def bells_of(path: Path) -> Path:
    """The folder of a store's pipes."""
    return path.with_name(f"{path.name}-bells")


def _named(parts: list[Path]) -> str:
    return f"{parts[0]}{f' and {len(parts) - 1} more of its files' if len(parts) > 1 else ''}"


def _command(change: str, path: Path) -> str:
    return f"chmod -R {change} {_quoted(path)}*"


def _quoted(path: Path) -> str:
    """A path as a shell reads it."""
    # Hardly ever needed.
    import shlex

    return shlex.quote(str(path))
