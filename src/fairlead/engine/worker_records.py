"""Who works here: each worker keeps a record of itself, renewed by its beats.

What a worker says of itself and what others ask of it are separate records, so that neither overwrites the other. Any
process may mark a worker as dead that is no longer heard of: the mark is a compare-and-set, so one of them tells of it.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import StoreUnavailable, WorkerNotFound
from fairlead.core.identity import WorkerId
from fairlead.core.instant import HOUR, Instant, Span
from fairlead.core.settings import Settings
from fairlead.engine.clock import Clock
from fairlead.engine.feed import EventType, WorkerData, WorkerEvent
from fairlead.engine.feeding import Publisher
from fairlead.engine.identity import Chance
from fairlead.engine.metering import Meter, Spent, Throughput
from fairlead.storage.protocol import Store
from fairlead.storage.values import Record

FORGOTTEN_AFTER: Final[Span] = HOUR
"""How long a worker that is no longer heard of is shown as dead."""

_WORKER: Final = "worker"
_DRAIN: Final = "drain"
_THROUGHPUT: Final = "throughput"
_TRIES: Final = 20

_encode: Final = msgspec.msgpack.Encoder().encode


class WorkerState(enum.StrEnum):
    """How a worker stands."""

    ACTIVE = "active"
    DRAINING = "draining"
    """It claims no more, and ends when what it runs has ended."""
    DEAD = "dead"
    """It was not heard of for one lease length: its leases have ended, too."""


class WorkerPresence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker, as it last said of itself."""

    id: WorkerId
    name: str
    host: str = ""
    pid: int = 0
    version: str = ""
    queues: tuple[str, ...]
    capabilities: tuple[str, ...] = ()
    types: tuple[str, ...] | None = None
    """The task types that it runs; None for any."""
    capacity: int
    """How many tasks it runs at once."""
    running: int = 0
    state: WorkerState = WorkerState.ACTIVE
    since: Instant
    seen_at: Instant
    completed: int = 0
    """How many of its tasks completed within the minute before it was last seen, as the process it speaks to counted
    them; likewise `failed`, those that ended as failed or as a dead letter."""
    failed: int = 0


class _Counted(Struct, frozen=True):
    """What a process has counted."""

    at: Instant
    throughput: Throughput
    spent: dict[str, Spent] = {}
    """By queue."""


