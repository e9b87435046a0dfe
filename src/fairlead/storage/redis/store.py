"""The Redis store. The contract is in `fairlead.storage.protocol`; what is kept where, in `keys`."""

from __future__ import annotations

import asyncio
import contextlib
import re
import warnings
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from fairlead.core.health.diagnosis import Examination
from fairlead.core.identity import TaskId, slot_in
from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.task import Priority, State, Task
from fairlead.storage.credentials import Credentials, with_credentials
from fairlead.storage.deadline import Budget, timed, timed_store
from fairlead.storage.quarantine import Damage, Location, Quarantine, Removal
from fairlead.storage.redis import scripts
from fairlead.storage.redis.add import Adder
from fairlead.storage.redis.change import Changer
from fairlead.storage.redis.claim import Claimer
from fairlead.storage.redis.claim_cluster import Spread
from fairlead.storage.redis.client.calls import Call, Client
from fairlead.storage.redis.client.resp import ReplyError
from fairlead.storage.redis.feed import Feeder
from fairlead.storage.redis.health_facts import Examiner
from fairlead.storage.redis.keys import Keys, id_bytes, revived
from fairlead.storage.redis.read import Finder
from fairlead.storage.redis.records import Records
from fairlead.storage.redis.slot_registry import Registry
from fairlead.storage.redis.url import Address, parse_address
from fairlead.storage.redis.wait import Listener
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

_NOWHERE: Final[Mapping[TaskId, State]] = {}
_RUN: Final = re.compile(rb"run_id:(\w+)")


async def open_redis(url: str, *, blocking: bool = False, credentials: Credentials | None = None) -> RedisStore:
    """The store at this URL, after a first word with its server."""
    store = RedisStore(with_credentials(parse_address(url), credentials), blocking=blocking)
    try:
        await store.check()
    except BaseException:
        await store.close()
        raise
    return store


