"""Gets calls to the right server and their replies back.

What certainly did not happen is tried again for a short while; what may have happened is only when repeating it is
safe. All else is raised, as one of our errors.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.errors import StoreUnavailable
from fairlead.storage.redis.address import Address, Host
from fairlead.storage.redis.blocking import BlockingNode, pause
from fairlead.storage.redis.node import Node, Release, Sleep
from fairlead.storage.redis.scripts import Script
from fairlead.storage.redis.streaming import StreamingNode
from fairlead.storage.redis.topology import topology_of
from fairlead.storage.redis.wire import Broken, Reply, ReplyError, Word, error_of, pack

_PATIENCE: Final = 2.0
"""Seconds for which calls that certainly did not happen are tried again."""

_RETRY_PAUSE: Final = 0.05
_PASSING: Final = frozenset({"LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN"})
"""Errors that end by themselves, and say that nothing was done."""


class Call(Struct, frozen=True, gc=False):
    """One command or script call."""

    key: bytes
    """A key it is about, which leads to its server."""
    words: Sequence[Word]
    """The command; for a script: how many keys, the keys, the arguments."""
    script: Script | None = None

    def packed(self, flagged: bool) -> bytes:
        if self.script is None:
            return pack(tuple(self.words))
        return pack(("EVALSHA", self.script.text(flagged).digest, *self.words))

    def packed_whole(self, flagged: bool) -> bytes:
        """With the script's text, for a server that does not know it yet."""
        if self.script is None:
            return pack(tuple(self.words))
        return pack(("EVAL", self.script.text(flagged).source, *self.words))


