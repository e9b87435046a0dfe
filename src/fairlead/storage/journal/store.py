"""The journal store: a hot store with a journal behind it. See `fairlead.storage.protocol` for the contract.

    add       journal, then hot store; acknowledged after both. What only the journal got is reconciled
    apply     hot store, which notes it in the same step; the flusher carries notes to the journal
    get       hot store, then journal for what is not there
    find      journal, which is a flush behind
    records   journal; those of passing interest, hot store. See `records`
    the rest  hot store

A task that is not in the hot store but in the journal has ended and left, or the hot store has lost it. It can still be
changed: in the journal, under a lock that keeps those away who put tasks back.
"""

from __future__ import annotations

import contextlib
import functools
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from fairlead.core.errors import (
    FairleadError,
    InvalidSettings,
    InvalidTask,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)
from fairlead.core.health.diagnosis import Examination
from fairlead.core.identity import TaskId, slot_of_id
from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.settings import Rules
from fairlead.core.task import Entry, Priority, State, Task
from fairlead.storage.credentials import Credentials, with_credentials
from fairlead.storage.deadline import Budget, patience_of, share, timed, timed_store
from fairlead.storage.journal import health
from fairlead.storage.journal.change import apply_in_journal
from fairlead.storage.journal.duties import Duties
from fairlead.storage.journal.incarnation import Incarnation
from fairlead.storage.journal.journal import Journal, named_by, standing
from fairlead.storage.journal.outbox import HotStore
from fairlead.storage.journal.rebuild import Rebuilt, Recovery, Tell
from fairlead.storage.journal.records import JournalRecords, quarantine_of
from fairlead.storage.journal.rows import Search
from fairlead.storage.journal.url import parse_journal
from fairlead.storage.protocol import Clocked, Prompt, Store
from fairlead.storage.quarantine import Quarantine
from fairlead.storage.values import (
    Added,
    Beat,
    Change,
    Claim,
    FeedEntry,
    Filter,
    Held,
    KeyUnknown,
    Known,
    LineKeys,
    Pulse,
    Receipt,
    Record,
    Stretch,
    Tally,
    Usage,
    Verdict,
)

_NOTED_FIRST: Final[Span] = 5 * SECOND
"""How long a note waits that is made before its task is there."""

_PATIENCE: Final = 1.0
"""Seconds for which a journal that was out of reach is not asked again, when it is not required."""


