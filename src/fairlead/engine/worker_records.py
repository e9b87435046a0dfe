"""Who works here: each worker keeps a record of itself, renewed by its beats.

What a worker says of itself and what others ask of it are separate records, so that neither overwrites the other. Any
process may mark a worker as dead that is no longer heard of: the mark is a compare-and-set, so one of them tells of it.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from fairlead.core.errors import Forbidden, StoreUnavailable, WorkerNotFound
from fairlead.core.health.clock_watch import LeaseTerms
from fairlead.core.identity import WorkerId
from fairlead.core.instant import HOUR, Instant, Span
from fairlead.core.settings import Settings
from fairlead.engine.events.feed import Publisher
from fairlead.engine.events.types import EventType, Watcher, WorkerData, WorkerEvent
from fairlead.engine.metrics.throughput import HourRow, Spent, Throughput, ThroughputMeter
from fairlead.engine.queue_cache import BELL, WORKER_KIND, QueueCache
from fairlead.engine.records import DecodedRecord, Form, Records, decoder
from fairlead.engine.runtime.clock import Clock
from fairlead.engine.runtime.ids import Chance

FORGOTTEN_AFTER: Final[Span] = HOUR
"""How long a worker that is no longer heard of is shown as dead."""

_WORKER: Final = "worker"
_DRAIN: Final = "drain"
_PAUSE: Final = WORKER_KIND
_THROUGHPUT: Final = "throughput"
_TRIES: Final = 20
_SHOWN: Final = 64

_encode: Final = msgspec.msgpack.Encoder().encode


class WorkerState(enum.StrEnum):
    """How a worker stands."""

    ACTIVE = "active"
    DRAINING = "draining"
    """It claims no more, and ends when what it runs has ended."""
    DEAD = "dead"
    """It was not heard of for one lease length: its leases have ended, too."""


WORKER_WORDS: Final = ("active", "paused", "draining", "dead")
"""Every `WorkerRecord.word`."""


SlotKind: TypeAlias = Literal["async", "thread", "isolated"]
"""What runs in a slot: a coroutine, a function in a thread, or one in a process of its own."""


class KindSlots(Struct, frozen=True, kw_only=True):
    """How many slots a worker has for one kind of handler."""

    kind: SlotKind
    """`async`, `thread` or `isolated`."""
    capacity: Annotated[int, Meta(ge=1, le=2**53)]
    """How many tasks of the kind it runs at once."""
    running: Annotated[int, Meta(ge=0, le=2**53)] = 0
    """How many it runs."""
    types: tuple[str, ...] = ()
    """The task types whose handlers are of the kind."""


class SlotUse(Struct, frozen=True, kw_only=True):
    """How many slots for one kind of handler there are, and in use."""

    capacity: int
    used: int


class WorkerRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    lease: Span = 0
    """How long its leases are, likewise `heartbeat`, how often they are renewed; 0 of one of an earlier version."""
    heartbeat: Span = 0
    key: str | None = None
    """The id of the key that registered it, to which its id belongs; None for a worker without a key."""
    tenant: str | None = None
    """The tenant that the key is bound to."""
    paused: bool = False
    """Whether it claims no more until it is resumed. That is asked of it, so its own record never says so."""
    registration: str = ""
    """Another one whenever a worker registers with a server, also again under the same id; its leases name it. Empty
    for a worker that uses the store itself, or that an older server has registered."""
    slots: tuple[KindSlots, ...] = ()
    """Its slots by kind of handler, which `capacity` sums up; none of a worker that has one limit for all it runs."""

    @property
    def takes_tasks(self) -> bool:
        """Whether it claims tasks, if there are any for it."""
        return self.state is WorkerState.ACTIVE and not self.paused

    @property
    def word(self) -> str:
        """How it stands, in one word: `paused` of one that would be active."""
        return "paused" if self.paused and self.state is WorkerState.ACTIVE else self.state.value

    def capacity_for(self, types: Collection[str]) -> int:
        """How many tasks of these types it runs at once, as far as it says so."""
        fitting = [each.capacity for each in self.slots if not set(types).isdisjoint(each.types)]
        return sum(fitting) if fitting else self.capacity

    @property
    def ownerless(self) -> bool:
        """Whether a server has registered it that took no note of keys: of an older version, or one without any.

        Whichever key registers it next has it. A worker that uses the store itself says its process, and stays its own.
        """
        return self.key is None and self.pid == 0


class _Counted(Struct, frozen=True):
    """What a process has counted."""

    at: Instant
    throughput: Throughput
    spent: dict[str, Spent] = {}
    """By queue."""
    hour: tuple[HourRow, ...] = ()
    """Of the last hour; of a process that has ended since, of the hour before."""


PRESENT: Final = Form(kind=_WORKER, decode=decoder(WorkerRecord), name_of=lambda present: present.id)
COUNTS: Final = Form(kind=_THROUGHPUT, decode=decoder(_Counted))


def _state(*, draining: bool) -> WorkerState:
    """How a worker stands that is heard of."""
    return WorkerState.DRAINING if draining else WorkerState.ACTIVE


def _busy(slots: Sequence[KindSlots], by_kind: Mapping[str, int]) -> tuple[KindSlots, ...]:
    """Slots, of which so many of each kind are in use."""
    return tuple(replace(each, running=by_kind.get(each.kind, 0)) for each in slots)


class WorkerRecords:
    """The workers of one store, as one engine knows and tells of them."""

    def __init__(
        self,
        records: Records,
        settings: Settings,
        clock: Clock,
        chance: Chance,
        publisher: Publisher,
        meter: ThroughputMeter,
        queue_cache: QueueCache,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self._records = records
        self._store = records.store
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._publisher = publisher
        self._meter = meter
        self._watchers = watchers
        self._queue_cache = queue_cache
        self._known: dict[WorkerId, tuple[WorkerRecord, int]] = {}
        """Workers that speak through this engine, with the version of their record."""
        self._process: str | None = None
        self._reported: tuple[Throughput, tuple[HourRow, ...]] | None = None

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
        key: str | None = None,
        tenant: str | None = None,
        registration: str = "",
        slots: Sequence[KindSlots] = (),
    ) -> WorkerRecord:
        """Make a worker known; from now on it is expected to beat every `Settings.heartbeat`.

        Raises Forbidden if the id is that of a worker which another key has registered.
        """
        now = self._clock.now()
        present = WorkerRecord(
            id=worker,
            name=name or worker,
            host=host,
            pid=pid,
            version=version,
            queues=tuple(queues),
            capabilities=tuple(sorted(capabilities)),
            types=None if types is None else tuple(sorted(types)),
            capacity=capacity,
            state=_state(draining=worker in await self.asked()),
            since=now,
            seen_at=now,
            lease=self._settings.lease,
            heartbeat=self._settings.heartbeat,
            key=key,
            tenant=tenant,
            registration=registration,
            slots=tuple(slots),
        )
        self._known[worker] = (present, await self._introduce(present))
        await self._tell(EventType.JOINED, present)
        return present

    async def _introduce(self, present: WorkerRecord) -> int:
        """Store the record of a worker that registers, also again; its version."""
        for _ in range(_TRIES):
            found = await self._records.find(PRESENT, present.id)
            before = found.value if isinstance(found, DecodedRecord) else None
            if before is not None and before.key != present.key and not before.ownerless:
                raise Forbidden(
                    f"the worker id {present.id[:_SHOWN]!r} belongs to another key",
                    "leave worker_id out, and the worker is given an id of its own",
                    "worker_id",
                )
            expected = 0 if found is None else found.version
            stored = await self._store.put(_WORKER, present.id, PRESENT.write(present), expected=expected)
            if stored is not None:
                return stored
        raise StoreUnavailable(f"the record of worker {present.id} changed {_TRIES} times meanwhile; register again")

    async def beat(
        self, worker: WorkerId, *, running: int, draining: bool = False, by_kind: Mapping[str, int] | None = None
    ) -> bool:
        """Take note that a worker lives and how busy it is; whether it is asked to drain.

        One that was asked drains until it leaves, whatever it says of itself. Raises WorkerNotFound for one that must
        register first, or again.
        """
        asked = worker in await self.asked()
        draining = draining or asked
        known = self._known.get(worker) or await self._find(worker)
        for _ in range(_TRIES):
            before, expected = known
            now = self._clock.now()
            counted = self._meter.of(worker, now)
            state, slots = _state(draining=draining), _busy(before.slots, by_kind or {})
            after = replace(
                before, running=running, state=state, seen_at=now, slots=slots, **msgspec.structs.asdict(counted)
            )
            stored = await self._store.put(_WORKER, worker, PRESENT.write(after), expected=expected)
            if stored is not None:
                break
            # It spoke through another process meanwhile, was taken for dead, or has left.
            known = await self._find(worker)
        else:
            raise StoreUnavailable(
                f"the record of worker {worker} changed {_TRIES} times during one heartbeat; send it again"
            )
        self._known[worker] = (after, stored)
        if before.state is WorkerState.DEAD:
            await self._tell(EventType.JOINED, after)
        if draining and before.state is not WorkerState.DRAINING:
            await self._tell(EventType.DRAINING, after)
        return asked

    async def leave(self, worker: WorkerId) -> bool:
        """Take a worker off the list; whether it was on it."""
        try:
            present, _ = self._known.get(worker) or await self._find(worker)
        except WorkerNotFound:
            return False
        self._known.pop(worker, None)
        left = await self._store.drop(_WORKER, worker)
        await self._store.drop(_DRAIN, worker)
        if await self._store.drop(_PAUSE, worker):
            await self._ring()
        if left:
            await self._tell(EventType.LEFT, replace(present, running=0))
        return left

    async def workers(self) -> list[WorkerRecord]:
        """All workers by id, also those that are dead, until they are forgotten."""
        now, paused = self._clock.now(), await self.paused()
        return [
            replace(self._judged(present, now), paused=present.id in paused)
            for present in (await self._records.read(PRESENT)).values
        ]

    @property
    def own_terms(self) -> LeaseTerms:
        """By what terms leases are held that this engine grants."""
        return LeaseTerms(self._settings.lease, self._settings.heartbeat)

    async def terms(self) -> list[LeaseTerms]:
        """The same, and by what terms each worker holds its own, as it said: its settings may be others."""
        workers = (await self._records.read(PRESENT)).values
        return [
            self.own_terms,
            *(LeaseTerms(each.lease, each.heartbeat) for each in workers if each.lease >= 2 * each.heartbeat > 0),
        ]

    def speak_here(self, workers: Iterable[WorkerId]) -> bool:
        """Whether all of these workers speak through this engine."""
        return all(worker in self._known for worker in workers)

    async def names(self) -> set[str]:
        """The ids of all workers, also of those whose records are of a newer version."""
        return (await self._records.read(PRESENT)).names

    async def ask_drain(self, worker: WorkerId) -> None:
        """Drain a worker: from its next heartbeat on it claims no more, and it leaves when its tasks have ended."""
        await self._find(worker)
        await self._store.put(_DRAIN, worker, _encode(self._clock.now()))

    async def asked(self) -> frozenset[str]:
        """The ids of the workers that are asked to drain."""
        return frozenset(record.name for record in await self._store.scan(_DRAIN))

    async def pause(self, worker: WorkerId) -> None:
        """Have a worker claim no more until it is resumed, whatever it says of itself; what it runs goes on.

        Engines learn of it as they learn of queues that are paused: a second later, at the latest.
        """
        present, _ = await self._find(worker)
        if await self._store.put(_PAUSE, worker, _encode(self._clock.now()), expected=0) is not None:
            await self._ring()
            await self._tell(EventType.PAUSED, present)

    async def resume(self, worker: WorkerId) -> None:
        """Let a paused worker claim again."""
        present, _ = await self._find(worker)
        if await self._store.drop(_PAUSE, worker):
            await self._ring()
            await self._tell(EventType.RESUMED, present)

    async def paused(self) -> frozenset[str]:
        """The ids of the workers that are paused."""
        return frozenset(record.name for record in await self._store.scan(_PAUSE))

    async def _ring(self) -> None:
        """Have all engines learn which workers are paused."""
        await self._store.put(BELL, BELL, b"")
        self._queue_cache.expire()

    async def report(self) -> None:
        """Store what this process has counted, for `throughput`, `spent` and `counted`."""
        now = self._clock.now()
        counted, hour = self._meter.total(now), tuple(self._meter.hour(now))
        if self._process is None:
            if not hour:
                return
            self._process = self._chance.randbytes(8).hex()
        if not hour:
            await self._store.drop(_THROUGHPUT, self._process)
            self._process = self._reported = None
        elif counted != Throughput() or self._reported != (counted, hour):
            record = _Counted(now, counted, self._meter.spent(now), hour)
            await self._store.put(_THROUGHPUT, self._process, COUNTS.write(record))
            self._reported = counted, hour

    async def counted(self) -> tuple[Throughput, list[HourRow]]:
        """What ended within the last minute, and what was counted within the last hour, by all processes.

        The first is the sum of what each live process has reported. The second is also of those that have ended, up to
        their last report, and of this one up to now.
        """
        now = self._clock.now()
        kept = (await self._records.read(COUNTS)).kept
        live = [each.value.throughput for each in kept if each.value.at >= now - self._settings.lease]
        others = [row for each in kept if each.name != self._process for row in each.value.hour]
        return (
            Throughput(completed=sum(one.completed for one in live), failed=sum(one.failed for one in live)),
            [*others, *self._meter.hour(now)],
        )

    async def spent(self, queues: Collection[str] | None = None) -> Spent:
        """What the tasks took that ended within the last minute, in some queues or in all."""
        sums = [
            spent
            for one in await self._counts()
            for name, spent in one.spent.items()
            if queues is None or name in queues
        ]
        return Spent(sum(each.ended for each in sums), sum(each.time for each in sums))

    async def _counts(self) -> list[_Counted]:
        since = self._clock.now() - self._settings.lease
        return [one for one in (await self._records.read(COUNTS)).values if one.at >= since]

    async def sweep(self) -> int:
        """Mark workers that are lost and tell of them, forget those lost for long; how many workers were looked at."""
        now = self._clock.now()
        # In this order: a drain or a pause that is found now was asked of a worker that was there before.
        asked, paused = await self.asked(), await self.paused()
        read = await self._records.read(PRESENT)
        for present, version in ((each.value, each.version) for each in read.kept):
            if now - present.seen_at > FORGOTTEN_AFTER:
                await self._store.drop(_WORKER, present.id, expected=version)
                self._known.pop(present.id, None)
            elif present.state is not WorkerState.DEAD and self._judged(present, now).state is WorkerState.DEAD:
                lost = replace(present, state=WorkerState.DEAD)
                if await self._store.put(_WORKER, present.id, PRESENT.write(lost), expected=version) is not None:
                    for watcher in self._watchers:
                        watcher.lost(lost.id)
                    await self._tell(EventType.LOST, lost)
        names = read.names
        for gone in self._known.keys() - names:
            del self._known[gone]
        for name in asked - names:
            await self._store.drop(_DRAIN, name)
        for name in paused - names:
            await self._store.drop(_PAUSE, name)
        if paused - names:
            await self._ring()
        for each in (await self._records.read(COUNTS)).kept:
            if now - each.value.at > FORGOTTEN_AFTER:
                await self._store.drop(_THROUGHPUT, each.name, expected=each.version)
        return len(names)

    def _judged(self, present: WorkerRecord, now: Instant) -> WorkerRecord:
        """The worker as it stands now: dead, if it was not heard of for one lease length."""
        dead = now - present.seen_at > self._settings.lease
        return replace(present, state=WorkerState.DEAD) if dead else present

    async def _find(self, worker: WorkerId) -> tuple[WorkerRecord, int]:
        found = await self._records.find(PRESENT, worker)
        if isinstance(found, DecodedRecord):
            return found.value, found.version
        self._known.pop(worker, None)
        raise WorkerNotFound(worker)

    async def _tell(self, event_type: EventType, present: WorkerRecord) -> None:
        data = WorkerData(
            tenant=present.tenant,
            worker_id=present.id,
            name=present.name,
            host=present.host,
            capacity=present.capacity,
            running=present.running,
        )
        self._publisher.tell(WorkerEvent(event_type, self._clock.now(), data))
        if self._publisher.due:
            await self._publisher.flush()
