"""Gets calls to the right server and their replies back.

What certainly did not happen is tried again for a short while; what may have happened is only when repeating it is
safe. All else is raised, as one of our errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Container, Iterator, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import StoreError, StoreUnavailable
from fairlead.storage import deadline
from fairlead.storage.redis.client.asynchronous import StreamingNode
from fairlead.storage.redis.client.resp import (
    SPLIT,
    Broken,
    Node,
    Release,
    Reply,
    ReplyError,
    Sleep,
    Word,
    error_of,
    is_moving,
    is_nobody,
    is_passing,
    is_replica,
    pack,
)
from fairlead.storage.redis.client.synchronous import BlockingNode, pause
from fairlead.storage.redis.client.topology import SCOUT_TIMEOUT, topology_of
from fairlead.storage.redis.keys import absent_key, hash_slot
from fairlead.storage.redis.scripts import Script
from fairlead.storage.redis.url import Address, Host, Shape

_PATIENCE: Final = 2.0
"""Seconds for which calls that certainly did not happen are tried again; while a slot moves, for their whole time.
Their deadline may end that sooner."""

_RETRY_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.25
_LEAST_SHARE: Final = 1.0
"""Seconds that each of many servers has to answer at least, if there are so many left."""
MOST_BYTES: Final = 1024 * 1024
"""How much is written at once, unless a single call has more: until it is, nothing else runs in the event loop."""
_OF_SERVER: Final = frozenset({"INFO", "CONFIG", "SCAN", "TIME"})


class Call(Struct, frozen=True, gc=False):
    """One command or script call."""

    key: bytes
    """A key it is about, which leads to its server; of a script, KEYS[1]."""
    words: Sequence[Word]
    """The command; of a script, its arguments."""
    script: Script | None = None
    more: tuple[bytes, ...] = ()
    """Of a script, KEYS[2] and so on. Behind them comes the absent key, always (see `scripts`)."""
    size: int = 0
    """About how many bytes it brings, where that can be many."""

    @property
    def is_of_server(self) -> bool:
        """Whether this is about a server, and the key is only the way to it."""
        return self.script is None and self.words[0] in _OF_SERVER

    def packed(self, flagged: bool) -> bytes:
        if self.script is None:
            return pack(tuple(self.words))
        return self._packed("EVALSHA", self.script.text(flagged).digest)

    def packed_whole(self, flagged: bool) -> bytes:
        """With the script's text, for a server that does not know it yet."""
        if self.script is None:
            return pack(tuple(self.words))
        return self._packed("EVAL", self.script.text(flagged).source)

    def _packed(self, command: str, script: bytes) -> bytes:
        return pack((command, script, 2 + len(self.more), self.key, *self.more, absent_key(self.key), *self.words))