@timed_store
class RedisStore:
    """Tasks in Redis. See `fairlead.storage.protocol` for the contract.

    On a Cluster, a claim of queues on different servers is several steps, each of them atomic: see `spreading`.
    """

    _writers = scripts.SILENT

    def __init__(self, address: Address, *, blocking: bool = False) -> None:
        self._address = address
        self.budget = Budget(address.timeout, f"Redis at {address}", blocking=blocking)
        self._client = Client(address, blocking=blocking)
        self.spread = self._client.spread
        self._keys = Keys(address.prefix)
        self._registry = Registry(self._client, self._keys)
        self._adder = Adder(self._client, self._keys, self._registry, replicas=address.replicas)
        self.quarantine = Quarantine(self, self._set_aside, self._locate, revive=revived)
        self._changer = Changer(self._client, self._keys, self._writers, self.quarantine)
        self._finder = Finder(self._client, self._keys, self._registry, self.quarantine)
        self._records = Records(self._client, self._keys)
        self._feeder = Feeder(self._client, self._keys)
        self._listener = Listener(self._client, self._keys, blocking=blocking)
        self._claimer = Claimer(self._client, self._keys, self._writers, self.quarantine)
        self._spread = Spread(self._client, self._keys, self._writers, self.quarantine)

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

    def place_of(self, task_id: TaskId) -> int:
        """The slot of a task."""
        packed = id_bytes(task_id)
        return 0 if packed is None else slot_in(packed)

    def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> Coroutine[Any, Any, list[Receipt]]:
        # Here and below on the way of a single task, no coroutine is there only to await another one.
        return self._adder.add(tasks, now=now, bounds=bounds, elsewhere=_NOWHERE)

    async def claim(self, claim: Claim) -> list[Task]:
        if not claim.queues:
            return []
        slots = {self._keys.slot(order.queue) for order in claim.queues}
        claimer = self._spread if self._client.spread and len(slots) > 1 else self._claimer
        tasks = await claimer.claim(claim)
        if tasks:
            # They are taken, and go to the caller whatever becomes of this: the next claim makes up for it.
            await self._registry.note(slots)
        return tasks

    async def extend(
        self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None = None
    ) -> list[Pulse]:
        return await self._changer.extend(beats, lease=lease, grace=grace, now=now)

    async def curtail(self, *, lease: Span, limit: int, now: Instant | None = None) -> int:
        self._finder.lease = lease / SECOND
        return await self._changer.curtail(await self._registry.slots(), lease=lease, limit=limit, now=now)

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        return await self._changer.apply(changes)

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        return await self._finder.get(ids)

    async def due(self, now: Instant | None, limit: int, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        return await self._finder.due(now, limit, after)

    async def find(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        return await self._finder.find(matching, limit=limit, newest_first=newest_first, after=after)

    async def holder(self, queue: str, key: str, *, now: Instant | None = None) -> TaskId | None:
        return await self._finder.holder(queue, key, now)

    async def tally(self) -> Tally:
        return await self._finder.tally()

    async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
        return await self._finder.count(stretches, most)

    async def usage(self, queue: str, task_type: str, key: str | None) -> Usage:
        return await self._finder.usage(queue, task_type, key)

    async def line_keys(self, queue: str, priority: Priority, *, named: Sequence[str] = (), most: int = 0) -> LineKeys:
        return await self._finder.line_keys(queue, priority, named, most)

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        return await self._records.put(kind, name, value, expected=expected)

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        return await self._records.drop(kind, name, expected=expected)

    async def scan(self, kind: str) -> list[Record]:
        return await self._records.scan(kind)

    async def publish(self, values: Sequence[bytes], *, now: Instant, keep: int) -> None:
        await self._feeder.publish(values, keep)

    async def feed(self, after: str | None, limit: int) -> list[FeedEntry]:
        return await self._feeder.feed(after, limit)

    async def feed_end(self) -> str:
        return await self._feeder.end()

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        await self._listener.wait(queues, timeout)

    async def wait_and_claim(self, claim: Claim, timeout: float) -> list[Task] | None:
        slots = {self._keys.slot(order.queue) for order in claim.queues}
        if (self._client.spread and len(slots) > 1) or not self._claimer.is_plain(claim):
            await self._listener.wait([order.queue for order in claim.queues], timeout)
            return None
        tasks = await self._claimer.wait(claim, timeout)
        if tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await self._registry.note(slots)
        return tasks

    async def time(self) -> Instant | None:
        key = self._keys.registry
        return int(await self._client.run_one(Call(key, (), scripts.TIME), repeatable=True))

    @timed
    async def clocks(self) -> dict[str, Instant]:
        if self._client.spread:
            replies = await self._client.ask_masters(("INFO", "server"), ("TIME",))
            known = [told for told in replies.values() if not any(isinstance(reply, ReplyError) for reply in told)]
            return {_run_in(info): int(seconds) * SECOND + int(part) for info, (seconds, part) in known}
        key = self._keys.registry
        calls = [Call(key, ("INFO", "server")), Call(key, (), scripts.TIME)]
        info, now = await self._client.run(calls, repeatable=True)
        return {_run_in(info): int(now)}

    @timed
    async def examine(self) -> Examination:
        return await Examiner(self._client, self._keys, self._registry, self._address).examine()

    async def _set_aside(self, damage: Damage) -> Removal:
        return await self._changer.set_aside(damage)

    async def _locate(self, damage: Damage) -> Location | None:
        return await self._finder.locate(damage)

    async def close(self) -> None:
        await self._client.close()

    async def forget_unused(self, seconds: int) -> int:
        """Forget the slots that are empty and that no one has used for so long; how many there were.

        Sweeps do this now and then by themselves.
        """
        return await self._registry.retire(await self._registry.slots(), seconds)


def _run_in(info: bytes) -> str:
    """The run of a server, in what it says of itself."""
    found = _RUN.search(info)
    return "" if found is None else found[1].decode()
