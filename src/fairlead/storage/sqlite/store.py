"""The SQLite store: one file, fully durable, safe for many processes on one host.

Every write is one transaction that holds SQLite's single write lock from its start, so operations may read, compute in
Python and write without anyone coming between. Reads use a connection of their own and never wait for a write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from fairlead.core.diagnosis import Examination
from fairlead.core.errors import InvalidSettings
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.task import Task
from fairlead.storage.sqlite import examining, feeding, filing, keyed, reading, writing
from fairlead.storage.sqlite.database import PATIENCE, connect
from fairlead.storage.sqlite.doorbell import Doorbell
from fairlead.storage.sqlite.runner import InlineRunner, Runner, ThreadRunner
from fairlead.storage.values import (
    Added,
    Beat,
    Change,
    Claim,
    FeedEntry,
    Filter,
    Pulse,
    Receipt,
    Record,
    Stretch,
    Tally,
    Usage,
    Verdict,
)

_SYNCHRONOUS = ("FULL", "NORMAL", "EXTRA")


class SqliteStore:
    """Tasks in a file. See `fairlead.storage.protocol` for the contract."""

    def __init__(
        self, path: Path, *, blocking: bool = False, synchronous: str = "FULL", patience: float = PATIENCE
    ) -> None:
        if synchronous.upper() not in _SYNCHRONOUS:
            raise InvalidSettings(f"synchronous={synchronous!r} is unknown; use one of {', '.join(_SYNCHRONOUS)}")
        path = path.resolve()
        self._blocking = blocking
        self._path = path
        self._bell = Doorbell(path)
        writing = connect(path, synchronous=synchronous, patience=patience)
        reading = connect(path, synchronous=synchronous, patience=patience)
        # A read waits only while another process repairs the file, so there it may be left to SQLite.
        reading.execute(f"PRAGMA busy_timeout = {round(patience * 1_000)}")
        self._writer: Runner
        self._reader: Runner
        self._inline: InlineRunner | None = None
        """The writer, if it runs single statements where they are called."""
        if blocking:
            # Its commits are small, and take longer while the log grows: it is kept short, though not so short that
            # checkpoints would be a large part of the work.
            writing.execute("PRAGMA wal_autocheckpoint = 250")
            self._writer = self._inline = InlineRunner(writing, path, "BEGIN IMMEDIATE", patience)
            self._reader = InlineRunner(reading, path, "BEGIN", patience)
        else:
            self._writer = ThreadRunner(writing, path, "BEGIN IMMEDIATE", "fairlead-sqlite-writer", patience)
            self._reader = ThreadRunner(reading, path, "BEGIN", "fairlead-sqlite-reader", patience)

    async def add(self, tasks: Sequence[Task], *, now: Instant, bounds: Mapping[str, int]) -> list[Receipt]:
        if self._inline is not None and filing.may_arrive(tasks, bounds):
            (task,) = tasks
            if self._inline.run_single(partial(filing.arrive, task=task)):
                self._bell.ring({task.spec.queue: 1})
                return [Added()]
        receipts, ready = await self._writer.run(partial(writing.add, tasks=tasks, now=now, bounds=bounds))
        self._bell.ring(ready)
        return receipts

    async def claim(self, claim: Claim) -> list[Task]:
        return await self._writer.run(partial(writing.claim, request=claim))

    async def extend(self, beats: Sequence[Beat], *, until: Instant, grace: Span) -> list[Pulse]:
        return await self._writer.run(partial(writing.extend, beats=beats, until=until, grace=grace))

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        verdicts, ready = await self._writer.run(partial(writing.apply, changes=changes))
        self._bell.ring(ready)
        return verdicts

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        return await self._reader.run(partial(reading.get, ids=ids))

    async def due(self, now: Instant, limit: int, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        return await self._reader.run(partial(reading.due, now=now, limit=limit, after=after))

    async def find(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        find = partial(reading.find, matching=matching, limit=limit, newest_first=newest_first, after=after)
        return await self._reader.run(find)

    async def tally(self) -> Tally:
        return await self._reader.run(reading.tally)

    async def count(self, stretches: Sequence[Stretch]) -> list[int]:
        return await self._reader.run(partial(reading.count, stretches=stretches))

    async def usage(self, queue: str, task_type: str, key: str | None) -> Usage:
        return await self._reader.run(partial(keyed.usage, queue=queue, task_type=task_type, key=key))

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        return await self._writer.run(partial(writing.put, kind=kind, name=name, value=value, expected=expected))

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        return await self._writer.run(partial(writing.drop, kind=kind, name=name, expected=expected))

    async def scan(self, kind: str) -> list[Record]:
        return await self._reader.run(partial(reading.scan, kind=kind))

    async def publish(self, values: Sequence[bytes], *, now: Instant, keep: int) -> None:
        await self._writer.run(partial(feeding.publish, values=values, now=now, keep=keep))

    async def feed(self, after: str | None, limit: int) -> list[FeedEntry]:
        return await self._reader.run(partial(feeding.feed, after=after, limit=limit))

    async def feed_end(self) -> str:
        return await self._reader.run(feeding.feed_end)

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        if self._blocking:
            self._bell.wait_blocking(queues, timeout)
        else:
            await self._bell.wait(queues, timeout)

    async def time(self) -> Instant | None:
        return None

    async def examine(self) -> Examination:
        facts = await self._reader.run(examining.facts_of)
        found = examining.examined(facts, self._path)
        whole = examining.sound(self._path) if self._blocking else await asyncio.to_thread(examining.sound, self._path)
        return replace(found, findings=(*found.findings, whole))

    async def close(self) -> None:
        await self._writer.close()
        await self._reader.close()
        self._bell.close()