class Client:
    """The servers of one store."""

    def __init__(self, address: Address, *, blocking: bool) -> None:
        self._address = address
        self._blocking = blocking
        self._sleep: Sleep = pause if blocking else asyncio.sleep
        make = BlockingNode if blocking else StreamingNode
        self._topology = topology_of(
            address, lambda host, sentinel: make(host, address, sentinel=sentinel), self._sleep
        )
        self.spread = self._topology.spread

    async def close(self) -> None:
        """Give every connection back."""
        self._topology.close()
        if not self._blocking:
            # Asyncio closes a socket in the next turn of its loop, and this may be the last one.
            await asyncio.sleep(0)

    async def run_one(self, call: Call, *, repeatable: bool = False, replicas: int = 0) -> Reply:
        """The reply to one call."""
        (reply,) = await self.run((call,), repeatable=repeatable, replicas=replicas)
        return reply

    async def run(self, calls: Sequence[Call], *, repeatable: bool = False, replicas: int = 0) -> list[Reply]:
        """The replies to these calls, in their order; calls to one server go together, in their order.

        With `replicas`, so many replicas of each server hold what was written when this returns; if they do not in
        time, StoreUnavailable is raised.
        """
        if not calls:
            return []
        node = self._topology.only
        if node is None or node.greeted is None or replicas:
            return await self._persist(calls, {}, repeatable, replicas)
        # Nearly always there is nothing to find out before, and nothing to mend after.
        try:
            replies = await node.exchange(_packed(calls, node.greeted.flagged), len(calls))
        except Broken as error:
            return await self._persist(calls, {}, self._again(error, repeatable), replicas)
        for reply in replies:
            if type(reply) is ReplyError:
                # An error says that nothing was done: those calls are made once more, with more care.
                done = {at: reply for at, reply in enumerate(replies) if type(reply) is not ReplyError}
                return await self._persist(calls, done, repeatable, replicas)
        return replies

    async def _persist(
        self, calls: Sequence[Call], done: dict[int, Reply], repeatable: bool, replicas: int
    ) -> list[Reply]:
        """Make the calls that are not done yet until all are, for as long as that is worth while."""
        give_up: float | None = None
        while True:
            trouble: Exception
            try:
                await self._run(calls, done, replicas)
            except Broken as error:
                repeatable = self._again(error, repeatable)
                trouble = error
            else:
                failed = [at for at, reply in done.items() if isinstance(reply, ReplyError)]
                if not failed:
                    return [done[at] for at in range(len(calls))]
                trouble = done[failed[0]]
                await self._face(failed, calls, done)
            now = time.monotonic()
            give_up = give_up or now + min(_PATIENCE, self._address.timeout)
            if now > give_up:
                raise StoreUnavailable(f"Redis could not be reached for a while: {trouble}") from trouble
            await self._sleep(_RETRY_PAUSE)

    def _again(self, error: Broken, repeatable: bool) -> bool:
        """Prepare for making calls again whose connection broke; whether they may then be repeated once more.

        Raises StoreUnavailable if they must not be made again.
        """
        if error.sent and not repeatable:
            raise StoreUnavailable(str(error)) from error
        self._topology.forget()
        return repeatable and not error.sent

    async def wait(self, calls: Sequence[Call], timeout: float, release: Release | None = None) -> list[Reply]:
        """Make calls to one server that holds up the first of them for up to so many seconds, and with it the others.

        They are made once, and their replies may be errors. With `release`, see `Node.exchange`.
        """
        try:
            node = await self._topology.node(calls[0].key)
            flagged = (await node.greeting()).flagged
            payload, limit = _packed(calls, flagged), timeout + self._address.timeout
            replies = await node.exchange(payload, len(calls), timeout=limit, alone=True, release=release)
        except Broken as error:
            self._topology.forget()
            raise StoreUnavailable(str(error)) from error
        if isinstance(replies[0], ReplyError):
            self._topology.forget()
        return replies

    async def _run(self, calls: Sequence[Call], done: dict[int, Reply], replicas: int) -> None:
        """Make the calls that are not done yet."""
        if not self.spread:
            node = await self._topology.node(calls[0].key)
            left = [at for at in range(len(calls)) if at not in done] if done else range(len(calls))
            await self._exchange(node, calls, left, done, replicas)
            return
        by_node: dict[Host, tuple[Node, list[int]]] = {}
        for at, call in enumerate(calls):
            if at not in done:
                node = await self._topology.node(call.key)
                by_node.setdefault(node.host, (node, []))[1].append(at)
        for node, left in by_node.values():
            await self._exchange(node, calls, left, done, replicas)

    async def _exchange(
        self, node: Node, calls: Sequence[Call], left: Sequence[int], done: dict[int, Reply], replicas: int
    ) -> None:
        flagged = (await node.greeting()).flagged
        payload = _packed([calls[at] for at in left], flagged)
        replies, held = await self._send(node, payload, len(left), replicas)
        done.update(zip(left, replies, strict=True))
        unknown = [at for at in left if isinstance(done[at], ReplyError) and str(done[at]).startswith("NOSCRIPT")]
        if unknown:
            for at in unknown:
                del done[at]
            payload = b"".join([calls[at].packed_whole(flagged) for at in unknown])
            replies, held = await self._send(node, payload, len(unknown), replicas)
            done.update(zip(unknown, replies, strict=True))
        if held < replicas:
            raise StoreUnavailable(
                f"{node.host} stored it, but {held} of the {replicas} replicas asked for said so in time; "
                f"a failover now could lose it, so submit it again"
            )

    async def _send(self, node: Node, payload: bytes, count: int, replicas: int) -> tuple[list[Reply], int]:
        """The replies, and how many replicas hold what was written; 0 if no one asks."""
        if not replicas:
            return await node.exchange(payload, count), 0
        limit = self._address.timeout
        payload += pack(("WAIT", replicas, int(limit * 800)))
        *replies, held = await node.exchange(payload, count + 1, timeout=limit, alone=True)
        if isinstance(held, ReplyError):
            raise error_of(held)
        return replies, held

    async def _face(self, failed: Sequence[int], calls: Sequence[Call], done: dict[int, Reply]) -> None:
        """Deal with errors that can be dealt with, so that those calls are made again; raise the others."""
        for at in failed:
            error = done[at]
            text = str(error)
            word, _, rest = text.partition(" ")
            if word == "MOVED" or word in _PASSING or (word == "READONLY" or "-READONLY" in text):
                if word == "MOVED":
                    await self._topology.known_node(_host_of(rest))
                elif word not in _PASSING and self._address.shape.value == "single":
                    raise error_of(error)
                self._topology.forget()
                del done[at]
            elif word == "ASK":
                node = await self._topology.known_node(_host_of(rest))
                flagged = (await node.greeting()).flagged
                _, done[at] = await node.exchange(pack(("ASKING",)) + calls[at].packed_whole(flagged), 2)
            else:
                raise error_of(error)


def _packed(calls: Sequence[Call], flagged: bool) -> bytes:
    return calls[0].packed(flagged) if len(calls) == 1 else b"".join([call.packed(flagged) for call in calls])


def _host_of(text: str) -> Host:
    """The host in the text of a redirection: `3999 127.0.0.1:6381`."""
    name, _, port = text.split(" ")[1].rpartition(":")
    return Host(name, int(port))
