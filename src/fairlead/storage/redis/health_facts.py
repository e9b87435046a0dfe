"""What a Redis store finds out about its own health: it asks the servers, and looks at some of its keys.

What it judges by is in `judging`. However many tasks there are, it reads no more than some thousand keys.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from fairlead.core.diagnosis import Examination, Finding, Level, worst
from fairlead.core.errors import FairleadError
from fairlead.core.task import Priority
from fairlead.storage.redis.address import Address
from fairlead.storage.redis.client import Call, Client
from fairlead.storage.redis.judging import Facts, facts_of, judged, orphaned, stray, tier_of
from fairlead.storage.redis.keys import BEGINNINGS, WHOLE_NAMES, Keys
from fairlead.storage.redis.registry import Registry
from fairlead.storage.redis.wire import Reply

_SLOTS: Final = 64
"""How many slots are looked at."""
_LANES: Final = 16
"""Of how many kinds of task in each slot the lanes are looked at."""
_ENTRIES: Final = 20
"""How many entries of each index are looked at."""
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
        slots = (await self._registry.slots())[:_SLOTS]
        ways = [self._keys.registry, *(map(self._keys.base, slots) if self._client.spread else ())]
        servers = await self._servers(ways)
        examinations = [judged(facts, self._address) for _, facts in servers]
        # One server that keeps nothing is enough to lose tasks.
        worst_tier = max(examinations, key=lambda each: tier_of(each.tier))
        findings = list(worst_tier.findings)
        for other in examinations:
            if other is not worst_tier:
                findings += [finding for finding in other.findings if finding.level is not Level.GREEN]
        findings += [await self._orphans(slots), _joined([await self._strays(way) for way, _ in servers])]
        return Examination(tier=worst_tier.tier, findings=tuple(findings))

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


def is_known(key: bytes, prefix: str) -> bool:
    """Whether a key is one that this store makes, or another store's whose prefix begins like ours."""
    parts = _parts(key, prefix)
    if parts is None:
        return True
    slot, rest = parts
    if slot is None:
        return rest in (b"slots", b"feed") or (rest[:1] == b"r" and len(rest) > 1)
    return rest in WHOLE_NAMES or (len(rest) > 1 and rest[:1] in BEGINNINGS)


def should_expire(key: bytes, prefix: str) -> bool:
    """Whether a key is the feed, a doorbell or the rates of a queue: those go by themselves when nobody uses them."""
    parts = _parts(key, prefix)
    return parts is not None and (parts == (None, b"feed") or (parts[0] is not None and parts[1][:1] in (b"b", b"g")))


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
