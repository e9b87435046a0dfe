"""The SQLite store: one file, fully durable, safe for many processes on one host.

Every write is one transaction that holds SQLite's single write lock from its start, so operations may read, compute in
Python and write without anyone coming between. Reads use a connection of their own and never wait for a write.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from fairlead.core.errors import FairleadError
from fairlead.core.health.diagnosis import Examination, Finding
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.task import Priority, Task
from fairlead.storage.deadline import Budget, timed_store
from fairlead.storage.lane_search import FEW
from fairlead.storage.quarantine import UNDECODABLE, Damage, Damaged, Location, Quarantine, Removal
from fairlead.storage.sqlite import arrivals, change, concurrency_keys, read, records, turns
from fairlead.storage.sqlite import feed as feeding
from fairlead.storage.sqlite.add import add
from fairlead.storage.sqlite.claim import claim as claim_tasks
from fairlead.storage.sqlite.database import PATIENCE, Connection, connect, transact
from fairlead.storage.sqlite.file_permissions import privacy
from fairlead.storage.sqlite.read import Found
from fairlead.storage.sqlite.read_only import Reader, Refuser, may_write
from fairlead.storage.sqlite.runner import InlineRunner, Operation, Result, Runner, ThreadRunner, writer_of
from fairlead.storage.sqlite.url import parse
from fairlead.storage.sqlite.wait import Doorbell
from fairlead.storage.values import (
    Beat,
    Change,
    Claim,
    FeedEntry,
    Filter,
    LineKeys,
    Pulse,
    Receipt,
    Record,
    Stretch,
    Tally,
    Usage,
    Verdict,
)


@timed_store
class SqliteStore:
    """Tasks in a file. See `fairlead.storage.protocol` for the contract."""

    def __init__(
        self,
        path: Path,
        *,
        blocking: bool = False,
        synchronous: str = "FULL",
        patience: float = PATIENCE,
        few: int = FEW,
    ) -> None:
        """A claim looks at each lane and queue where there are no more of them than `few`."""
        path = path.resolve()
        self._blocking = blocking
        self._path = path
        self._few = few
        self.budget = Budget(patience, path, blocking=blocking)
        self.quarantine = Quarantine(self, self._set_aside, self._locate)
        self._writer: Runner = Refuser(path)
        self._writes = may_write(path)
        self._reader: Runner
        if self._writes:
            self._open(path, synchronous, patience)
        else:
            self._bell = Doorbell(path)
            self._reader = Reader(path, blocking=blocking, synchronous=synchronous, patience=patience)

    def _open(self, path: Path, synchronous: str, patience: float) -> None:
        """Connect for reading and writing."""
        write = connect(path, synchronous=synchronous, patience=patience)
        read = connect(path, synchronous=synchronous, patience=patience)
        self._bell = Doorbell(path, write)
        # A read waits only while another process repairs the file, so there it may be left to SQLite.
        read.execute(f"PRAGMA busy_timeout = {round(patience * 1_000)}")
        if self._blocking:
            # Its commits are small, and take longer while the log grows: it is kept short, though not so short that
            # checkpoints would be a large part of the work.
            write.execute("PRAGMA wal_autocheckpoint = 250")
            self._writer = InlineRunner(write, path, "BEGIN IMMEDIATE", patience)
            self._reader = InlineRunner(read, path, "BEGIN", patience)
        else:
            self._writer = ThreadRunner(write, path, "BEGIN IMMEDIATE", "fairlead-sqlite-writer", patience)
            self._reader = ThreadRunner(read, path, "BEGIN", "fairlead-sqlite-reader", patience)

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        operation = partial(add, tasks=tasks, now=now, bounds=bounds)
        alone = partial(arrivals.arrive, task=tasks[0]) if arrivals.may_arrive(tasks, bounds) else None
        receipts, ready = await self._change(operation, alone)
        self._bell.ring(ready)
        return receipts

    async def claim(self, claim: Claim) -> list[Task]:
        return await self._write(partial(claim_tasks, request=claim, few=self._few))

    async def extend(
        self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None = None
    ) -> list[Pulse]:
        return await self._write(partial(change.extend, beats=beats, lease=lease, grace=grace, now=now))

    async def curtail(self, *, lease: Span, limit: int, now: Instant | None = None) -> int:
        return await self._write(partial(change.curtail, lease=lease, limit=limit, now=now))

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        changed = partial(change.apply, changes=changes)
        verdicts, ready = await self._change(changed, given=partial(change.store_all, changes=changes))
        self._bell.ring(ready)
        return verdicts

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        return await self._read(partial(read.get, ids=ids))

    async def due(self, now: Instant | None, limit: int, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        return await self._read(partial(read.due, now=now, limit=limit, after=after))

    async def holder(self, queue: str, key: str, *, now: Instant | None = None) -> TaskId | None:
        return await self._reader.run(partial(read.holder, queue=queue, key=key, now=now))

    async def find(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        find = partial(read.find, matching=matching, limit=limit, newest_first=newest_first, after=after)
        return await self._read(find)

    async def tally(self) -> Tally:
        return await self._reader.run(read.tally)

    async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
        return await self._reader.run(partial(read.count, stretches=stretches, most=most))

    async def usage(self, queue: str, task_type: str, key: str | None) -> Usage:
        return await self._reader.run(partial(concurrency_keys.usage, queue=queue, task_type=task_type, key=key))

    async def line_keys(self, queue: str, priority: Priority, *, named: Sequence[str] = (), most: int = 0) -> LineKeys:
        asked = partial(turns.line_keys, queue=queue, priority=priority, named=named, most=most)
        return await self._reader.run(asked)

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        return await self._change(partial(records.put, kind=kind, name=name, value=value, expected=expected))

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        return await self._writer.run(partial(records.drop, kind=kind, name=name, expected=expected))

    async def scan(self, kind: str) -> list[Record]:
        return await self._reader.run(partial(records.scan, kind=kind))

    async def publish(self, values: Sequence[bytes], *, now: Instant, keep: int) -> None:
        await self._change(partial(feeding.publish, values=values, now=now, keep=keep))

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
        # For the doctor alone, as below.
        from fairlead.storage.sqlite import health

        facts = await self._reader.run(health.facts_of)
        found = health.examined(facts, self._path, writes=self._writes)
        return replace(found, findings=(*found.findings, await self._soundness()))

    def writer(self) -> int | None:
        return writer_of(self._path)

    def privacy(self) -> Finding:
        """Who else may open the file."""
        return privacy(self._path)

    async def _soundness(self) -> Finding:
        from fairlead.storage.sqlite import health

        if not self._writes:
            return await self._reader.run(partial(health.soundness, path=self._path))
        return health.sound(self._path) if self._blocking else await asyncio.to_thread(health.sound, self._path)

    async def _read(self, operation: Operation[list[Found]]) -> list[Found]:
        """What an operation reads. What it met that cannot be decoded is set aside, and is not in its answer."""
        try:
            return await self._reader.run(operation)
        except Damaged as met:
            if self._writes:
                await self.quarantine.set_aside(met.found)
            answer: list[Found] = met.answer
            return answer

    async def _write(self, operation: Operation[Result]) -> Result:
        """Run an operation that writes, again without what it met that cannot be decoded."""
        while True:
            try:
                return await self._writer.run(operation)
            except Damaged as met:
                await self.quarantine.clear(met.found)

    async def _change(
        self,
        operation: Operation[Result],
        alone: Operation[Result | None] | None = None,
        given: Operation[object] | None = None,
    ) -> Result:
        """`_write`, of what a caller gives; raises StoreMismatch when the file is damaged where nothing is set aside.

        `given` stores what the caller gives where there is nothing else; mostly the operation does.
        """
        while True:
            try:
                try:
                    return await self._writer.run(operation, alone=alone)
                except Damaged as met:
                    await self.quarantine.clear(met.found)
            except UNDECODABLE as error:
                if isinstance(error, FairleadError) or _is_callers(given or operation):
                    raise
                raise self.budget.unsound(error) from error

    async def _set_aside(self, damage: Damage) -> Removal:
        removal, ready = await self._write(partial(change.set_aside, damage=damage))
        self._bell.ring(ready)
        return removal

    async def _locate(self, damage: Damage) -> Location | None:
        return await self._reader.run(partial(read.locate, task_id=damage.id))

    async def close(self) -> None:
        await self._writer.close()
        await self._reader.close()
        self._bell.close()


def open_sqlite(url: str, *, blocking: bool) -> SqliteStore:
    """The store at this URL."""
    address = parse(url)
    return SqliteStore(address.path, blocking=blocking, synchronous=address.synchronous)


def _is_callers(write: Callable[[Connection], object]) -> bool:
    """Whether what a write was given cannot be stored anywhere, so that the caller is at fault and not the file.

    It is tried again on an empty file of its own: what fails there as well has nothing to do with what is stored. Reads
    are given nothing that might not be stored, so for them the file is to blame.
    """
    import tempfile  # With the compressors that it needs it takes memory, and nobody may ever need it.

    with tempfile.TemporaryDirectory() as folder, contextlib.closing(_empty(Path(folder))) as connection:
        try:
            transact(connection, "BEGIN IMMEDIATE", write)
        except UNDECODABLE:
            return True
    return False


def _empty(folder: Path) -> Connection:
    return connect(folder / "empty.db", synchronous="OFF")
