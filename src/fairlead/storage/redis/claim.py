"""Claims from queues that are on one server, at once or when there is something to claim.

A claim that waits is sent behind the command that waits for a ring, in the same breath: the server makes it as soon as
one of the doorbells is rung, or nothing has been heard for long enough, and both are answered together. So a task
starts one round trip after its submit, not two.
"""

from __future__ import annotations

from typing import Final

from fairlead.core.task import Task
from fairlead.storage.redis.client import Call, Client
from fairlead.storage.redis.codec import encode, task_of
from fairlead.storage.redis.cutting import CHUNK_BYTES, CLAIM_CHUNK
from fairlead.storage.redis.keys import Keys
from fairlead.storage.redis.listening import SHORTEST, wait_call
from fairlead.storage.redis.node import Interrupted
from fairlead.storage.redis.scripts import Writers
from fairlead.storage.redis.spreading import limit_words
from fairlead.storage.redis.wire import Reply, ReplyError, Word, error_of
from fairlead.storage.values import Claim

_RING_LIFE: Final = 10_000
"""Milliseconds for which a ring is kept by which a claim that waits is called back."""
_HAS_WAITED: Final = 1


class Claimer:
    """The part of a store that claims where one script can see all of the queues."""

    def __init__(self, client: Client, keys: Keys, writers: Writers) -> None:
        self._client = client
        self._keys = keys
        self._writers = writers
        self._keyed_queues: set[str] = set()
        """Queues in which tasks with concurrency keys were met: claims need not find out again."""

    async def claim(self, claim: Claim) -> list[Task]:
        """The best ready tasks."""
        limited = not self.is_plain(claim)
        tasks: list[Task] = []
        while (wanted := min(CLAIM_CHUNK, claim.limit - len(tasks))) > 0:
            reply = await self._client.run_one(self._call(claim, wanted, len(tasks), limited=limited))
            left, taken = reply[0], _tasks_in(reply)
            if left < 0:
                self._met_keys(claim)
                limited = True
                continue
            tasks = tasks + taken if tasks else taken
            if not left and len(taken) < wanted:
                break
        return tasks

    def is_plain(self, claim: Claim) -> bool:
        """Whether nothing is limited, as far as is known here."""
        return not claim.limited and self._keyed_queues.isdisjoint(order.queue for order in claim.queues)

    async def wait(self, claim: Claim, timeout: float) -> list[Task] | None:
        """The best ready tasks once there may be some; None if they are yet to be claimed, in the ordinary way."""
        if timeout < SHORTEST:
            return None
        call = self._call(claim, min(CLAIM_CHUNK, claim.limit), 0, limited=False, last=(_HAS_WAITED,))
        own = call.key + b"b " + claim.token.encode()
        doorbells = [*(self._keys.doorbell(order.queue) for order in claim.queues), own]
        calling_back = [Call(own, ("RPUSH", own, 1)), Call(own, ("PEXPIRE", own, _RING_LIFE))]
        try:
            rung, reply = await self._client.wait(
                [wait_call(doorbells, timeout), call], timeout, lambda: self._client.run(calling_back)
            )
        except Interrupted as interrupted:
            if tasks := _tasks_in(interrupted.replies[1]):
                return tasks
            raise
        if tasks := _tasks_in(reply):
            return tasks
        if isinstance(rung, ReplyError):
            raise error_of(rung)
        if isinstance(reply, ReplyError):
            return None
        if reply[0] < 0:
            self._met_keys(claim)
            return None
        return []

    def _met_keys(self, claim: Claim) -> None:
        self._keyed_queues.update(order.queue for order in claim.queues)

    def _call(self, claim: Claim, wanted: int, turn: int, *, limited: bool, last: tuple[Word, ...] = ()) -> Call:
        queues = {order.queue: order for order in claim.queues}
        bases = [self._keys.base(self._keys.slot(queue)) for queue in queues]
        words: tuple[Word, ...] = (
            len(bases),
            *bases,
            *(claim.now, claim.until, claim.grace, wanted, turn, CHUNK_BYTES),
            claim.worker,
            claim.token,
            encode(list(claim.capabilities)),
            b"" if claim.types is None else encode(list(claim.types)),
            encode(list(claim.excluded_types)),
        )
        orders = tuple(
            word
            for order in queues.values()
            for word in (order.queue, encode(order.tables), *(limit_words(order) if limited else ()))
        )
        return Call(bases[0], words + orders + last, self._writers.claim_limited if limited else self._writers.claim)


def _tasks_in(reply: Reply) -> list[Task]:
    """The tasks in what a script answered; none in an error."""
    if isinstance(reply, ReplyError):
        return []
    return [task_of(reply[at].hex(), reply[at + 1]) for at in range(1, len(reply), 2)]