class Client:
    """The servers of one store."""

    def __init__(self, address: Address, *, blocking: bool) -> None:
        self._address = address
        self._blocking = blocking
        self._sleep: Sleep = pause if blocking else asyncio.sleep
        make = BlockingNode if blocking else StreamingNode
        brief = replace(address, timeout=min(SCOUT_TIMEOUT, address.timeout))
        self._topology = topology_of(
            address,
            lambda host, sentinel: make(host, address, sentinel=sentinel),
            lambda host: make(host, brief, sentinel=False),
            self._sleep,
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

    async def run(
        self, calls: Sequence[Call], *, repeatable: bool = False, replicas: int = 0, leaving_out: bool = False
    ) -> list[Reply]:
        """The replies to these calls, in their order; calls to one server go together, in their order.

        With `replicas`, so many replicas of each server hold what was written when this returns; if they do not in
        time, StoreUnavailable is raised. With `leaving_out`, scripts about slots that are being moved are not waited
        for: the reply is None. So it is to calls to servers that cannot be reached, if others could: what those did is
        not to be lost.
        """
        if not calls:
            return []
        if len(calls) > 1 and sum([call.size for call in calls]) > MOST_BYTES:
            replies: list[Reply] = []
            for part in _parted(calls):
                replies += await self.run(part, repeatable=repeatable, replicas=replicas, leaving_out=leaving_out)
            return replies
        node = self._topology.only
        if node is None or node.greeted is None or replicas:
            done: dict[int, Reply] = {}
            try:
                return await self._persist(calls, done, repeatable, replicas, leaving_out)
            except StoreUnavailable:
                made = done.keys() - _failed(done)
                if not (leaving_out and self.spread and made):
                    raise
                return [done[at] if at in made else None for at in range(len(calls))]
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
        self,
        calls: Sequence[Call],
        done: dict[int, Reply],
        repeatable: bool,
        replicas: int,
        leaving_out: bool = False,
    ) -> list[Reply]:
        """Make the calls that are not done yet until all are, for as long as that is worth while."""
        began: float | None = None
        wait = _RETRY_PAUSE
        while True:
            trouble: Exception
            patience = self._address.timeout
            try:
                if len(done) < len(calls):
                    await self._run(calls, done, replicas)
                    self._meet(calls, done)
                if leaving_out:
                    done.update(dict.fromkeys(_paused(calls, done)))
                if not (failed := _failed(done)):
                    return [done[at] for at in range(len(calls))]
                trouble = done[failed[0]]
                await self._face(failed, calls, done)
                if len(done) == len(calls) and not _failed(done):
                    continue
            except Broken as error:
                repeatable = self._again(error, repeatable)
                trouble = error
            if not is_moving(trouble):
                patience = min(_PATIENCE, patience)
            now = time.monotonic()
            began = began or now
            if now > began + patience or deadline.left(wait) < wait:
                if is_nobody(trouble):
                    raise error_of(trouble)
                raise StoreUnavailable(_given_up(trouble, calls, done)) from trouble
            await self._sleep(wait)
            wait = min(1.5 * wait, _LONGEST_PAUSE)

    def _meet(self, calls: Sequence[Call], done: dict[int, Reply]) -> None:
        """Take note of slots that are on their way: their scripts wait until all nodes say that they have arrived."""
        for at in _failed(done):
            if calls[at].script is not None and done[at] is not SPLIT and is_moving(done[at]):
                self._topology.meet(calls[at].key)

    def _again(self, error: Broken, repeatable: bool) -> bool:
        """Prepare for making calls again whose connection broke; whether they may then be repeated once more.

        Raises StoreUnavailable if they must not be made again.
        """
        over = deadline.left(_RETRY_PAUSE) < _RETRY_PAUSE
        if (error.sent and not repeatable) or over:
            if over:
                self._topology.forget()
            raise StoreUnavailable(str(error)) from error
        self._topology.forget()
        return repeatable and not error.sent

    async def wait(self, calls: Sequence[Call], timeout: float, release: Release | None = None) -> list[Reply]:
        """Make calls to one server that holds up the first of them for up to so many seconds, and with it the others.

        They are made once, and their replies may be errors. With `release`, see `Node.exchange`.
        """
        try:
            node = await self._topology.node(calls[0].key)
            if self._topology.is_open(calls[0].key):
                await self._sleep(min(timeout, _LONGEST_PAUSE))
                return [SPLIT] * len(calls)
            flagged = (await node.greeting()).flagged
            payload, limit = _packed(calls, flagged), timeout + self._address.timeout
            replies = await node.exchange(payload, len(calls), timeout=limit, alone=True, release=release)
        except Broken as error:
            self._topology.forget()
            raise StoreUnavailable(str(error)) from error
        self._meet(calls, dict(enumerate(replies)))
        if isinstance(replies[0], ReplyError):
            self._topology.forget()
            if is_nobody(replies[0]):
                node.renew()
            if is_passing(replies[0]):
                # Who waits again at once is not to do so in a tight loop.
                await self._sleep(min(timeout, _LONGEST_PAUSE))
        return replies

    async def ask_masters(self, *commands: tuple[Word, ...]) -> dict[Host, list[Reply]]:
        """What each master of a Cluster answers to commands about itself, errors too; of those that answer."""
        answers: dict[Host, list[Reply]] = {}
        try:
            masters = await self._topology.masters()
        except Broken as error:
            raise StoreUnavailable(str(error)) from error
        for node in masters:
            with contextlib.suppress(Broken):
                answers[node.host] = await node.exchange(b"".join(map(pack, commands)), len(commands))
        return answers

    async def pause(self, seconds: float) -> None:
        """Let some time pass."""
        await self._sleep(seconds)

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
                is_held = self._topology.is_split if call.script is None else self._topology.is_open
                if is_held(call.key) and not call.is_of_server:
                    done[at] = SPLIT
                    continue
                by_node.setdefault(node.host, (node, []))[1].append(at)
        if len(by_node) == 1:
            for node, left in by_node.values():
                await self._exchange(node, calls, left, done, replicas)
            return
        spread = self._in_turn if self._blocking else self._at_once
        await spread([partial(self._exchange, node, calls, left, done, replicas) for node, left in by_node.values()])

    async def _at_once(self, exchanges: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Talk to several servers; one that is lost or hangs keeps none of the others from answering."""
        _raise_worst(await asyncio.gather(*(exchange() for exchange in exchanges), return_exceptions=True))

    async def _in_turn(self, exchanges: Sequence[Callable[..., Awaitable[None]]]) -> None:
        """The same from a thread of one's own: one that hangs leaves the others their share of the time."""
        troubles: list[BaseException | None] = []
        for number, exchange in enumerate(exchanges):
            rest = deadline.left(self._address.timeout)
            if troubles and rest < _RETRY_PAUSE:
                break  # what is asked now would be done, and nobody would hear of it
            share = max(rest / (len(exchanges) - number), min(_LEAST_SHARE, rest / 2))
            try:
                await exchange(timeout=share)
            except (Broken, StoreError) as error:
                troubles.append(error)
        _raise_worst(troubles)

    async def _exchange(
        self,
        node: Node,
        calls: Sequence[Call],
        left: Sequence[int],
        done: dict[int, Reply],
        replicas: int,
        timeout: float | None = None,
    ) -> None:
        flagged = (await node.greeting()).flagged
        payload = _packed([calls[at] for at in left], flagged)
        replies, held = await self._send(node, payload, len(left), replicas, timeout)
        done.update(zip(left, replies, strict=True))
        unknown = [at for at in left if isinstance(done[at], ReplyError) and str(done[at]).startswith("NOSCRIPT")]
        if unknown:
            for at in unknown:
                del done[at]
            payload = b"".join([calls[at].packed_whole(flagged) for at in unknown])
            replies, held = await self._send(node, payload, len(unknown), replicas, timeout)
            done.update(zip(unknown, replies, strict=True))
        if held < replicas:
            raise StoreUnavailable(
                f"{node.host} stored it, but {held} of the {replicas} replicas asked for said so in time; "
                f"a failover now could lose it, so submit it again"
            )

    async def _send(
        self, node: Node, payload: bytes, count: int, replicas: int, timeout: float | None
    ) -> tuple[list[Reply], int]:
        """The replies, and how many replicas hold what was written; 0 if no one asks."""
        if not replicas:
            return await node.exchange(payload, count, timeout=timeout), 0
        limit = deadline.left(self._address.timeout)
        payload += pack(("WAIT", replicas, max(int(limit * 800), 1)))
        *replies, held = await node.exchange(payload, count + 1, timeout=limit, alone=True)
        if isinstance(held, ReplyError):
            raise error_of(held)
        return replies, held

    async def _face(self, failed: Sequence[int], calls: Sequence[Call], done: dict[int, Reply]) -> None:
        """Deal with errors that can be dealt with, so that those calls are made again; raise the others.

        A command about one key is made where that key already is. A script is about all keys of its slot: it waits
        until they are all in one place, and then its node says which.
        """
        for at in failed:
            error = done[at]
            word, _, rest = str(error).partition(" ")
            if word == "MOVED":
                await self._topology.known_node(_host_of(rest))
                self._topology.forget()
            elif is_nobody(error) and self._address.credentials is not None:
                (await self._topology.node(calls[at].key)).renew()
            elif is_replica(error) and self._address.shape is not Shape.SINGLE:
                self._topology.forget()
            elif not is_passing(error):
                raise error_of(error)
            elif word not in {"ASK", "TRYAGAIN"}:
                self._topology.forget()
            del done[at]
            if word == "ASK" and calls[at].script is None:
                node = await self._topology.known_node(_host_of(rest))
                flagged = (await node.greeting()).flagged
                _, done[at] = await node.exchange(pack(("ASKING",)) + calls[at].packed(flagged), 2)


def _parted(calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    """The calls in their order, in parts that are each written at once."""
    first, total = 0, 0
    for at, call in enumerate(calls):
        if at > first and total + call.size > MOST_BYTES:
            yield calls[first:at]
            first, total = at, 0
        total += call.size
    yield calls[first:]


def _packed(calls: Sequence[Call], flagged: bool) -> bytes:
    return calls[0].packed(flagged) if len(calls) == 1 else b"".join([call.packed(flagged) for call in calls])


def _raise_worst(troubles: Sequence[BaseException | None]) -> None:
    """Raise what was raised, if anything was: first of all what says that something may have been done."""
    raised = [trouble for trouble in troubles if trouble is not None]
    raised.sort(key=lambda trouble: isinstance(trouble, Broken) and not trouble.sent)
    for trouble in raised:
        raise trouble


def _failed(done: dict[int, Reply]) -> list[int]:
    return [at for at, reply in done.items() if isinstance(reply, ReplyError)]


def _paused(calls: Sequence[Call], done: dict[int, Reply]) -> list[int]:
    """The calls that have to wait until their slot has arrived."""
    return [at for at in _failed(done) if is_moving(done[at]) and (calls[at].script is not None or done[at] is SPLIT)]


def _given_up(trouble: Exception, calls: Sequence[Call], done: Container[int]) -> str:
    """Why calls were not made."""
    if not is_moving(trouble):
        return f"Redis could not be reached for a while: {trouble}"
    slots = sorted({hash_slot(call.key) for at, call in enumerate(calls) if at not in done})
    listed = ", ".join(map(str, slots[:3])) + (", …" if len(slots) > 3 else "")
    return (
        f"slot {listed} of the Redis Cluster is being moved: its queues pause until it has arrived, and nothing was "
        f"done to them; if the move stands still, `fairlead doctor` says how it ends ({trouble})"
    )


def _host_of(text: str) -> Host:
    """The host in the text of a redirection: `3999 127.0.0.1:6381`."""
    name, _, port = text.split(" ")[1].rpartition(":")
    return Host(name, int(port))
