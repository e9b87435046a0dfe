"""Slots of a Redis Cluster that are being moved, as its nodes tell it: each of them tells its own part only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from fairlead.storage.redis.url import Host

ASK_MOVES: Final = ("CLUSTER", "NODES")
"""What a node is asked."""

_OPEN: Final = re.compile(r"\[(\d+)-([<>])-([0-9a-f]+)\]")


class Moves(Struct, frozen=True):
    """What one master tells of slots that are on their way."""

    node: str
    """Its name in the cluster."""
    leaving: dict[int, str] = {}
    """The slots that it moves away, and to which node."""
    coming: dict[int, str] = {}
    """The slots that are moved to it, and from which node."""
    ranges: tuple[tuple[int, int], ...] = ()
    """The slots that it has: the first and the last of each range."""

    def has(self, slot: int) -> bool:
        """Whether this is the node of a slot."""
        return any(first <= slot <= last for first, last in self.ranges)


def moves_of(told: str) -> Moves:
    """What a master's answer says of its own slots."""
    own = next((line for line in told.splitlines() if "myself" in line.split(" ", 3)[2]), "")
    leaving: dict[int, str] = {}
    coming: dict[int, str] = {}
    for slot, way, other in _OPEN.findall(own):
        (leaving if way == ">" else coming)[int(slot)] = other
    listed = (word.partition("-") for word in own.split(" ")[8:] if not word.startswith("["))
    ranges = tuple((int(first), int(last or first)) for first, _, last in listed)
    return Moves(own.partition(" ")[0], leaving, coming, ranges)


def split_slots(told: Mapping[Host, Moves], owners: Mapping[int, Host]) -> frozenset[int]:
    """The slots of which a node has a part, or may have, while their own node knows nothing of a move.

    A failover leaves them so: before Redis 8 a replica does not know what its master was moving. The new master would
    serve its part of the slot as if that were the whole.
    """
    return frozenset(
        slot
        for moves in told.values()
        for slot in moves.coming
        if (owner := told.get(owners[slot]) if slot in owners else None) is not None
        and owner is not moves
        and owner.leaving.get(slot) != moves.node
    )


class SplitSlot(Struct, frozen=True, kw_only=True):
    """A slot of ours that is not simply where it belongs."""

    slot: int
    queues: tuple[str, ...] = ()
    """The queues that are known to be in it."""
    owner: Host | None
    """The node that has it."""
    target: Host | None = None
    """The node that its owner moves it to."""
    importing: tuple[Host, ...] = ()
    """The nodes that are told to take it."""
    strays: tuple[tuple[Host, int], ...] = ()
    """How many of its keys are at nodes that neither have it nor are told to take it."""

    @property
    def is_move(self) -> bool:
        """Whether this is what a move looks like, and nothing else."""
        return self.target is not None and self.importing == (self.target,) and not self.strays


def split_of(slot: int, told: Mapping[Host, Moves], keys: Mapping[Host, int]) -> SplitSlot | None:
    """How a slot stands, by what the masters tell and how many of its keys each has; None if it is in its place."""
    owner = next((host for host, moves in told.items() if moves.has(slot)), None)
    leads = None if owner is None else told[owner].leaving.get(slot)
    target = next((host for host, moves in told.items() if moves.node == leads), None)
    importing = tuple(host for host, moves in told.items() if slot in moves.coming)
    strays = tuple((host, count) for host, count in keys.items() if count and host != owner and host not in importing)
    if owner is not None and leads is None and not importing and not strays:
        return None
    return SplitSlot(slot=slot, owner=owner, target=target, importing=importing, strays=strays)
