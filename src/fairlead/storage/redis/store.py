"""The Redis store. The contract is in `fairlead.storage.protocol`; what is kept where, in `keys`."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Final

from fairlead.core.diagnosis import Examination
from fairlead.core.errors import StoreError
from fairlead.core.identity import TaskId
from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.task import State, Task
from fairlead.storage.redis import scripts
from fairlead.storage.redis.adding import Adder
from fairlead.storage.redis.address import Address, parse_address
from fairlead.storage.redis.changing import Changer
from fairlead.storage.redis.claiming import Claimer
from fairlead.storage.redis.client import Call, Client
from fairlead.storage.redis.examining import Examiner
from fairlead.storage.redis.feeding import Feeder
from fairlead.storage.redis.finding import Finder
from fairlead.storage.redis.keys import Keys
from fairlead.storage.redis.listening import Listener
from fairlead.storage.redis.records import Records
from fairlead.storage.redis.registry import Registry
from fairlead.storage.redis.spreading import Spread
from fairlead.storage.values import (
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

_NOWHERE: Final[Mapping[TaskId, State]] = {}


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
        self._client = Client(address, blocking=blocking)
        self._keys = Keys(address.prefix)
        self._registry = Registry(self._client, self._keys)
        self._adder = Adder(self._client, self._keys, self._registry, replicas=address.replicas)
        self._changer = Changer(self._client, self._keys, self._writers)
        self._finder = Finder(self._client, self._keys, self._registry)
        self._records = Records(self._client, self._keys)
        self._feeder = Feeder(self._client, self._keys)
        self._listener = Listener(self._client, self._keys, blocking=blocking)
        self._claimer = Claimer(self._client, self._keys, self._writers)
        self._spread = Spread(self._client, self._keys, self._writers)

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
        return await self._adder.add(tasks, now=now, bounds=bounds, elsewhere=_NOWHERE)

    async def claim(self, claim: Claim) -> list[Task]:
        if not claim.queues:
            return []
        slots = {self._keys.slot(order.queue) for order in claim.queues}
        claimer = self._spread if self._client.spread and len(slots) > 1 else self._claimer
        tasks = await claimer.claim(claim)
        if tasks:
            await self._registry.register(slots)
        return tasks

    async def extend(self, beats: Sequence[Beat], *, until: Instant, grace: Span) -> list[Pulse]:
        return await self._changer.extend(beats, until=until, grace=grace)

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        return await self._changer.apply(changes)

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

    async def count(self, stretches: Sequence[Stretch]) -> list[int]:
        return await self._finder.count(stretches)

    async def usage(self, queue: str, task_type: str, key: str | None) -> Usage:
        return await self._finder.usage(queue, task_type, key)

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
        if tasks and not all(map(self._registry.knows, slots)):
            # They are taken, and go to the caller whatever becomes of this: the next claim makes up for it.
            with contextlib.suppress(asyncio.CancelledError, StoreError):
                await self._registry.register(slots)
        return tasks

    async def time(self) -> Instant | None:
        seconds, part = await self._client.run_one(Call(self._keys.registry, ("TIME",)), repeatable=True)
        return int(seconds) * SECOND + int(part)

    async def examine(self) -> Examination:
        return await Examiner(self._client, self._keys, self._registry, self._address).examine()

    async def close(self) -> None:
        await self._client.close()

    async def forget_unused(self, seconds: int) -> int:
        """Forget the slots that are empty and that no one has used for so long; how many there were.

        Sweeps do this now and then by themselves.
        """
        return await self._registry.retire(await self._registry.slots(), seconds)
