"""The Redis store. The contract is in `fairlead.storage.protocol`; what is kept where, in `keys`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fairlead.core.diagnosis import Examination
from fairlead.core.identity import TaskId
from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.task import State, Task
from fairlead.storage.redis import scripts
from fairlead.storage.redis.adding import Adder
from fairlead.storage.redis.address import Address, parse_address
from fairlead.storage.redis.changing import Changer
from fairlead.storage.redis.client import Call, Client
from fairlead.storage.redis.codec import encode, task_of
from fairlead.storage.redis.cutting import CHUNK_BYTES, CLAIM_CHUNK
from fairlead.storage.redis.examining import Examiner
from fairlead.storage.redis.feeding import Feeder
from fairlead.storage.redis.finding import Finder
from fairlead.storage.redis.keys import Keys, id_text
from fairlead.storage.redis.listening import Listener
from fairlead.storage.redis.records import Records
from fairlead.storage.redis.registry import Registry
from fairlead.storage.redis.spreading import Spread, limit_words
from fairlead.storage.redis.wire import Word
from fairlead.storage.values import (
    Beat,
    Change,
    Claim,
    FeedEntry,
    Filter,
    Pulse,
    QueueOrder,
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
        self._spread = Spread(self._client, self._keys, self._writers)
        self._keyed_queues: set[str] = set()
        """Queues in which tasks with concurrency keys were met: claims need not find out again."""

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
        tasks = await (self._spread.claim(claim) if self._client.spread and len(slots) > 1 else self._claim(claim))
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

    async def _claim(self, claim: Claim) -> list[Task]:
        """The best ready tasks of queues that are on one server."""
        queues = {order.queue: order for order in claim.queues}
        bases = [self._keys.base(self._keys.slot(queue)) for queue in queues]
        limited = claim.limited or not self._keyed_queues.isdisjoint(queues)
        capabilities = encode(list(claim.capabilities))
        types = b"" if claim.types is None else encode(list(claim.types))
        excluded = encode(list(claim.excluded_types))
        tasks: list[Task] = []
        while (wanted := min(CLAIM_CHUNK, claim.limit - len(tasks))) > 0:
            numbers = (claim.now, claim.until, claim.grace, wanted, len(tasks), CHUNK_BYTES)
            words: tuple[Word, ...] = (
                len(bases),
                *bases,
                *numbers,
                claim.worker,
                claim.token,
                capabilities,
                types,
                excluded,
            )
            script = self._writers.claim_limited if limited else self._writers.claim
            reply = await self._client.run_one(
                Call(bases[0], words + _orders(queues.values(), limited=limited), script)
            )
            left, *found = reply
            if left < 0:
                self._keyed_queues.update(queues)
                limited = True
                continue
            taken = [task_of(id_text(found[at]), found[at + 1]) for at in range(0, len(found), 2)]
            tasks = tasks + taken if tasks else taken
            if not left and len(taken) < wanted:
                break
        return tasks


def _orders(orders: Iterable[QueueOrder], *, limited: bool) -> tuple[Word, ...]:
    """What a script that claims is told of each queue."""
    return tuple(
        word
        for order in orders
        for word in (order.queue, encode(order.tables), *(limit_words(order) if limited else ()))
    )