class Presence:
    """The workers of one store, as one engine knows and tells of them."""

    def __init__(
        self, store: Store, settings: Settings, clock: Clock, chance: Chance, publisher: Publisher, meter: Meter
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._publisher = publisher
        self._meter = meter
        self._known: dict[WorkerId, tuple[WorkerPresence, int]] = {}
        """Workers that speak through this engine, with the version of their record."""
        self._process: str | None = None

    async def register(
        self,
        worker: WorkerId,
        *,
        queues: Sequence[str],
        capacity: int,
        capabilities: Collection[str] = (),
        types: Collection[str] | None = None,
        name: str = "",
        host: str = "",
        pid: int = 0,
        version: str = "",
    ) -> WorkerPresence:
        """Make a worker known; from now on it is expected to beat every `Settings.heartbeat`."""
        now = self._clock.now()
        present = WorkerPresence(
            id=worker,
            name=name or worker,
            host=host,
            pid=pid,
            version=version,
            queues=tuple(queues),
            capabilities=tuple(sorted(capabilities)),
            types=None if types is None else tuple(sorted(types)),
            capacity=capacity,
            since=now,
            seen_at=now,
        )
        stored = await self._store.put(_WORKER, worker, _encode(present))
        self._known[worker] = (present, stored or 0)
        await self._tell(EventType.JOINED, present)
        return present

    async def beat(self, worker: WorkerId, *, running: int, draining: bool = False) -> bool:
        """Take note that a worker lives and how busy it is; whether it is asked to drain.

        Raises WorkerNotFound for one that must register first, or again.
        """
        known = self._known.get(worker) or await self._find(worker)
        for _ in range(_TRIES):
            before, expected = known
            now = self._clock.now()
            counted = self._meter.of(worker, now)
            state = WorkerState.DRAINING if draining else WorkerState.ACTIVE
            after = replace(before, running=running, state=state, seen_at=now, **msgspec.structs.asdict(counted))
            stored = await self._store.put(_WORKER, worker, _encode(after), expected=expected)
            if stored is not None:
                break
            # It spoke through another process meanwhile, was taken for dead, or has left.
            known = await self._find(worker)
        else:
            raise StoreUnavailable(f"the record of worker {worker} changed {_TRIES} times during one beat; beat again")
        self._known[worker] = (after, stored)
        if before.state is WorkerState.DEAD:
            await self._tell(EventType.JOINED, after)
        if draining and before.state is not WorkerState.DRAINING:
            await self._tell(EventType.DRAINING, after)
        return worker in await self.asked()

    async def leave(self, worker: WorkerId) -> bool:
        """Take a worker off the list; whether it was on it."""
        try:
            present, _ = self._known.get(worker) or await self._find(worker)
        except WorkerNotFound:
            return False
        self._known.pop(worker, None)
        left = await self._store.drop(_WORKER, worker)
        await self._store.drop(_DRAIN, worker)
        if left:
            await self._tell(EventType.LEFT, replace(present, running=0))
        return left

    async def workers(self) -> list[WorkerPresence]:
        """All workers by id, also those that are dead, until they are forgotten."""
        now = self._clock.now()
        return [self._judged(present, now) for present, _ in _decoded(await self._store.scan(_WORKER), WorkerPresence)]

    async def ask_drain(self, worker: WorkerId) -> None:
        """Have a worker claim no more and leave when what it runs has ended; it hears of it at its next beat."""
        await self._find(worker)
        await self._store.put(_DRAIN, worker, _encode(self._clock.now()))

    async def asked(self) -> frozenset[str]:
        """The ids of the workers that are asked to drain."""
        return frozenset(record.name for record in await self._store.scan(_DRAIN))

    async def report(self) -> None:
        """Store what this process has counted, for `throughput`."""
        now = self._clock.now()
        counted = self._meter.total(now)
        if self._process is None:
            if counted == Throughput():
                return
            self._process = self._chance.randbytes(8).hex()
        if counted == Throughput():
            await self._store.drop(_THROUGHPUT, self._process)
            self._process = None
        else:
            await self._store.put(_THROUGHPUT, self._process, _encode(_Counted(now, counted, self._meter.spent(now))))

    async def throughput(self) -> Throughput:
        """What ended within the last minute: the sum of what each live process has reported."""
        counts = await self._counts()
        return Throughput(
            completed=sum(one.throughput.completed for one in counts),
            failed=sum(one.throughput.failed for one in counts),
        )

    async def spent(self, queue: str | None = None) -> Spent:
        """What the tasks took that ended within the last minute, in one queue or in all."""
        sums = [
            spent for one in await self._counts() for name, spent in one.spent.items() if queue is None or name == queue
        ]
        return Spent(sum(each.ended for each in sums), sum(each.time for each in sums))

    async def _counts(self) -> list[_Counted]:
        since = self._clock.now() - self._settings.lease
        return [one for one, _ in _decoded(await self._store.scan(_THROUGHPUT), _Counted) if one.at >= since]

    async def sweep(self) -> int:
        """Mark workers that are lost and tell of them, forget those lost for long; how many workers were looked at."""
        now = self._clock.now()
        # In this order: a drain that is found now was asked of a worker that was there before.
        asked = [record.name for record in await self._store.scan(_DRAIN)]
        records = _decoded(await self._store.scan(_WORKER), WorkerPresence)
        for present, version in records:
            if now - present.seen_at > FORGOTTEN_AFTER:
                await self._store.drop(_WORKER, present.id, expected=version)
                self._known.pop(present.id, None)
            elif present.state is not WorkerState.DEAD and self._judged(present, now).state is WorkerState.DEAD:
                lost = replace(present, state=WorkerState.DEAD)
                if await self._store.put(_WORKER, present.id, _encode(lost), expected=version) is not None:
                    await self._tell(EventType.LOST, lost)
        names = {present.id for present, _ in records}
        for gone in self._known.keys() - names:
            del self._known[gone]
        for name in asked:
            if name not in names:
                await self._store.drop(_DRAIN, name)
        for record in await self._store.scan(_THROUGHPUT):
            if not any(now - one.at <= FORGOTTEN_AFTER for one, _ in _decoded([record], _Counted)):
                await self._store.drop(_THROUGHPUT, record.name, expected=record.version)
        return len(records)

    def _judged(self, present: WorkerPresence, now: Instant) -> WorkerPresence:
        """The worker as it stands now: dead, if it was not heard of for one lease length."""
        dead = now - present.seen_at > self._settings.lease
        return replace(present, state=WorkerState.DEAD) if dead else present

    async def _find(self, worker: WorkerId) -> tuple[WorkerPresence, int]:
        for found in _decoded(await self._store.scan(_WORKER), WorkerPresence):
            if found[0].id == worker:
                return found
        self._known.pop(worker, None)
        raise WorkerNotFound(worker)

    async def _tell(self, event_type: EventType, present: WorkerPresence) -> None:
        data = WorkerData(
            worker_id=present.id,
            name=present.name,
            host=present.host,
            capacity=present.capacity,
            running=present.running,
        )
        self._publisher.tell(WorkerEvent(event_type, self._clock.now(), data))
        if self._publisher.due:
            await self._publisher.flush()


Value = TypeVar("Value")


def _decoded(records: Sequence[Record], kind: type[Value]) -> list[tuple[Value, int]]:
    """What records hold, and their versions; those of a version that this one cannot read are left out."""
    found: list[tuple[Value, int]] = []
    for record in records:
        try:
            found.append((msgspec.msgpack.decode(record.value, type=kind), record.version))
        except msgspec.MsgspecError:
            continue
    return found
