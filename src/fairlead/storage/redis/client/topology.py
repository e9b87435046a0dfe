"""Which server to talk to: one, the master that sentinels name, or the node of a Cluster that has a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, assert_never

from fairlead.core.errors import InvalidSettings, StoreError
from fairlead.storage.redis.address import Address, Host, Shape
from fairlead.storage.redis.keys import hash_slot
from fairlead.storage.redis.node import MakeNode, Node, Patience, Sleep
from fairlead.storage.redis.wire import Broken, Reply, ReplyError, pack


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

    def forget(self) -> None:
        """Take note that what is known may be wrong: the next call finds out anew."""
        ...

    def close(self) -> None:
        """Give every connection back."""
        ...


def topology_of(address: Address, make_node: MakeNode, sleep: Sleep) -> Topology:
    """The topology an address describes."""
    match address.shape:
        case Shape.SINGLE:
            return Single(make_node(address.hosts[0], False))
        case Shape.SENTINEL:
            return Sentinels(address, make_node, sleep)
        case Shape.CLUSTER:
            return Cluster(address, make_node)
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
        self._patience = Patience()
        self.only: Node | None = None

    async def node(self, key: bytes) -> Node:
        master = self.only
        if master is None:
            master = await self._discover()
        return master

    async def known_node(self, host: Host) -> Node:
        return await self.node(b"")

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
        for sentinel in self._address.hosts:
            try:
                host = await self._ask(sentinel)
                master = self._make_node(host, False)
                if (await master.greeting()).master:
                    self._patience.succeeded()
                    return self._settle_on(master)
                master.close()
                troubles.append(f"{sentinel} names {host}, which is a replica")
            except Broken as error:
                troubles.append(str(error))
        self._patience.failed()
        raise Broken(f"no master of {self._address.service!r} was found: {'; '.join(troubles)}", sent=False)

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

    def __init__(self, address: Address, make_node: MakeNode) -> None:
        self._seeds = address.hosts
        self._make_node = make_node
        self._nodes: dict[Host, Node] = {}
        self._slots: list[tuple[int, int, Host]] = []

    async def node(self, key: bytes) -> Node:
        if not self._slots:
            await self._discover()
        slot = hash_slot(key)
        for first, last, host in self._slots:
            if first <= slot <= last:
                return self._node_at(host)
        self._slots = []
        raise Broken(f"no node of the Redis Cluster has slot {slot}; the cluster is down or being set up", sent=False)

    async def known_node(self, host: Host) -> Node:
        return self._node_at(host)

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

    async def _discover(self) -> None:
        troubles: list[str] = []
        for host in dict.fromkeys((*self._nodes, *self._seeds)):
            try:
                (reply,) = await self._node_at(host).exchange(pack(("CLUSTER", "SLOTS")), 1)
            except Broken as error:
                troubles.append(str(error))
                continue
            if isinstance(reply, ReplyError):
                troubles.append(f"{host}: {reply}")
                continue
            if slots := _slots_of(reply, host):
                self._slots = slots
                self._drop_others({owner for _, _, owner in slots})
                return
            troubles.append(f"{host} knows no slots yet")
        raise Broken(f"no node of the Redis Cluster answers: {'; '.join(troubles)}", sent=False)

    def _drop_others(self, owners: set[Host]) -> None:
        for host in self._nodes.keys() - owners:
            self._nodes.pop(host).close()


def _slots_of(reply: Sequence[Reply], asked: Host) -> list[tuple[int, int, Host]]:
    """Ranges of slots and the master of each; a node that does not know its own name is the one we asked."""
    return [
        (first, last, Host(master[0].decode() if master[0] else asked.name, master[1]))
        for first, last, master, *_ in reply
    ]
