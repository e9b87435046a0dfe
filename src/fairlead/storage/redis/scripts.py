"""The Lua scripts, one file per operation.

**Every script names one key more than its header says**, as the last of KEYS: the absent key of the slot, which is
never stored. While a slot is being moved, a node of a Cluster runs a command with several keys only if it has all of
them. So none runs a script as long as some of the keys of the slot are here and some are there: the queue pauses, it
does not split. See ADR 0122.

Servers from 7.0 on are told by flags that a script may run when memory is full: what settles, renews or claims tasks
must work there, or a full store could never be drained. Older ones let a script write once it has begun by freeing
something, so it does: it removes the absent key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct

# Not by `importlib.resources`, which is for packages inside archives and brings in what reads and makes those.
_FOLDER: Final = Path(__file__).with_name("lua")

_DRAIN_ON_OLD: Final = "redis.call('del', KEYS[#KEYS])\n"


class ScriptText(Struct, frozen=True):
    """A script's text and the digest that servers know it by."""

    source: bytes
    digest: bytes


class Script(Struct, frozen=True):
    """One operation, as servers from 7.0 on and older ones take it."""

    name: str
    flagged: ScriptText
    plain: ScriptText

    def text(self, flagged: bool) -> ScriptText:
        return self.flagged if flagged else self.plain


def _text(source: str) -> ScriptText:
    encoded = source.encode()
    return ScriptText(encoded, hashlib.sha1(encoded, usedforsecurity=False).hexdigest().encode())


def _script(
    name: str, *before: str, flag: str = "", drains: bool = False, notes: bool = False, file: str | None = None
) -> Script:
    """The script of this file, behind the files it builds upon; with `notes`, it notes what it changes."""
    body = "\n".join((_FOLDER / f"{part}.lua").read_text(encoding="utf-8") for part in (*before, file or name))
    if "tasks" in before:
        body = f"local NOTES = {str(notes).lower()}\n{body}"
    flags = "allow-oom" if drains else flag
    shebang = f"#!lua flags={flags}\n" if flags else "#!lua\n"
    return Script(name, _text(shebang + body), _text((_DRAIN_ON_OLD if drains else "") + body))


class Writers(Struct, frozen=True):
    """The scripts that claim and change tasks."""

    claim: Script
    claim_crowded: Script
    """`claim`, where a queue has many lanes."""
    take: Script
    apply: Script
    settle: Script
    claim_limited: Script
    take_limited: Script


_TASKS: Final = ("sizes", "clock", "order", "basics", "tasks")
_INDEXES: Final = ("sizes", "clock", "order", "basics", "listings", "tasks", "indexes")


def _writers(*, notes: bool) -> Writers:
    def writer(name: str, *before: str, file: str | None = None) -> Script:
        return _script(name, *before, drains=True, notes=notes, file=file)

    return Writers(
        claim=writer("claim", *_TASKS, "selection", "held", "lane_alone", "fair", "fair_alone", "lanes", "turns"),
        claim_crowded=writer("claim_crowded", *_TASKS, "selection", "held", "lanes", "turns", "views", file="claim"),
        take=writer("take", *_INDEXES),
        apply=writer("apply", *_INDEXES, "keyed", "fair", "lost", "pending"),
        settle=writer("settle", *_INDEXES),
        claim_limited=writer(
            "claim_limited", *_TASKS, "keyed", "fair", "limits", "selection", "lanes", "turns", "views", "fair_lines"
        ),
        take_limited=writer("take_limited", *_INDEXES, "keyed", "fair", "limits"),
    )


SILENT: Final = _writers(notes=False)
NOTING: Final = _writers(notes=True)
"""They note what they change in the outbox, for the journal."""

ADD: Final = _script("add", "sizes", "clock", "order", "basics", "listings", "keyed", "fair", "holders", "pending")
HOLDER: Final = _script("holder", "sizes", "clock", "holders", flag="no-writes")
ADD_READY: Final = _script("add_ready", "sizes", "order", "basics", "listings")
ADD_FAIR: Final = _script("add_fair", "sizes", "order", "basics", "listings", "fair")
ADD_ONE: Final = _script("add_one", "sizes", "order")
LOOK: Final = _script("look", *_TASKS, "keyed", "fair", "limits", drains=True)
EXTEND: Final = _script("extend", *_INDEXES, drains=True)
CURTAIL: Final = _script("curtail", *_INDEXES, drains=True)
TIME: Final = _script("time", "clock", flag="no-writes")
SELECT: Final = _script("select", drains=True)
NOTES: Final = _script("notes", "clock", drains=True)
NOTED: Final = _script("noted", *_TASKS, drains=True)
DUE: Final = _script("due", "clock", "order", "beyond", flag="no-writes")
WALK: Final = _script("walk", "sizes", "order", "beyond", flag="no-writes")
TALLY: Final = _script("tally", flag="no-writes")
HEADS: Final = _script("heads", flag="no-writes")
LINE_KEYS: Final = _script("line_keys", flag="no-writes")
COUNT: Final = _script("count", "order", "beyond", flag="no-writes")
PUT: Final = _script("put", drains=True)
DROP: Final = _script("drop", drains=True)
PUBLISH: Final = _script("publish")
REGISTER: Final = _script("register", drains=True)
MARK: Final = _script("mark", drains=True)
RETIRE: Final = _script("retire", drains=True)


# How much goes into one call: the server does nothing else meanwhile, so a call must end within a few milliseconds.

CHUNK: Final = 64
"""Tasks per call that adds or changes them: a settle of so many takes about a millisecond, and larger ones would not
take less for each. See tests/storage/redis/test_slowlog."""

CLAIM_CHUNK: Final = 128
"""Tasks per call that claims them; there is something to do for each of the lanes looked at."""

CHUNK_BYTES: Final = 512 * 1024
"""Bytes per call, unless a single task has more."""

Entry = TypeVar("Entry")


def cut(entries: Sequence[Entry], size: Callable[[Entry], int]) -> list[Sequence[Entry]]:
    """The entries in their order, cut where a call would take too long."""
    chunks: list[Sequence[Entry]] = []
    first, total = 0, 0
    for at, entry in enumerate(entries):
        added = size(entry)
        if at > first and (at - first == CHUNK or total + added > CHUNK_BYTES):
            chunks.append(entries[first:at])
            first, total = at, 0
        total += added
    if first < len(entries):
        chunks.append(entries[first:] if first else entries)
    return chunks
