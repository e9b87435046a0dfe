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
from fairlead.storage.redis.selection import Selections
from fairlead.storage.redis.wait import SHORTEST, wait_call
from fairlead.storage.values import Claim, QueueOrder

_RING_LIFE: Final = 10_000
"""Milliseconds for which a ring is kept by which a claim that waits is called back."""

# Why a script has taken nothing, and what it tells beside what it has taken: see claim.lua.
_KEYS: Final = -1
_MANY_LANES: Final = -2
_SELECTION_UNKNOWN: Final = -4
_LEFT: Final = 1
_NO_KEYS: Final = 2
_FEW_LANES: Final = 4


class Claimer:
    """The part of a store that claims where one script can see all of the queues."""

    def __init__(self, client: Client, keys: Keys, writers: Writers, quarantine: Quarantine) -> None:
        self._client = client
        self._keys = keys
        self._writers = writers
        self._quarantine = quarantine
        self._selections = Selections(client)
        self._keyed: set[str] = set()
        """Queues in which tasks with concurrency keys wait, as far as is known here."""
        self._crowded: set[str] = set()
        """Queues that have many lanes, as far as is known here."""

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
        while (wanted := min(CLAIM_CHUNK, claim.limit - len(tasks))) > 0:
            call = self._call(turned(claim, tasks), wanted, len(tasks))
            reply = await self._client.run_one(call)
            if reply[0] < 0:
                self._met(claim, reply[0])
                if reply[0] == _SELECTION_UNKNOWN:
                    await self._selections.send(call.key, claim)
                continue
            taken, met = tasks_in(reply[1:])
            self._unlearn(claim, reply[0])
            tasks += taken
            if met:
                await self._quarantine.clear(met)
            elif not reply[0] & _LEFT and len(taken) < wanted:
                break

    def is_plain(self, claim: Claim) -> bool:
        """Whether nothing is limited, as far as is known here."""
        return not claim.limited and self._keyed.isdisjoint(order.queue for order in claim.queues)

    def _met(self, claim: Claim, what: int) -> None:
        """Learn why a claim was refused that was to find it simpler."""
        if what == _KEYS:
            self._keyed.update(order.queue for order in claim.queues)
        elif what == _MANY_LANES:
            self._crowded.update(order.queue for order in claim.queues)

    def _unlearn(self, claim: Claim, told: int) -> None:
        """Forget of queues what a claim has found not to be so any more."""
        if told & _NO_KEYS:
            self._keyed.difference_update(order.queue for order in claim.queues)
        if told & _FEW_LANES:
            self._crowded.difference_update(order.queue for order in claim.queues)

    async def wait(self, claim: Claim, timeout: float) -> list[Task] | None:
        """The best ready tasks once there may be some; None if they are yet to be claimed, in the ordinary way."""
        if timeout < SHORTEST:
            return None
        call = self._call(claim, min(CLAIM_CHUNK, claim.limit), 0)
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
            self._met(claim, reply[0])
            return None
        return []

    async def _clear(self, met: Sequence[Damage], taken: Sequence[Task]) -> None:
        """Set aside what is no task; what was taken beside it goes to the caller whatever becomes of this."""
        try:
            await self._quarantine.clear(met)
        except (StoreError, asyncio.CancelledError):
            if not taken:
                raise

    def _call(self, claim: Claim, wanted: int, turn: int) -> Call:
        queues = {order.queue: order for order in claim.queues}
        bases = [self._keys.base(self._keys.slot(queue)) for queue in queues]
        limited = not self.is_plain(claim)
        words: tuple[Word, ...] = (
            *(moment_word(claim.now), claim.lease, claim.grace, wanted, turn, CHUNK_BYTES),
            claim.worker,
            claim.token,
            *self._selections.of(claim).words,
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
        if limited:
            script = self._writers.claim_limited
        else:
            script = self._writers.claim if self._crowded.isdisjoint(queues) else self._writers.claim_crowded
        return Call(bases[0], words + orders, script, tuple(bases[1:]))


def _share_word(order: QueueOrder) -> Word:
    """How the promoted tasks of a queue and its others take turns, as scripts take it."""
    return b"" if order.share is None else encode((order.share.of, order.share.everywhere, order.passed))


def _told(reply: Reply) -> tuple[list[Task], Sequence[Damage]]:
    """What tasks_in finds in what a script answered; nothing in an error."""
    return ([], ()) if isinstance(reply, ReplyError) else tasks_in(reply[1:])
