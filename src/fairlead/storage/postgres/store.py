"""The PostgreSQL store. See `fairlead.storage.protocol` for the contract."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from fairlead.core.errors import StoreError, StoreUnavailable
from fairlead.core.health.diagnosis import Examination
from fairlead.core.identity import TaskId
from fairlead.core.instant import LATEST, Instant, Span
from fairlead.core.queues.fairness import LineTurns
from fairlead.core.task import Lane, Priority, State, Task
from fairlead.storage.credentials import Credentials, with_credentials
from fairlead.storage.deadline import timed, timed_store
from fairlead.storage.postgres import binary_arrays, health, schema
from fairlead.storage.postgres.add import Adder
from fairlead.storage.postgres.change import Changer
from fairlead.storage.postgres.claim import Claimer
from fairlead.storage.postgres.claim_limited import usage
from fairlead.storage.postgres.columns import fair_key_of, packed_progress
from fairlead.storage.postgres.connection.pool import AsyncConnections, BlockingConnections, Connections, budget
from fairlead.storage.postgres.feed import Feeder
from fairlead.storage.postgres.read import listing
from fairlead.storage.postgres.records import Records
from fairlead.storage.postgres.routes import Routes
from fairlead.storage.postgres.rows import STATES, Row, alarm_of, revived, task_id_of, tasks_in
from fairlead.storage.postgres.statements import Statements, rounds
from fairlead.storage.postgres.url import Address, parse
from fairlead.storage.postgres.wait import AsyncListener, BlockingListener, Listener
from fairlead.storage.quarantine import Damage, Location, Quarantine, Removal
from fairlead.storage.values import (
    Beat,
    Change,
    Claim,
    FeedEntry,
    Filter,
    LaneTally,
    LineKeys,
    Pulse,
    Receipt,
    Record,
    Stretch,
    Tally,
    Usage,
    Verdict,
)

_FOLD_AFTER: Final = 500
"""Calls that wrote to the tally, after which its rows are folded."""
_FOLD_INTERVAL: Final = 1.0
"""Seconds after which a sweep folds what this process wrote."""
_IDLE_FOLD_INTERVAL: Final = 60.0
"""Seconds after which it folds what others may have left behind."""
_FORGET_INTERVAL: Final = 60.0
"""Seconds after which a sweep forgets what is gone."""
_FOLD_ABOVE: Final = 200
"""How few rows of the tally are left alone."""
_KEYS_COUNTED: Final = 1_000
"""Up to how many fair keys of a line the tasks of each are counted."""
_BEFORE_ALL: Final = (-(2**62), TaskId("0" * 32))


async def open_postgres(url: str, *, blocking: bool = False, credentials: Credentials | None = None) -> PostgresStore:
    """The store at this URL. An empty database is set up; one whose schema is behind is refused."""
    address = with_credentials(parse(url), credentials)
    store = PostgresStore(address, blocking=blocking)
    try:
        if not await store.is_current():
            if blocking:
                schema.ensure(address)
            else:
                await asyncio.to_thread(schema.ensure, address)
    except BaseException:
        await store.close()
        raise
    return store


@timed_store
class PostgresStore:
    """Tasks in a PostgreSQL database, whose schema is up to date."""

    def __init__(self, address: Address, *, blocking: bool = False) -> None:
        self._address = address
        self.budget = budget(address, blocking=blocking)
        self._statements = Statements(address.schema)
        self._connections: Connections = BlockingConnections(address) if blocking else AsyncConnections(address)
        self._listener: Listener = (BlockingListener if blocking else AsyncListener)(address, self._say)
        self._adder = Adder(self._connections, self._statements, address)
        self.quarantine = Quarantine(self, self._set_aside, self._locate, revive=revived)
        self._claimer = Claimer(self._connections, self._statements, address, self.quarantine)
        self._changer = Changer(self._connections, self._statements, address)
        self._records = Records(self._connections, self._statements)
        self._feeder = Feeder(self._connections, self._statements)
        self._routes = Routes(self._connections, self._statements)
        self._unfolded = 0
        self._folded_at = self._forgot_at = time.monotonic()

    async def is_current(self) -> bool:
        """Whether the schema is the one that this code knows."""
        return await schema.is_current(self._connections, self._address)

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        if not tasks:
            return []
        receipts = await self._adder.add(tasks, now, bounds)
        await self._count_call()
        return receipts

    async def claim(self, claim: Claim) -> list[Task]:
        if claim.limit < 1:
            return []
        self._listener.looked([order.queue for order in claim.queues])
        tasks = await self._claimer.claim(claim)
        if tasks:
            await self._count_call()
        return tasks

    async def extend(
        self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None = None
    ) -> list[Pulse]:
        pulses = [Pulse.LOST] * len(beats)
        for places in rounds([beat.id for beat in beats]):
            places.sort(key=lambda place: beats[place].id)
            given = [beats[place] for place in places]
            rows = await self._connections.fetch(
                self._statements["change.extend"],
                (
                    now,
                    lease,
                    grace,
                    binary_arrays.uuids([beat.id for beat in given]),
                    binary_arrays.texts([beat.token for beat in given]),
                    binary_arrays.byteas([packed_progress(beat.progress) for beat in given]),
                ),
            )
            held = {task_id_of(found): Pulse.CANCEL if cancel else Pulse.HELD for found, cancel in rows}
            for place in places:
                pulses[place] = held.get(beats[place].id, Pulse.LOST)
        return pulses

    async def curtail(self, *, lease: Span, limit: int, now: Instant | None = None) -> int:
        ((cut,),) = await self._connections.fetch(self._statements["change.curtail"], (now, lease, limit))
        return int(cut)

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        if not changes:
            return []
        verdicts = await self._changer.apply(changes)
        await self._count_call()
        return verdicts

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        if not ids:
            return []
        rows = await self._connections.fetch(self._statements["read.get"], (binary_arrays.uuids(ids),))
        found = {task.id: task for task in await self._sound(rows)}
        return [found.get(task_id) for task_id in ids]

    async def due(self, now: Instant | None, limit: int, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        now_here = time.monotonic()
        if now_here - self._folded_at > (_FOLD_INTERVAL if self._unfolded else _IDLE_FOLD_INTERVAL):
            await self._fold()
        if now_here - self._forgot_at > _FORGET_INTERVAL:
            await self._forget()
        tasks: list[Task] = []
        while len(tasks) < limit:
            wanted = limit - len(tasks)
            alarm, task_id = after or _BEFORE_ALL
            rows = await self._connections.fetch(self._statements["read.due"], (now, alarm, UUID(task_id), wanted))
            tasks += await self._sound(rows)
            if len(tasks) == limit or len(rows) < wanted:
                break
            # Some were no tasks, and others may be behind them.
            after = alarm_of(rows[-1])
        return tasks

    async def find(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        tasks: list[Task] = []
        while len(tasks) < limit:
            wanted = limit - len(tasks)
            statement, parameters = listing(self._statements, matching, wanted, newest_first, after)
            rows = await self._connections.fetch(statement, parameters)
            tasks += await self._sound(rows)
            if len(tasks) == limit or len(rows) < wanted:
                break
            after = alarm_of(rows[-1])[1]
        return tasks

    async def holder(self, queue: str, key: str, *, now: Instant | None = None) -> TaskId | None:
        rows = await self._connections.fetch(self._statements["read.holder"], (queue, key.encode(), now))
        return task_id_of(rows[0][0]) if rows else None

    async def tally(self) -> Tally:
        rows = await self._connections.fetch(self._statements["read.tally"])
        lanes: dict[Lane, LaneTally] = {}
        for queue, type_, requires, priority, keyed, fair, states, numbers, oldest, _ in rows:
            lane = Lane(queue, type_, tuple(requires), Priority(priority), keyed, fair)
            counts = {STATES[state]: count for state, count in zip(states, numbers, strict=True)}
            found = LaneTally(lane, counts, oldest)
            lanes[lane] = found if lane not in lanes else _together(lanes[lane], found)
        return Tally(list(lanes.values()), rows[0][-1] if rows else None)

    async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
        counts: dict[int, int] = {}
        for by_turn in (False, True):
            places = [place for place, stretch in enumerate(stretches) if stretch.by_turn is by_turn]
            if places:
                found = await self._count([stretches[place] for place in places], most, by_turn=by_turn)
                counts |= dict(zip(places, found, strict=True))
        return [counts[place] for place in range(len(stretches))]

    async def _count(self, stretches: Sequence[Stretch], most: int | None, *, by_turn: bool) -> list[int]:
        lanes = [stretch.lane for stretch in stretches]
        keyed, fair = [lane.keyed for lane in lanes], [lane.fair for lane in lanes]
        rows = await self._connections.fetch(
            self._statements["read.count_by_turn" if by_turn else "read.count"],
            (
                binary_arrays.texts([lane.queue for lane in lanes]),
                binary_arrays.texts([lane.type for lane in lanes]),
                binary_arrays.texts([",".join(lane.requires) for lane in lanes]),
                binary_arrays.int2s([lane.priority for lane in lanes]),
                binary_arrays.int8s([stretch.start.ready_at for stretch in stretches]),
                binary_arrays.uuids([stretch.start.id for stretch in stretches]),
                binary_arrays.int8s([stretch.end.ready_at for stretch in stretches]),
                binary_arrays.uuids([stretch.end.id for stretch in stretches]),
                *(() if by_turn else (binary_arrays.booleans(keyed), binary_arrays.booleans(fair))),
                LATEST if most is None else most,
            ),
        )
        return [int(number) for (number,) in rows]

    async def line_keys(self, queue: str, priority: Priority, *, named: Sequence[str] = (), most: int = 0) -> LineKeys:
        line = fair_key_of(queue, "")
        rows = await self._connections.fetch(
            self._statements["read.line_keys"],
            (
                line,
                line[:-1] + b"\x01",
                int(priority),
                binary_arrays.byteas([fair_key_of(queue, key) for key in named]),
                _KEYS_COUNTED,
                most,
            ),
        )
        ((_, keys), *counts) = rows
        if not keys:
            return LineKeys()
        ((reached, others),) = await self._connections.fetch(
            self._statements["read.line_turns"], (queue, int(priority))
        )
        waiting = {bytes(name).removeprefix(line).decode(): int(count) for name, count in counts}
        return LineKeys(LineTurns(int(reached), int(others)), int(keys), waiting)

    async def usage(self, queue: str, task_type: str, key: str | None) -> Usage:
        return await usage(self._connections, self._statements, queue, task_type, key)

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        return await self._records.put(kind, name, value, expected=expected)

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        return await self._records.drop(kind, name, expected=expected)

    async def scan(self, kind: str) -> list[Record]:
        return await self._records.scan(kind)

    async def publish(self, values: Sequence[bytes], *, now: Instant, keep: int) -> None:
        await self._feeder.publish(values, now, keep)

    async def feed(self, after: str | None, limit: int) -> list[FeedEntry]:
        return await self._feeder.feed(after, limit)

    async def feed_end(self) -> str:
        return await self._feeder.end()

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        await self._listener.wait(queues, timeout)

    async def time(self) -> Instant | None:
        rows = await self._connections.fetch(self._statements["read.time"])
        return int(rows[0][0])

    @timed
    async def clocks(self) -> dict[str, Instant]:
        ((run, now),) = await self._connections.fetch(self._statements["read.clocks"])
        return {str(run): int(now)}

    @timed
    async def examine(self) -> Examination:
        facts = await health.facts_of(self._connections, self._statements["health.examine"], self._address)
        ((orphans,),) = await self._connections.fetch(self._statements["health.orphans"], (health.LOOKED_AT,))
        found = health.examined(facts, self._address)
        return replace(found, findings=(*found.findings, health.orphaned(orphans)))

    async def _sound(self, rows: Sequence[Row]) -> list[Task]:
        """The tasks in rows; what is none is set aside."""
        tasks, met = tasks_in(rows)
        if met:
            await self.quarantine.set_aside(met)
        return tasks

    async def _set_aside(self, damage: Damage) -> Removal:
        return await self._changer.set_aside(damage)

    async def _locate(self, damage: Damage) -> Location | None:
        rows = await self._connections.fetch(self._statements["read.location_of"], (UUID(damage.id),))
        return Location(rows[0][0], tuple(rows[0][1])) if rows else None

    async def close(self) -> None:
        await self._listener.close()
        await self._connections.close()

    async def _say(self, what: str) -> None:
        await self._connections.fetch(self._statements["wait.notify"], (self._address.channel, what))

    async def _count_call(self) -> None:
        self._unfolded += 1
        if self._unfolded >= _FOLD_AFTER:
            await self._fold()

    async def _fold(self) -> None:
        self._unfolded = 0
        self._folded_at = time.monotonic()
        # The call that happens to fold has done its own work; the next one to fold meets the same trouble.
        with contextlib.suppress(StoreUnavailable):
            await self._connections.fetch(self._statements["change.fold_tally"], (self._address.schema, _FOLD_ABOVE))

    async def _forget(self) -> None:
        self._forgot_at = time.monotonic()
        # Whoever made sure just now that a route exists has to be waited for, and so has who forgets routes already.
        with contextlib.suppress(StoreError):
            await self._routes.forget()


def _together(one: LaneTally, other: LaneTally) -> LaneTally:
    """The tally of a lane that has two routes."""
    states = [state for state in State if state in one.counts or state in other.counts]
    counts = {state: one.counts.get(state, 0) + other.counts.get(state, 0) for state in states}
    heads = [head for head in (one.oldest_ready, other.oldest_ready) if head is not None]
    return LaneTally(one.lane, counts, min(heads, default=None))