@timed_store
class JournalStore:
    """Tasks in a hot store, and in a journal that outlives it."""

    def __init__(self, hot: HotStore, journal: Journal) -> None:
        self.hot = hot
        self.journal = journal
        self.budget = Budget(
            max(patience_of(hot), journal.address.database.timeout),
            f"the store, or {journal.address.database.shown},",
            blocking=journal.blocking,
        )
        self._records = JournalRecords(hot, journal)
        self.quarantine = quarantine_of(hot, journal, self._records)
        self._rows = Quarantine(self._records, journal.set_aside, journal.locate, beside=self.quarantine)
        self._incarnation = Incarnation(hot, journal)
        self._recovery = Recovery(hot, journal, self._incarnation)
        self._required = journal.address.required
        self._unasked_until = 0.0

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        if not tasks:
            return []
        await self._incarnation.admit()
        try:
            written = await self._write_down(tasks)
        except (StoreUnavailable, StoreRefused):
            if self._required:
                raise
            self._unasked_until = time.monotonic() + _PATIENCE
            written = None
        if written is None:
            await self.hot.note([task.id for task in tasks], after=_NOTED_FIRST)
            return await self.hot.add(tasks, now=now, bounds=bounds, mark=self._incarnation.text)
        named = named_by(tasks).difference(task.id for task in tasks)
        elsewhere = await standing(self.journal, named) if named else {}
        return await self._add_written(tasks, written, now, bounds, elsewhere)

    async def claim(self, claim: Claim) -> list[Task]:
        return await (await self._current()).claim(claim)

    async def extend(
        self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None = None
    ) -> list[Pulse]:
        return await (await self._current()).extend(beats, lease=lease, grace=grace, now=now)

    async def curtail(self, *, lease: Span, limit: int, now: Instant | None = None) -> int:
        return await (await self._current()).curtail(lease=lease, limit=limit, now=now)

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        verdicts = await (await self._current()).apply(changes)
        removed = [
            change.id
            for change, verdict in zip(changes, verdicts, strict=True)
            if verdict in (Verdict.APPLIED, Verdict.RELEASED) and change.status is None
        ]
        if removed:
            # The removal is noted, so the flusher repeats it.
            with contextlib.suppress(StoreError):
                await self.journal.remove(removed)
        missing = [at for at, verdict in enumerate(verdicts) if verdict is Verdict.MISSING]
        if missing:
            for at, verdict in zip(missing, await self._apply_missing([changes[at] for at in missing]), strict=True):
                verdicts[at] = verdict
        return verdicts

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        tasks = await (await self._current()).get(ids)
        missing = [task_id for task_id, task in zip(ids, tasks, strict=True) if task is None]
        if missing:
            stored = await self.journal.get(missing)
            await self._clear()
            tasks = [task or stored.get(task_id) for task_id, task in zip(ids, tasks, strict=True)]
        return tasks

    async def due(self, now: Instant | None, limit: int, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        return await (await self._current()).due(now, limit, after)

    async def find(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        return await self.search(Search(matching=matching), limit=limit, newest_first=newest_first, after=after)

    async def search(
        self, search: Search, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        """One page of what only a journal can be asked for."""
        await self._incarnation.admit()
        tasks = await self.journal.search(search, max(limit, 0), newest_first, after)
        await self._clear()
        moving = [task.id for task in tasks if task.state is State.EXECUTING or task.status.waits]
        if not moving:
            return tasks
        # Heartbeats and progress never reach the journal, nor how many a task waits for when it is added.
        fresh = {task.id: task for task in await (await self._current()).get(moving) if task is not None}
        return [_fresher(task, fresh.get(task.id)) for task in tasks]

    async def find_current(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        """One page of a listing of both: what the journal has yet to learn, and what only it still has."""
        found: list[Task] = []
        while len(found) < limit:
            pages = [
                await store.find(matching, limit=limit, newest_first=newest_first, after=after)
                for store in (self, self.hot)
            ]
            journaled, hot = pages
            known = {task.id: task for task in hot}
            # What only the journal lists has left the hot store, or has changed there since.
            doubtful = await self.get([task.id for task in journaled if task.id not in known])
            known |= {task.id: task for task in doubtful if task is not None and matching.admits(task)}
            ends = [page[-1].id for page in pages if len(page) == limit]
            if not ends:
                found += [known[task_id] for task_id in sorted(known, reverse=newest_first)]
                break
            # Beyond the nearer end the other page may have more to come.
            after = max(ends) if newest_first else min(ends)
            within = [task_id for task_id in known if (task_id >= after if newest_first else task_id <= after)]
            found += [known[task_id] for task_id in sorted(within, reverse=newest_first)]
        return found[: max(limit, 0)]

    @timed
    async def find_leased(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        """One page of the executing tasks, which the hot store has all of: a journal out of reach keeps nobody."""
        if matching.states != {State.EXECUTING}:
            raise ValueError(f"{sorted(matching.states)} are not all under leases; name the state executing alone")
        hot = await self._current()
        return await hot.find(matching, limit=limit, newest_first=newest_first, after=after)

    async def history(self, task_id: TaskId) -> tuple[Entry, ...]:
        """What a task went through: each decision, with the attempt it ended if it ended one."""
        (task,) = await self.get([task_id])
        return () if task is None else task.status.history

    async def behind(self) -> int:
        """How many changed tasks the journal has yet to learn of."""
        return await (await self._current()).size()

    async def holder(self, queue: str, key: str, *, now: Instant | None = None) -> TaskId | None:
        return await (await self._current()).holder(queue, key, now=now)

    async def tally(self) -> Tally:
        tally = await (await self._current()).tally()
        return replace(tally, journal_behind=await self.behind(), intact=self._incarnation.intact)

    async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
        return await (await self._current()).count(stretches, most)

    async def usage(self, queue: str, task_type: str, key: str | None) -> Usage:
        return await (await self._current()).usage(queue, task_type, key)

    async def line_keys(self, queue: str, priority: Priority, *, named: Sequence[str] = (), most: int = 0) -> LineKeys:
        return await (await self._current()).line_keys(queue, priority, named=named, most=most)

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        await self._incarnation.admit()
        return await self._records.put(kind, name, value, expected=expected)

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        await self._incarnation.admit()
        return await self._records.drop(kind, name, expected=expected)

    async def scan(self, kind: str) -> list[Record]:
        await self._incarnation.admit()
        return await self._records.scan(kind)

    async def publish(self, values: Sequence[bytes], *, now: Instant, keep: int) -> None:
        await (await self._current()).publish(values, now=now, keep=keep)

    async def feed(self, after: str | None, limit: int) -> list[FeedEntry]:
        return await (await self._current()).feed(after, limit)

    async def feed_end(self) -> str:
        return await (await self._current()).feed_end()

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        await (await self._current()).wait(queues, timeout)

    async def wait_and_claim(self, claim: Claim, timeout: float) -> list[Task] | None:
        hot = await self._current()
        if isinstance(hot, Prompt):
            return await hot.wait_and_claim(claim, timeout)
        await hot.wait([order.queue for order in claim.queues], timeout)
        return None

    async def time(self) -> Instant | None:
        return await (await self._current()).time()

    @timed
    async def clocks(self) -> dict[str, Instant]:
        return await self.hot.clocks() if isinstance(self.hot, Clocked) else {}

    @timed
    async def examine(self) -> Examination:
        journal: Examination | FairleadError
        try:
            # One that hangs is not to keep the hot store from being examined.
            with share(3, self.budget.seconds):
                journal = await self.journal.examine()
        except FairleadError as error:
            journal = error
        await self._incarnation.refresh()
        found = health.examined(await self.hot.examine(), journal, await self.hot.size(), required=self._required)
        return replace(found, findings=(*found.findings, health.of_incarnation(self._incarnation)))

    async def upkeep(self, rules: Rules) -> None:
        """Carry notes to the journal, do its other duties, and rebuild a hot store that was lost, until cancelled."""
        recover = functools.partial(self._recovery.once, rules)
        await Duties(self.hot, self.journal, self._incarnation, recover).run()

    async def rebuild(self, rules: Rules, tell: Tell = lambda looked_at, total: None) -> Rebuilt:
        """Put back into the hot store what it has lost and the journal has."""
        return await self._recovery.run(rules, tell)

    async def begin(self) -> None:
        """Compare the hot store with the journal for the first time, if both can be reached."""
        await self._incarnation.refresh()

    async def loss(self) -> str | None:
        """What the hot store has lost, or why it must not be used; None when nothing is known to be wrong."""
        await self._incarnation.refresh()
        return None if self._incarnation.intact else self._incarnation.told()

    async def close(self) -> None:
        try:
            await self.hot.close()
        finally:
            await self.journal.close()

    async def _clear(self) -> None:
        """See to rows of the journal that cannot be decoded.

        What the hot store has of such a task is written down anew; of one that only the journal had, the row is set
        aside.
        """
        if not self.journal.met:
            return
        met = dict(self.journal.met)
        self.journal.met.clear()
        hot = {task.id: task for task in await self.hot.get(list(met)) if task is not None}
        lost = [damage for task_id, damage in met.items() if task_id not in hot]
        # What this version reads in the hot store is of no newer format in the journal.
        again = [hot[task_id] for task_id in met if task_id in hot]
        for task in again:
            await self.journal.set_aside(met[task.id])
        if again:
            await self.journal.store(again)
        await self._rows.set_aside(lost)

    async def _current(self) -> HotStore:
        """The hot store, if it is the journal's."""
        await self._incarnation.admit()
        return self.hot

    async def _write_down(self, tasks: Sequence[Task]) -> set[TaskId] | None:
        """The ids that were new to the journal; None when it is better not asked just now."""
        if not self._required and time.monotonic() < self._unasked_until:
            return None
        # The hot store is the journal's before the journal has tasks, or nobody could tell later that it was.
        await self._incarnation.prove()
        return await self.journal.add(tasks, accepted=True)

    async def _add_written(
        self,
        tasks: Sequence[Task],
        written: set[TaskId],
        now: Instant | None,
        bounds: Mapping[str, int],
        elsewhere: Mapping[TaskId, State],
    ) -> list[Receipt]:
        """Add tasks to the hot store that are written down; take those back that it refuses."""
        settled = await self._settled([task.id for task in tasks if task.id not in written])
        rest = [task for task in tasks if task.id not in settled]
        try:
            answers = iter(await self._add_marked(rest, now, bounds, elsewhere) if rest else [])
        except (StoreFull, StoreReadOnly, InvalidTask):
            # Nothing may come later of what was not stored. Others of the call may have been, in another slot.
            if written:
                stored = await self.hot.get(sorted(written))
                await self.journal.remove(sorted(written.difference(task.id for task in stored if task is not None)))
            raise
        receipts = [Known() if task.id in settled else next(answers) for task in tasks]
        answered = list(zip(tasks, receipts, strict=True))
        refused = {task.id for task, receipt in answered if not isinstance(receipt, Added | Known)} & written
        if refused:
            await self.journal.remove(sorted(refused))
            # The same id twice in one call, and another task of that id was let in.
            if other := [task for task, receipt in answered if task.id in refused and isinstance(receipt, Added)]:
                await self.journal.add(other, accepted=True)
        return receipts

    async def _add_marked(
        self, tasks: Sequence[Task], now: Instant | None, bounds: Mapping[str, int], elsewhere: Mapping[TaskId, State]
    ) -> list[Receipt]:
        """Add tasks to the hot store, those with idempotency keys only where none can have been lost."""
        await self._incarnation.cover({slot_of_id(task.id) for task in tasks})
        mark = self._incarnation.text
        receipts = await self.hot.add(tasks, now=now, bounds=bounds, elsewhere=elsewhere, mark=mark)
        if any(isinstance(receipt, KeyUnknown) for receipt in receipts):
            # It is known from now on, and not only when someone looks again.
            await self._incarnation.refresh()
        return receipts

    async def _settled(self, ids: Sequence[TaskId]) -> set[TaskId]:
        """Those of the ids that something became of: what the hot store has of them must not begin anew."""
        if not ids:
            return set()
        versions = await self.journal.versions(ids)
        return {task_id for task_id, (version, state) in versions.items() if version > 1 or state.ended}

    async def _apply_missing(self, changes: Sequence[Change]) -> list[Verdict]:
        """Make changes to tasks that are not in the hot store, as far as the journal has them."""
        try:
            stored = await self.journal.get([change.id for change in changes])
            await self._clear()
            if not stored:
                return [Verdict.MISSING] * len(changes)
            return await apply_in_journal(self.hot, self.journal, changes)
        except (StoreUnavailable, StoreRefused):
            # A worker whose task is gone has lost its lease, and goes on; anyone else must be told that we cannot know.
            if any(not isinstance(change.guard, Held) for change in changes):
                raise
            return [Verdict.MISSING] * len(changes)


def _fresher(task: Task, hot: Task | None) -> Task:
    """The task as the hot store has it, if nothing was decided since the journal learnt of it."""
    if hot is None or hot.status.version != task.status.version:
        return task
    return replace(task, status=hot.status)


async def open_journal(
    hot: Store, url: str, *, blocking: bool = False, credentials: Credentials | None = None
) -> JournalStore:
    """A store over this hot store and the journal at this URL.

    A journal that is out of reach is no reason for workers not to start: it is asked again when it is needed.
    """
    if not isinstance(hot, HotStore):
        raise InvalidSettings("only a Redis store can have a journal behind it; use redis://host as the store URL")
    address = parse_journal(url)
    journal = Journal(replace(address, database=with_credentials(address.database, credentials)), blocking=blocking)
    store = JournalStore(hot, journal)
    with share(1, journal.address.database.timeout):
        try:
            await journal.ensure()
        except StoreUnavailable as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
        except BaseException:
            await journal.close()
            raise
        await store.begin()
    return store
