"""Which server to talk to: one, the master that sentinels name, or the node of a Cluster that has a key."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias, assert_never

from fairlead.core.errors import InvalidSettings, StoreError, StoreRefused
from fairlead.storage.deadline import left, share
from fairlead.storage.redis.client.resp import Broken, MakeNode, Node, Patience, Reply, ReplyError, Sleep, pack
from fairlead.storage.redis.keys import hash_slot
from fairlead.storage.redis.slot_moves import ASK_MOVES, Moves, moves_of, split_slots
from fairlead.storage.redis.url import Address, Host, Shape


class Topology(Protocol):
    """The servers of a store. Raises Broken when none can be found."""

    spread: bool
    """Whether keys with different hash tags may be on different servers."""

    @property
    def only(self) -> Node | None:
        """The one server to ask about every key, if that is known."""
        ...

    async def node(self, key: bytes) -> Node:
        """The server to ask about a key."""
        ...

    async def known_node(self, host: Host) -> Node:
        """The server at a host that another one named."""
        ...

    async def masters(self) -> list[Node]:
        """The nodes of a Cluster that have slots; none of any other kind of servers."""
        ...

    def is_split(self, key: bytes) -> bool:
        """Whether a part of the slot of a key is, or may be, where its own node does not know of it."""
        ...

    def is_open(self, key: bytes) -> bool:
        """Whether that is so, or a node has said that the slot is on its way and none that it has arrived."""
        ...

    def meet(self, key: bytes) -> None:
        """Take note that a node said that the slot of a key is on its way."""

    def forget(self) -> None:
        """Take note that what is known may be wrong: the next call finds out anew."""
        ...

    def close(self) -> None:
        """Give every connection back."""
        ...


MakeScout: TypeAlias = Callable[[Host], Node]
"""Makes the node of a host that is asked one thing and not waited for."""

SCOUT_TIMEOUT: Final = 0.5
_LOOK_PAUSE: Final = 0.2
"""Seconds after which it is asked again whether a slot has arrived."""
_SILENT_FOR: Final = 1.0
"""Seconds after which a node that gave no answer is asked again: it may have been busy, and what it alone knows, which
is that it has a part of a slot, must not be unknown for long."""
_ASK_SLOTS: Final = pack(("CLUSTER", "SLOTS"))


def topology_of(address: Address, make_node: MakeNode, make_scout: MakeScout, sleep: Sleep) -> Topology:
    """The topology an address describes."""
    match address.shape:
        case Shape.SINGLE:
            return Single(make_node(address.hosts[0], False))
        case Shape.SENTINEL:
            return Sentinels(address, make_node, sleep)
        case Shape.CLUSTER:
            return Cluster(address, make_node, make_scout)
        case _:
            assert_never(address.shape)


class Single:
    """One server."""

    spread = False

    def __init__(self, node: Node) -> None:
        self.only = node

    async def node(self, key: bytes) -> Node:
        return self.only

    async def known_node(self, host: Host) -> Node:
        raise InvalidSettings(
            f"the server at {self.only.host} belongs to a Redis Cluster; use a redis+cluster:// URL for it"
        )

    async def masters(self) -> list[Node]:
        return []

    def is_split(self, key: bytes) -> bool:
        return False

    def is_open(self, key: bytes) -> bool:
        return False

    def meet(self, key: bytes) -> None:
        """There is no other server for it to go to."""

    def forget(self) -> None:
        """There is no other server."""

    def close(self) -> None:
        self.only.close()


class Sentinels:
    """A master and its replicas, watched by sentinels that say which is which."""

    spread = False

    def __init__(self, address: Address, make_node: MakeNode, sleep: Sleep) -> None:
        self._address = address
        self._make_node = make_node
        self._sleep = sleep
        self._hosts = address.hosts
        self._patience = Patience()
        self.only: Node | None = None

    async def node(self, key: bytes) -> Node:
        master = self.only
        if master is None:
            master = await self._discover()
        return master

    async def known_node(self, host: Host) -> Node:
        return await self.node(b"")

    async def masters(self) -> list[Node]:
        return []

    def is_split(self, key: bytes) -> bool:
        return False

    def is_open(self, key: bytes) -> bool:
        return False

    def meet(self, key: bytes) -> None:
        """There is no other server for it to go to."""

    def forget(self) -> None:
        if self.only is not None:
            self.only.close()
            self.only = None

    def close(self) -> None:
        self.forget()

    async def _discover(self) -> Node:
        if (seconds := self._patience.pause()) > 0:
            await self._sleep(seconds)
        troubles: list[str] = []
        refusals: list[StoreRefused] = []
        for tried, sentinel in enumerate(self._hosts):
            try:
                with share(len(self._hosts) - tried, self._address.timeout):
                    host, master = await self._ask_for_master(sentinel)
                if master is not None:
                    # Who knew it is the first to be asked the next time.
                    self._hosts = (sentinel, *(other for other in self._hosts if other != sentinel))
                    self._patience.succeeded()
                    return self._settle_on(master)
                troubles.append(f"{sentinel} names {host}, which is a replica")
            except Broken as error:
                troubles.append(str(error))
            except StoreRefused as error:
                refusals.append(error)
                troubles.append(f"{sentinel}: {error}")
        if refusals and len(refusals) == len(troubles):
            raise refusals[-1]
        self._patience.failed()
        raise Broken(f"no master of {self._address.service!r} was found: {'; '.join(troubles)}", sent=False)

    async def _ask_for_master(self, sentinel: Host) -> tuple[Host, Node | None]:
        """What a sentinel names, and its node if that is a master."""
        host = await self._ask(sentinel)
        master = self._make_node(host, False)
        try:
            is_master = (await master.greeting()).master
        except BaseException:
            master.close()
            raise
        if not is_master:
            master.close()
        return host, master if is_master else None

    def _settle_on(self, master: Node) -> Node:
        """The master that all calls use from now on; the first of several concurrent discoveries decides."""
        if self.only is None:
            self.only = master
        elif self.only is not master:
            master.close()
        return self.only

    async def _ask(self, sentinel: Host) -> Host:
        node = self._make_node(sentinel, True)
        try:
            command = pack(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.service))
            (reply,) = await node.exchange(command, 1)
        except StoreRefused:
            raise
        except StoreError as error:
            raise Broken(f"sentinel {sentinel}: {error}", sent=False) from error
        finally:
            node.close()
        if not isinstance(reply, list):
            raise Broken(f"sentinel {sentinel} knows no master {self._address.service!r}: {reply}", sent=False)
        return Host(reply[0].decode(), int(reply[1]))


class Cluster:
    """Masters that share the slots of a Redis Cluster."""

    spread = True
    only = None

    def __init__(self, address: Address, make_node: MakeNode, make_scout: MakeScout) -> None:
        self._seeds = address.hosts
        self._timeout = address.timeout
        self._make_node = make_node
        self._make_scout = make_scout
        self._silent: dict[Host, float] = {}
        """Until when nodes that gave no answer are not asked about moves."""
        self._told: dict[Host, Moves] = {}
        """What each of them told last."""
        self._look_again: float | None = None
        """When it is time to ask them, if there are any."""
        self._nodes: dict[Host, Node] = {}
        self._slots: list[tuple[int, int, Host]] = []
        self._split: frozenset[int] = frozenset()
        self._met: frozenset[int] = frozenset()
        """The slots that were met on their way. `redis-cli --cluster fix` may call one stable at the node that has it
        while parts of it are still at another, so that nobody may go by what that node says alone."""
        self._named: tuple[Host, ...] = ()
        """The host that knew best when last heard of: the first to be asked."""

    async def node(self, key: bytes) -> Node:
        if not self._slots:
            await self._discover()
        elif self._look_again is not None and time.monotonic() >= self._look_again:
            self._split = await self._look_for_parts(self._slots)
        slot = hash_slot(key)
        if (host := self._owner(slot)) is not None:
            return self._node_at(host)
        self._slots = []
        raise Broken(f"no node of the Redis Cluster has slot {slot}; the cluster is down or being set up", sent=False)

    async def known_node(self, host: Host) -> Node:
        self._named = (host,)
        return self._node_at(host)

    async def masters(self) -> list[Node]:
        if not self._slots:
            await self._discover()
        return [self._node_at(host) for host in sorted({host for _, _, host in self._slots})]

    def is_split(self, key: bytes) -> bool:
        return bool(self._split) and hash_slot(key) in self._split

    def is_open(self, key: bytes) -> bool:
        return bool(self._split or self._met) and hash_slot(key) in self._split | self._met

    def meet(self, key: bytes) -> None:
        self._met |= {hash_slot(key)}
        self._look_again = min(self._look_again or math.inf, time.monotonic() + _LOOK_PAUSE)

    def forget(self) -> None:
        self._slots = []

    def close(self) -> None:
        for node in self._nodes.values():
            node.close()
        self._nodes.clear()

    def _node_at(self, host: Host) -> Node:
        node = self._nodes.get(host)
        if node is None:
            node = self._nodes.setdefault(host, self._make_node(host, False))
        return node

    def _owner(self, slot: int) -> Host | None:
        return next((host for first, last, host in self._slots if first <= slot <= last), None)

    async def _discover(self) -> None:
        troubles: list[str] = []
        hosts = list(dict.fromkeys((*self._named, *self._nodes, *self._seeds)))
        for tried, host in enumerate(hosts):
            try:
                with share(len(hosts) - tried, self._timeout):
                    limit = left(self._timeout)
                    (reply,) = await self._node_at(host).exchange(_ASK_SLOTS, 1, timeout=limit, alone=True)
            except Broken as error:
                troubles.append(str(error))
                self._ask_last(host)
                continue
            if isinstance(reply, ReplyError):
                troubles.append(f"{host}: {reply}")
                continue
            if slots := _slots_of(reply, host):
                self._drop_others({owner for _, _, owner in slots})
                self._split = await self._look_for_parts(slots)
                self._slots = slots
                return
            troubles.append(f"{host} knows no slots yet")
        raise Broken(f"no node of the Redis Cluster answers: {'; '.join(troubles)}", sent=False)

    async def _look_for_parts(self, slots: Sequence[tuple[int, int, Host]]) -> frozenset[int]:
        """The slots that are in parts, as far as the masters can and may be asked."""
        masters = sorted({host for _, _, host in slots})
        # One that gives no answer now has what it had when it last did: better that a queue waits than that it splits.
        told = {host: moves for host, moves in self._told.items() if host in masters}
        # Who comes meanwhile does not ask as well.
        self._look_again = time.monotonic() + _SILENT_FOR
        for host in masters:
            if (moves := await self._ask_for_moves(host)) is not None:
                told[host] = moves
        self._told = told
        silent = [self._silent[host] for host in masters if self._silent.get(host, 0.0) > time.monotonic()]
        self._look_again = max(silent, default=None)
        if self._met and not silent:
            self._met &= {slot for moves in told.values() for slot in (*moves.coming, *moves.leaving)}
        if self._met:
            self._look_again = time.monotonic() + _LOOK_PAUSE
        coming = {slot for moves in told.values() for slot in moves.coming}
        owners = {slot: host for slot in coming for first, last, host in slots if first <= slot <= last}
        return split_slots(told, owners)

    async def _ask_for_moves(self, host: Host) -> Moves | None:
        if self._silent.get(host, 0.0) > time.monotonic():
            return None
        scout = self._make_scout(host)
        try:
            (reply,) = await scout.exchange(pack(ASK_MOVES), 1)
        except (Broken, StoreError):
            # Others' slots are not to wait for a node that is gone.
            self._silent[host] = time.monotonic() + _SILENT_FOR
            return None
        finally:
            scout.close()
        return None if isinstance(reply, ReplyError) else moves_of(reply.decode())

    def _ask_last(self, host: Host) -> None:
        """Whoever did not answer is the last to be asked again."""
        if host in self._named:
            self._named = ()
        if (node := self._nodes.pop(host, None)) is not None:
            self._nodes[host] = node

    def _drop_others(self, owners: set[Host]) -> None:
        for host in self._nodes.keys() - owners:
            self._nodes.pop(host).close()


def _slots_of(reply: Sequence[Reply], asked: Host) -> list[tuple[int, int, Host]]:
    """Ranges of slots and the master of each; a node that does not know its own name is the one we asked."""
    return [
        (first, last, Host(master[0].decode() if master[0] else asked.name, master[1]))
        for first, last, master, *_ in reply
    ]
