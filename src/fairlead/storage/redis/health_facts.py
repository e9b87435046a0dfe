"""What a Redis store finds out about its own health: it asks the servers, and looks at some of its keys.

What they mean is in `health`. However many tasks there are, it reads no more than some thousand keys.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from fairlead.core.errors import FairleadError, StoreUnavailable
from fairlead.core.health.diagnosis import Examination, Finding, Level, unknown, worst
from fairlead.core.task import Priority
from fairlead.storage.redis.client.calls import Call, Client
from fairlead.storage.redis.client.resp import Reply, ReplyError
from fairlead.storage.redis.health import Facts, facts_of, judged, orphaned, slots_judged, stray, tier_of
from fairlead.storage.redis.keys import BEGINNINGS, EXPIRING, ROOT_NAMES, WHOLE_NAMES, Keys, hash_slot, lane_of
from fairlead.storage.redis.slot_moves import ASK_MOVES, SplitSlot, moves_of, split_of
from fairlead.storage.redis.slot_registry import Registry
from fairlead.storage.redis.url import Address, Host

_SLOTS: Final = 64
"""How many slots are looked at."""
_LANES: Final = 16
"""Of how many kinds of task in each slot the lanes are looked at."""
_ENTRIES: Final = 20
"""How many entries of each index are looked at."""
_PLACES: Final = 1_000
"""Of how many slots it is asked where they are."""
_GLANCES: Final = 5
_GLANCE: Final = 0.2
"""Seconds after which it is looked once more whether a move goes on."""
_ROUNDS: Final = 10
_SCANNED: Final = 1_000
_EXPIRING: Final = 200
"""Of how many keys that should expire it is asked whether they do."""
_SETTINGS: Final = ("appendfsync", "save", "min-replicas-to-write", "maxclients")


class Examiner:
    """Looks at the servers and keys of one store."""

    def __init__(self, client: Client, keys: Keys, registry: Registry, address: Address) -> None:
        self._client = client
        self._keys = keys
        self._registry = registry
        self._address = address

    async def examine(self) -> Examination:
        """What the servers say, and what some of our keys look like."""
        all_slots, unread = await self._registered()
        splits, finding = await self._places(all_slots)
        if unread is not None and not splits:
            finding = unknown("slots", unread, "look again when all nodes answer")
        astray = {split.slot for split in splits}
        slots = [slot for slot in all_slots if hash_slot(self._keys.base(slot)) not in astray][:_SLOTS]
        ways = [self._keys.registry, *(map(self._keys.base, slots) if self._client.spread else ())]
        servers = await self._servers(ways)
        examinations = [judged(facts, self._address) for _, facts in servers]
        # One server that keeps nothing is enough to lose tasks.
        worst_tier = max(examinations, key=lambda each: tier_of(each.tier))
        findings = list(worst_tier.findings)
        for other in examinations:
            if other is not worst_tier:
                findings += [finding for finding in other.findings if finding.level is not Level.GREEN]
        findings += [finding] if finding is not None else []
        findings.append(await _if_read("orphans", self._orphans(slots)))
        findings.append(await _if_read("keys", self._all_strays([way for way, _ in servers])))
        return Examination(tier=worst_tier.tier, findings=tuple(findings))

    async def _registered(self) -> tuple[list[int], StoreUnavailable | None]:
        """The slots in use; none, and why, if the registry itself is where it cannot be read."""
        try:
            return await self._registry.slots(), None
        except StoreUnavailable as error:
            if not self._client.spread:
                raise
            return [], error

    async def _places(self, slots: Sequence[int]) -> tuple[list[SplitSlot], Finding | None]:
        """The slots of ours that are not where they belong, and what is to be said of it on a Cluster."""
        if not self._client.spread:
            return [], None
        ours = {hash_slot(self._keys.registry): list[int]()}
        for slot in slots[:_PLACES]:
            ours.setdefault(hash_slot(self._keys.base(slot)), []).append(slot)
        replies = await self._client.ask_masters(ASK_MOVES, *(("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in ours))
        refused = [reply for listed in replies.values() for reply in listed if isinstance(reply, ReplyError)]
        if refused:
            return [], unknown("slots", refused[0], "allow fairlead's user +cluster|nodes and +cluster|countkeysinslot")
        told = {host: moves_of(listed[0].decode()) for host, listed in replies.items()}
        keys = {slot: {host: listed[at] for host, listed in replies.items()} for at, slot in enumerate(ours, 1)}
        found = [split for slot in ours if (split := split_of(slot, told, keys[slot])) is not None]
        still = await self._standing_still({each.slot: keys[each.slot] for each in found if each.is_move})
        named = [replace(each, queues=await self._queues(ours[each.slot])) for each in found]
        return named, slots_judged(named, still, len(ours))

    async def _standing_still(self, before: Mapping[int, Mapping[Host, int]]) -> set[int]:
        """The slots whose keys do not move while one looks; `before` is where they were."""
        still = set(before)
        for _ in range(_GLANCES):
            if not still:
                break
            await self._client.pause(_GLANCE)
            counts = await self._client.ask_masters(*(("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in before))
            for at, slot in enumerate(before):
                if any(count[at] != before[slot].get(host) for host, count in counts.items()):
                    still.discard(slot)
        return still

    async def _queues(self, slots: Sequence[int]) -> tuple[str, ...]:
        """The queues that have tasks in these slots, as far as that can be read."""
        calls = [Call(base, ("HVALS", base + b"d")) for base in map(self._keys.base, slots)]
        replies = await self._client.run(calls, repeatable=True, leaving_out=True) if calls else []
        return tuple(sorted({lane_of(each, b"0").queue for reply in replies for each in reply or ()}))

    async def _servers(self, ways: Sequence[bytes]) -> list[tuple[bytes, Facts]]:
        """What each server says of itself, and a key that leads to it."""
        replies = await self._client.run([Call(way, ("INFO",)) for way in ways], repeatable=True)
        found: dict[str, tuple[bytes, Facts]] = {}
        for way, reply in zip(ways, replies, strict=True):
            told = dict(line.split(":", 1) for line in reply.decode().splitlines() if ":" in line)
            if told.get("run_id", "") not in found:
                facts = facts_of(told, await self._settings(way))
                found[facts.run_id] = (way, facts)
        return list(found.values())

    async def _settings(self, way: bytes) -> dict[str, str]:
        """Those settings of a server that it lets us read: many a hosted one does not."""
        calls = [Call(way, ("CONFIG", "GET", name)) for name in _SETTINGS]
        try:
            replies = await self._client.run(calls, repeatable=True)
        except FairleadError:
            return {}
        return {reply[0].decode(): reply[1].decode() for reply in replies if reply}

    async def _orphans(self, slots: Sequence[int]) -> Finding:
        """Entries of indexes whose task is not there, of some that are looked at."""
        indexes: list[tuple[bytes, bytes]] = []
        for base, kinds in zip(map(self._keys.base, slots), await self._kinds(slots), strict=True):
            lanes = [b"l%b%d" % (kind, priority) for kind in kinds for priority in Priority]
            indexes += [(base, base + name) for name in (b"e", b"a", *lanes)]
        calls = [Call(index, ("ZRANDMEMBER", index, _ENTRIES)) for _, index in indexes]
        listed = await self._ask(calls)
        entries = [
            (base, index, entry) for (base, index), found in zip(indexes, listed, strict=True) for entry in found
        ]
        missing = await self._missing(entries)
        # In this order: a task that is not there never comes back, so what still lists it is wrong.
        scores = await self._ask([Call(index, ("ZSCORE", index, entry)) for _, index, entry in missing])
        return orphaned(sum(score is not None for score in scores), len(entries))

    async def _kinds(self, slots: Sequence[int]) -> list[list[bytes]]:
        keys = [self._keys.base(slot) + b"d" for slot in slots]
        found = await self._ask([Call(key, ("HRANDFIELD", key, _LANES)) for key in keys])
        return [list(kinds) for kinds in found]

    async def _missing(self, entries: Sequence[tuple[bytes, bytes, bytes]]) -> list[tuple[bytes, bytes, bytes]]:
        tasks = [base + b"t" + entry for base, _, entry in entries]
        there = await self._ask([Call(task, ("EXISTS", task)) for task in tasks])
        return [entry for entry, exists in zip(entries, there, strict=True) if not exists]

    async def _all_strays(self, ways: Sequence[bytes]) -> Finding:
        return _joined([await self._strays(way) for way in ways])

    async def _strays(self, way: bytes) -> Finding:
        """Keys of ours on one server that no one here made, or that should expire and do not; of those looked at."""
        pattern = b"{%b[:}]*" % self._address.prefix.encode()
        cursor, looked_at, strange, expiring = b"0", 0, list[bytes](), list[bytes]()
        for _ in range(_ROUNDS):
            cursor, keys = await self._client.run_one(
                Call(way, ("SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED)), repeatable=True
            )
            looked_at += len(keys)
            strange += [key for key in keys if not is_known(key, self._address.prefix)]
            expiring += [key for key in keys if should_expire(key, self._address.prefix)]
            if cursor == b"0":
                break
        asked = expiring[:_EXPIRING]
        ends = await self._ask([Call(key, ("TTL", key)) for key in asked])
        lasting = [key for key, end in zip(asked, ends, strict=True) if end == -1]
        return stray(strange, lasting, looked_at, whole=cursor == b"0")

    async def _ask(self, calls: Sequence[Call]) -> list[Reply]:
        return await self._client.run(calls, repeatable=True) if calls else []


async def _if_read(what: str, look: Awaitable[Finding]) -> Finding:
    """What was found; keys that cannot be read now must not hide why that is so."""
    try:
        return await look
    except StoreUnavailable as error:
        return unknown(what, error, "look again when all nodes answer")


def is_known(key: bytes, prefix: str) -> bool:
    """Whether a key is one that this store makes, or another store's whose prefix begins like ours."""
    parts = _parts(key, prefix)
    if parts is None:
        return True
    slot, rest = parts
    if slot is None:
        return rest.decode(errors="replace") in ROOT_NAMES or (rest[:1] == b"r" and len(rest) > 1)
    return rest in WHOLE_NAMES or (len(rest) > 1 and rest[:1] in BEGINNINGS)


def should_expire(key: bytes, prefix: str) -> bool:
    """Whether a key is one of those that go by themselves when nobody uses them."""
    parts = _parts(key, prefix)
    return parts is not None and (parts == (None, b"feed") or (parts[0] is not None and parts[1][:1] in EXPIRING))


def _parts(key: bytes, prefix: str) -> tuple[bytes | None, bytes] | None:
    """The slot in a key of ours, if it is of one, and what comes behind; None for another store's key."""
    own = re.match(rb"\{%b(:\d+)?\}(.*)" % re.escape(prefix.encode()), key, re.DOTALL)
    return None if own is None else (own[1], own[2])


def _joined(findings: Sequence[Finding]) -> Finding:
    """What was found on several servers, as one."""
    level = worst([finding.level for finding in findings])
    first = next(finding for finding in findings if finding.level is level)
    values = dict.fromkeys(finding.value for finding in findings if finding.level is level)
    return replace(first, value="; ".join(values))
