"""Claims from queues that are on one server, at once or when there is something to claim.

A claim that waits is sent behind the command that waits for a ring, in the same breath: the server makes it as soon as
one of the doorbells is rung, or nothing has been heard for long enough, and both are answered together. So a task
starts one round trip after its submit, not two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from fairlead.core.errors import StoreError
from fairlead.core.task import Task
from fairlead.storage.quarantine import Damage, Quarantine
from fairlead.storage.redis.claim_cluster import limit_words, turned
from fairlead.storage.redis.client.calls import Call, Client
from fairlead.storage.redis.client.resp import Interrupted, Reply, ReplyError, Word, error_of, is_passing
from fairlead.storage.redis.keys import Keys, encode, moment_word, tasks_in
from fairlead.storage.redis.scripts import CHUNK_BYTES, CLAIM_CHUNK, Writers
from fairlead.storage.redis.wait import SHORTEST, wait_call
from fairlead.storage.values import Claim, QueueOrder

_RING_LIFE: Final = 10_000
"""Milliseconds for which a ring is kept by which a claim that waits is called back."""


class Claimer:
    """The part of a store that claims where one script can see all of the queues."""

    def __init__(self, client: Client, keys: Keys, writers: Writers, quarantine: Quarantine) -> None:
        self._client = client
        self._keys = keys
        self._writers = writers
        self._quarantine = quarantine
        self._keyed_queues: set[str] = set()
        """Queues in which tasks with concurrency keys were met: claims need not find out again."""

    async def claim(self, claim: Claim) -> list[Task]:
        """The best ready tasks."""
        tasks: list[Task] = []
        try:
            await self._take(claim, tasks)
        except StoreError:
            # What was taken goes to the caller, or nobody would run it. Whoever looks next meets the same trouble.
            if not tasks:
                raise
        return tasks

    async def _take(self, claim: Claim, tasks: list[Task]) -> None:
        """Take the best ready tasks, beside those that were taken."""
        limited = not self.is_plain(claim)
        while (wanted := min(CLAIM_CHUNK, claim.limit - len(tasks))) > 0:
            call = self._call(turned(claim, tasks), wanted, len(tasks), limited=limited)
            reply = await self._client.run_one(call)
            left, (taken, met) = reply[0], tasks_in(reply[1:])
            if left < 0:
                self._met_keys(claim)
                limited = True
                continue
            tasks += taken
            if met:
                await self._quarantine.clear(met)
            elif not left and len(taken) < wanted:
                break

    def is_plain(self, claim: Claim) -> bool:
        """Whether nothing is limited, as far as is known here."""
        return not claim.limited and self._keyed_queues.isdisjoint(order.queue for order in claim.queues)

    async def wait(self, claim: Claim, timeout: float) -> list[Task] | None:
        """The best ready tasks once there may be some; None if they are yet to be claimed, in the ordinary way."""
        if timeout < SHORTEST:
            return None
        call = self._call(claim, min(CLAIM_CHUNK, claim.limit), 0, limited=False)
        own = call.key + b"b " + claim.token.encode()
        doorbells = [*(self._keys.doorbell(order.queue) for order in claim.queues), own]
        calling_back = [Call(own, ("RPUSH", own, 1)), Call(own, ("PEXPIRE", own, _RING_LIFE))]
        try:
            rung, reply = await self._client.wait(
                [wait_call(doorbells, timeout), call], timeout, lambda: self._client.run(calling_back)
            )
        except Interrupted as interrupted:
            # What is no task is met again, by the sweep at the latest.
            if tasks := _told(interrupted.replies[1])[0]:
                return tasks
            raise
        tasks, met = _told(reply)
        if met:
            await self._clear(met, tasks)
        if tasks:
            return tasks
        if met:
            return None
        if isinstance(rung, ReplyError):
            if is_passing(rung):
                return None
            raise error_of(rung)
        if isinstance(reply, ReplyError):
            return None
        if reply[0] < 0:
            self._met_keys(claim)
            return None
        return []

    async def _clear(self, met: Sequence[Damage], taken: Sequence[Task]) -> None:
        """Set aside what is no task; what was taken beside it goes to the caller whatever becomes of this."""
        try:
            await self._quarantine.clear(met)
        except (StoreError, asyncio.CancelledError):
            if not taken:
                raise

    def _met_keys(self, claim: Claim) -> None:
        self._keyed_queues.update(order.queue for order in claim.queues)

    def _call(self, claim: Claim, wanted: int, turn: int, *, limited: bool) -> Call:
        queues = {order.queue: order for order in claim.queues}
        bases = [self._keys.base(self._keys.slot(queue)) for queue in queues]
        words: tuple[Word, ...] = (
            *(moment_word(claim.now), claim.lease, claim.grace, wanted, turn, CHUNK_BYTES),
            claim.worker,
            claim.token,
            encode(list(claim.capabilities)),
            b"" if claim.types is None else encode(list(claim.types)),
            encode(list(claim.excluded_types)),
        )
        orders = tuple(
            word
            for order in queues.values()
            for word in (
                order.queue,
                encode(order.tables),
                _share_word(order),
                *(limit_words(order) if limited else ()),
            )
        )
        script = self._writers.claim_limited if limited else self._writers.claim
        return Call(bases[0], words + orders, script, tuple(bases[1:]))


def _share_word(order: QueueOrder) -> Word:
    """How the promoted tasks of a queue and its others take turns, as scripts take it."""
    return b"" if order.share is None else encode((order.share.of, order.share.everywhere, order.passed))


def _told(reply: Reply) -> tuple[list[Task], Sequence[Damage]]:
    """What tasks_in finds in what a script answered; nothing in an error."""
    return ([], ()) if isinstance(reply, ReplyError) else tasks_in(reply[1:])
