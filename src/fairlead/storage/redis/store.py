"""The Redis store. The contract is in `fairlead.storage.protocol`; what is kept where, in `keys`."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from fairlead.core.errors import InvalidTask
from fairlead.core.identity import TaskId, slot_of_id
from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.task import State, Task
from fairlead.storage.redis import scripts
from fairlead.storage.redis.address import Address, parse_address
from fairlead.storage.redis.client import Call, Client
from fairlead.storage.redis.codec import encode, task_of, task_value
from fairlead.storage.redis.finding import Finder
from fairlead.storage.redis.keys import CODES, Keys, Kind, id_bytes, id_text
from fairlead.storage.redis.spreading import Spread
from fairlead.storage.redis.wire import Reply, Word
from fairlead.storage.values import (
    Added,
    Beat,
    Change,
    Claim,
    Filter,
    Full,
    Held,
    KeyHeld,
    Known,
    Pulse,
    Receipt,
    Record,
    Tally,
    Verdict,
)

_CHUNK: Final = 200
"""Tasks per script call: the server does nothing else meanwhile, so a call must end within a few milliseconds."""

_CHUNK_BYTES: Final = 512 * 1024
_REGISTERED_FOR: Final = 10.0
"""Seconds after which a slot in use is registered again; far less than `finding.UNUSED_FOR`."""

_SLICE: Final = 0.5
"""Seconds for which a blocking wait listens to one slot of a Cluster before it turns to the next."""

_PULSES: Final = {b"h": Pulse.HELD, b"c": Pulse.CANCEL, b"l": Pulse.LOST}
_VERDICTS: Final = {b"a": Verdict.APPLIED, b"s": Verdict.STALE, b"r": Verdict.REPEATED, b"m": Verdict.MISSING}
_Entry: TypeAlias = tuple[int, Task, Kind, bytes]
"""A task to add: its place among the tasks given, itself, its kind and its value."""

_ADDED: Final = Added()
_KNOWN: Final = Known()


async def open_redis(url: str, *, blocking: bool = False) -> RedisStore:
    """The store at this URL, after a first word with its server."""
    store = RedisStore(parse_address(url), blocking=blocking)
    try:
        await store.check()
    except BaseException:
        await store.close()
        raise
    return store


class RedisStore:
    """Tasks in Redis. See `fairlead.storage.protocol` for the contract.

    On a Cluster, a claim of queues on different servers is several steps, each of them atomic: see `spreading`.
    """

    _writers = scripts.SILENT

    def __init__(self, address: Address, *, blocking: bool = False) -> None:
        self._address = address
        self._blocking = blocking
        self._client = Client(address, blocking=blocking)
        self._keys = Keys(address.prefix)
        self._finder = Finder(self._client, self._keys)
        self._spread = Spread(self._client, self._keys, self._writers.take)
        self._registered: dict[int, float] = {}

    async def check(self) -> None:
        """Warn when the server may drop tasks by itself."""
        reply: bytes = await self._client.run_one(Call(self._keys.registry, ("INFO", "memory")), repeatable=True)
        facts = dict(line.split(":", 1) for line in reply.decode().splitlines() if ":" in line)
        policy = facts.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            warnings.warn(
                f"Redis at {self._address} has maxmemory-policy {policy}: when memory is short it will silently delete "
                f"tasks; set it to noeviction",
                RuntimeWarning,
                stacklevel=2,
            )

    async def add(self, tasks: Sequence[Task], *, now: Instant, bounds: Mapping[str, int]) -> list[Receipt]:
        if len(tasks) == 1 and not bounds and (receipt := await self._add_one(tasks[0])) is not None:
            return [receipt]
        by_slot: dict[int, list[_Entry]] = {}
        for at, task in enumerate(tasks):
            kind = self._kind(task)
            by_slot.setdefault(kind.slot, []).append((at, task, kind, task_value(task, kind)))
        chunks = [chunk for entries in by_slot.values() for chunk in _chunks(entries)]
        if not chunks:
            return []
        await self._register(by_slot)
        replies = await self._client.run(
            [_add_call(chunk, now, bounds) for chunk in chunks], repeatable=True, replicas=self._address.replicas
        )
        receipts: list[Receipt] = [_ADDED] * len(tasks)
        for chunk, answers in zip(chunks, replies, strict=True):
            for entry, answer in zip(chunk, answers, strict=True):
                if answer != 1:
                    receipts[entry[0]] = _receipt(answer)
        return receipts

    async def claim(self, claim: Claim) -> list[Task]:
        if not claim.queues:
            return []
        slots = {self._keys.slot(order.queue) for order in claim.queues}
        tasks = await (self._spread.claim(claim) if self._client.spread and len(slots) > 1 else self._claim(claim))
        if tasks:
            await self._register(slots)
        return tasks

    async def extend(self, beats: Sequence[Beat], *, until: Instant, grace: Span) -> list[Pulse]:
        def words(beat: Beat) -> tuple[Word, ...]:
            progress = b"" if beat.progress is None else encode(beat.progress)
            return id_bytes(beat.id) or b"", beat.token, progress

        replies = await self._by_slot(
            scripts.EXTEND, (until, grace), [(beat.id, words(beat)) for beat in beats], repeatable=True
        )
        return [_PULSES[reply] for reply in replies]

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        return await self._apply(self._writers.apply, changes)

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        return await self._finder.get(ids)

    async def due(self, now: Instant, limit: int, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        return await self._finder.due(now, limit, after)

    async def find(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        return await self._finder.find(matching, limit=limit, newest_first=newest_first, after=after)

    async def tally(self) -> Tally:
        return await self._finder.tally()

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        key = self._keys.records(kind)
        words = (1, key, name, value, "" if expected is None else expected)
        version: int | None = await self._client.run_one(Call(key, words, scripts.PUT))
        return version

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        key = self._keys.records(kind)
        words = (1, key, name, "" if expected is None else expected)
        return bool(await self._client.run_one(Call(key, words, scripts.DROP)))

    async def scan(self, kind: str) -> list[Record]:
        key = self._keys.records(kind)
        reply = await self._client.run_one(Call(key, ("HGETALL", key)), repeatable=True)
        records = []
        for name, stored in zip(reply[::2], reply[1::2], strict=True):
            version, _, value = stored.partition(b" ")
            records.append(Record(kind=kind, name=name.decode(), value=value, version=int(version)))
        return sorted(records, key=lambda record: record.name)

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        doorbells: dict[int, list[bytes]] = {}
        for queue in queues:
            slot = self._keys.slot(queue)
            doorbells.setdefault(slot, []).append(self._keys.base(slot) + b"b" + queue.encode())
        if not self._client.spread:
            await self._listen([doorbell for listed in doorbells.values() for doorbell in listed], timeout)
        elif self._blocking:
            await self._listen_in_turn(list(doorbells.values()), timeout)
        else:
            await self._listen_at_once(list(doorbells.values()), timeout)

    async def time(self) -> Instant | None:
        seconds, part = await self._client.run_one(Call(self._keys.registry, ("TIME",)), repeatable=True)
        return int(seconds) * SECOND + int(part)

    async def close(self) -> None:
        await self._client.close()

    async def forget_unused(self, seconds: int) -> int:
        """Forget the slots that are empty and that no one has used for so long; how many there were.

        Sweeps do this now and then by themselves.
        """
        return await self._finder.retire(await self._finder.slots(), seconds)

    async def _add_one(self, task: Task) -> Receipt | None:
        """Add a task that is ready and has no key; None when it takes more than that."""
        spec, status = task.spec, task.status
        if status.state is not State.QUEUED or spec.idempotency_key is not None or status.alarm is not None:
            return None
        kind = self._kind(task)
        if self._registered.get(kind.slot, 0.0) <= time.monotonic():
            return None
        value = task_value(task, kind)
        words = (
            1,
            kind.base,
            bytes.fromhex(spec.id),
            kind.lanes[status.priority],
            status.ready_at,
            value,
            kind.queue,
            kind.descriptor,
        )
        (answer,) = await self._client.run(
            (Call(kind.base, words, scripts.ADD_ONE),), repeatable=True, replicas=self._address.replicas
        )
        return None if answer is None else _ADDED if answer else _KNOWN

    def _kind(self, task: Task) -> Kind:
        kind = self._keys.kind(task.spec)
        if slot_of_id(task.spec.id) != kind.slot:
            raise InvalidTask("id", f"task id {task.spec.id} is not of queue {kind.queue!r}; let submit make ids")
        return kind

    async def _claim(self, claim: Claim) -> list[Task]:
        """The best ready tasks of queues that are on one server."""
        queues = {order.queue: order.tables for order in claim.queues}
        bases = [self._keys.base(self._keys.slot(queue)) for queue in queues]
        tables = [word for queue, choices in queues.items() for word in (queue, encode(choices))]
        capabilities = encode(list(claim.capabilities))
        types = b"" if claim.types is None else encode(list(claim.types))
        tasks: list[Task] = []
        while (wanted := min(_CHUNK, claim.limit - len(tasks))) > 0:
            numbers = (claim.now, claim.until, claim.grace, wanted, len(tasks))
            words = (len(bases), *bases, *numbers, claim.worker, claim.token, capabilities, types, *tables)
            reply = await self._client.run_one(Call(bases[0], words, self._writers.claim))
            taken = [task_of(id_text(reply[at]), reply[at + 1]) for at in range(0, len(reply), 2)]
            tasks = tasks + taken if tasks else taken
            if len(taken) < wanted:
                break
        return tasks

    async def _apply(self, script: scripts.Script, changes: Sequence[Change]) -> list[Verdict]:
        replies = await self._by_slot(
            script,
            (),
            [
                (
                    change.id,
                    (
                        id_bytes(change.id) or b"",
                        _guard(change),
                        b"" if change.status is None else encode(change.status),
                    ),
                )
                for change in changes
            ],
        )
        return [_VERDICTS[reply] for reply in replies]

    async def _by_slot(
        self,
        script: scripts.Script,
        common: tuple[Word, ...],
        entries: Sequence[tuple[TaskId, tuple[Word, ...]]],
        *,
        repeatable: bool = False,
    ) -> list[Reply]:
        """The replies of a script that takes entries of one slot at a time, in the order of the entries."""
        by_slot: dict[int, list[int]] = {}
        for at, (task_id, _) in enumerate(entries):
            by_slot.setdefault(_slot_or_any(task_id), []).append(at)
        calls: list[Call] = []
        chunks: list[list[int]] = []
        for slot, positions in by_slot.items():
            base = self._keys.base(slot)
            for first in range(0, len(positions), _CHUNK):
                chunk = positions[first : first + _CHUNK]
                words = [word for at in chunk for word in entries[at][1]]
                calls.append(Call(base, (1, base, *common, *words), script))
                chunks.append(chunk)
        answers: list[Reply] = [None] * len(entries)
        if calls:
            for chunk, replies in zip(chunks, await self._client.run(calls, repeatable=repeatable), strict=True):
                for at, reply in zip(chunk, replies, strict=True):
                    answers[at] = reply
        return answers

    async def _register(self, slots: Iterable[int]) -> None:
        """Let sweeps and listings know of these slots; before tasks are stored, so that none is ever overlooked."""
        now = time.monotonic()
        due = [slot for slot in slots if self._registered.get(slot, 0.0) <= now]
        if due:
            registry = self._keys.registry
            await self._client.run_one(Call(registry, (1, registry, *due), scripts.REGISTER), repeatable=True)
            self._registered.update(dict.fromkeys(due, now + _REGISTERED_FOR))

    async def _listen(self, doorbells: Sequence[bytes], timeout: float) -> None:
        if timeout > 0:
            await self._client.wait(Call(doorbells[0], ("BLPOP", *doorbells, f"{timeout:.3f}")), timeout)

    async def _listen_in_turn(self, groups: Sequence[Sequence[bytes]], timeout: float) -> None:
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            for doorbells in groups:
                began = time.monotonic()
                length = min(left, _SLICE) if len(groups) > 1 else left
                await self._listen(doorbells, length)
                if time.monotonic() - began < length * 0.9:
                    return

    async def _listen_at_once(self, groups: Sequence[Sequence[bytes]], timeout: float) -> None:
        listening = [asyncio.ensure_future(self._listen(doorbells, timeout)) for doorbells in groups]
        try:
            done, _ = await asyncio.wait(listening, return_when=asyncio.FIRST_COMPLETED)
            for listener in done:
                listener.result()
        finally:
            for listener in listening:
                listener.cancel()
            await asyncio.gather(*listening, return_exceptions=True)


def _slot_or_any(task_id: TaskId) -> int:
    """The slot of an id; any slot for what is no id, where no task will be found."""
    return slot_of_id(task_id) if id_bytes(task_id) is not None else 0


def _chunks(entries: list[_Entry]) -> list[list[_Entry]]:
    """The entries in their order, cut where a script call would take too long."""
    if len(entries) == 1:
        return [entries]
    chunks: list[list[_Entry]] = [[]]
    size = 0
    for entry in entries:
        value = entry[3]
        if chunks[-1] and (len(chunks[-1]) == _CHUNK or size + len(value) > _CHUNK_BYTES):
            chunks.append([])
            size = 0
        chunks[-1].append(entry)
        size += len(value)
    return chunks


def _add_call(chunk: Sequence[_Entry], now: Instant, bounds: Mapping[str, int]) -> Call:
    base = chunk[0][2].base
    kinds = {entry[2].digest: entry[2] for entry in chunk}
    words: list[Word] = [1, base, now, len(kinds)]
    for kind in kinds.values():
        words += (kind.digest, kind.queue, kind.descriptor, bounds.get(kind.queue, ""))
    for _, task, kind, value in chunk:
        spec, status = task.spec, task.status
        key, alarm = spec.idempotency_key, status.alarm
        words += (
            bytes.fromhex(spec.id),
            kind.lanes[status.priority],
            CODES[status.state],
            status.ready_at,
            "" if alarm is None else alarm,
            "" if key is None else f"{spec.key_until or 0} {spec.queue} {key}",
            value,
        )
    return Call(base, words, scripts.ADD)


def _receipt(answer: Reply) -> Receipt:
    if answer == 0:
        return _KNOWN
    if isinstance(answer, bytes):
        return KeyHeld(id_text(answer))
    depth, bound = answer
    return Full(depth, bound)


def _guard(change: Change) -> str:
    guard = change.guard
    if isinstance(guard, Held):
        return f"h{guard.version} {guard.token}"
    return f"s{guard.version} {guard.beats}"
