"""What the facts about a Redis server mean. No server is asked here."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.health.diagnosis import (
    REDIS_ALWAYS,
    REDIS_EVERYSEC,
    REDIS_NOTHING,
    REDIS_UNSYNCED,
    Examination,
    Finding,
    Level,
    Tier,
    durability,
    unknown,
    worst,
)
from fairlead.storage.redis.slot_moves import SplitSlot
from fairlead.storage.redis.url import Address, Shape

_FROM_BAD: Final = (REDIS_ALWAYS, REDIS_EVERYSEC, REDIS_UNSYNCED, REDIS_NOTHING)
_PATCHED: Final = {
    "redis": ((8, 2, 2), (8, 0, 4), (7, 4, 6), (7, 2, 11), (6, 2, 20)),
    "valkey": ((9, 0, 0), (8, 1, 4), (8, 0, 6), (7, 2, 11)),
}
"""The first release of each series in which scripts cannot break out of their sandbox (CVE-2025-49844 and others)."""
_FULL: Final = 0.9
_SHOWN: Final = 3


class Facts(Struct, frozen=True, kw_only=True):
    """What one server says of itself; None for what it does not let us read."""

    run_id: str
    product: str
    version: str
    role: str
    append_only: bool
    append_ok: bool
    fsync: str | None
    """When the append-only file is flushed to disk."""
    snapshots: str | None
    policy: str
    memory: int
    most_memory: int
    """0 for no limit."""
    evicted: int
    replicas: int
    least_replicas: int | None
    """How many replicas must be there for a write to be taken."""
    clients: int
    most_clients: int | None


def facts_of(told: Mapping[str, str], settings: Mapping[str, str]) -> Facts:
    """The facts in a server's INFO, and in those of its settings that could be read."""
    valkey = told.get("valkey_version")
    least, most = settings.get("min-replicas-to-write"), settings.get("maxclients", told.get("maxclients"))
    return Facts(
        run_id=told.get("run_id", ""),
        product="valkey" if valkey else "redis",
        version=valkey or told.get("redis_version", "0"),
        role=told.get("role", "master"),
        append_only=told.get("aof_enabled") == "1",
        append_ok=told.get("aof_last_write_status", "ok") == "ok",
        fsync=settings.get("appendfsync"),
        snapshots=settings.get("save"),
        policy=told.get("maxmemory_policy", "noeviction"),
        memory=int(told.get("used_memory", 0)),
        most_memory=int(told.get("maxmemory", 0)),
        evicted=int(told.get("evicted_keys", 0)),
        replicas=int(told.get("connected_slaves", 0)),
        least_replicas=None if least is None else int(least),
        clients=int(told.get("connected_clients", 0)),
        most_clients=None if most is None else int(most),
    )


def tier_of(tier: Tier) -> int:
    """How little a tier promises, among those of Redis."""
    return _FROM_BAD.index(tier)


def judged(facts: Facts, address: Address) -> Examination:
    """What the facts about one server mean."""
    tier = _tier(facts)
    findings = [_durability(facts, tier), _version(facts), *_persistence(facts), _memory(facts)]
    findings += [*_replication(facts, address), _clients(facts)]
    return Examination(tier=tier, findings=tuple(findings))


def _tier(facts: Facts) -> Tier:
    if not facts.append_only:
        return REDIS_NOTHING
    return {"always": REDIS_ALWAYS, "no": REDIS_UNSYNCED}.get(facts.fsync or "", REDIS_EVERYSEC)


def _durability(facts: Facts, tier: Tier) -> Finding:
    if tier is REDIS_NOTHING:
        kept = f" (it saves snapshots: {facts.snapshots})" if facts.snapshots else ""
        remedy = f"CONFIG SET appendonly yes, and the same in redis.conf{kept}; or put a journal behind it"
        return durability(tier, Level.RED, remedy)
    if tier is REDIS_UNSYNCED:
        return durability(tier, Level.YELLOW, "CONFIG SET appendfsync everysec, and the same in redis.conf")
    return durability(tier)


def _version(facts: Facts) -> Finding:
    numbers = tuple(int(number) for number in re.findall(r"\d+", facts.version)[:3])
    shown = f"{facts.product} {facts.version}"
    patched = next((first for first in _PATCHED[facts.product] if first[:2] == numbers[:2]), None)
    newest = max(_PATCHED[facts.product])
    if numbers >= (patched or newest):
        return Finding(what="server", value=shown)
    fixed = ".".join(map(str, patched or newest))
    return Finding(
        what="server",
        level=Level.YELLOW,
        value=f"{shown}: whoever may run scripts on it can take it over (CVE-2025-49844)",
        remedy=f"upgrade to {fixed} or newer; until then let only fairlead's user EVAL, by ACL",
    )


def _persistence(facts: Facts) -> Iterable[Finding]:
    if facts.append_only and not facts.append_ok:
        yield Finding(
            what="append-only file",
            level=Level.RED,
            value="the last write to it failed",
            remedy="free some space on the disk of Redis; its log says what failed",
        )
    if facts.append_only and facts.fsync is None:
        yield unknown("appendfsync", "CONFIG GET is not allowed", "take the tier for what your host says it is")


def _memory(facts: Facts) -> Finding:
    if facts.policy != "noeviction":
        gone = f"; {facts.evicted:,} keys were" if facts.evicted else ""
        return Finding(
            what="memory",
            level=Level.RED,
            value=f"maxmemory-policy {facts.policy}: when memory is short, tasks are deleted{gone}",
            remedy="CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
        )
    used = f"{facts.memory / 1024**2:,.0f} MB"
    if not facts.most_memory:
        return Finding(
            what="memory",
            level=Level.YELLOW,
            value=f"{used} used, and no maxmemory: at the end of the host's memory the kernel kills Redis",
            remedy="set maxmemory: a full Redis then refuses submits, and what is in it can still be worked off",
        )
    shown = f"{used} of {facts.most_memory / 1024**2:,.0f} MB used, noeviction"
    if facts.memory < facts.most_memory * _FULL:
        return Finding(what="memory", value=shown)
    return Finding(
        what="memory", level=Level.RED, value=shown, remedy="raise maxmemory, or start more workers to work it off"
    )


def _replication(facts: Facts, address: Address) -> Iterable[Finding]:
    if facts.role != "master":
        yield Finding(
            what="role",
            level=Level.RED,
            value=f"a {facts.role}, which takes no writes",
            remedy="give the URL of the master, or redis+sentinel:// so that it is found",
        )
        return
    shown = f"{facts.replicas} connected; a submit waits for {address.replicas}"
    if facts.replicas < address.replicas:
        yield Finding(
            what="replicas",
            level=Level.RED,
            value=f"{shown}: every submit fails",
            remedy="start the replicas again, or lower ?replicas in the store URL",
        )
    elif (facts.replicas or address.shape is not Shape.SINGLE) and not address.replicas and not facts.least_replicas:
        yield Finding(
            what="replicas",
            level=Level.YELLOW,
            value=f"{shown}: a failover may lose what had not reached it",
            remedy="add ?replicas=1 to the store URL, or set min-replicas-to-write 1",
        )
    else:
        yield Finding(what="replicas", value=shown)


def _clients(facts: Facts) -> Finding:
    if facts.most_clients is None:
        return Finding(what="connections", value=f"{facts.clients:,}")
    shown = f"{facts.clients:,} of {facts.most_clients:,}"
    if facts.clients < facts.most_clients * _FULL:
        return Finding(what="connections", value=shown)
    return Finding(what="connections", level=Level.YELLOW, value=shown, remedy="raise maxclients")


def slots_judged(splits: Sequence[SplitSlot], still: Container[int], looked_at: int) -> Finding:
    """The slots that are not where they belong; `still` are those whose move did not go on while it was watched."""
    if not splits:
        return Finding(what="slots", value=f"each of the {looked_at:,} in use is at one node of the Cluster")
    told = [_split_told(split, split.slot in still) for split in splits]
    level = worst([level for level, _, _ in told])
    first = next(each for each in told if each[0] is level)
    return Finding(
        what="slots",
        level=level,
        value="; ".join(value for each, value, _ in told if each is level),
        remedy=first[2],
    )


def _split_told(split: SplitSlot, still: bool) -> tuple[Level, str, str]:
    """How bad it is about a slot, what it is, and what to do."""
    queues = f" ({_named(split.queues)})" if split.queues else ""
    slot = f"slot {split.slot}{queues}"
    end = f"`redis-cli --cluster fix {split.owner or 'HOST:PORT'}` ends the move; until then its queues stand still"
    if split.owner is None:
        return Level.RED, f"no node that answers has {slot}: nothing can be done to its queues", "start its node again"
    if split.is_move:
        way = f"{slot} is being moved from {split.owner} to {split.target}"
        if still:
            return Level.RED, f"{way}, and stands still half way: its queues stand still, too", end
        return Level.YELLOW, f"{way}: its queues pause until it has arrived", "wait until the move has ended"
    if split.strays:
        host, count = split.strays[0]
        return (
            Level.RED,
            f"{count:,} keys of {slot} are at {host}, but the slot is {split.owner}'s: nobody sees what they hold",
            f"on {host}: CLUSTER SETSLOT {split.slot} IMPORTING and the id of {split.owner}; then "
            f"`redis-cli --cluster fix {split.owner}` brings them together",
        )
    others = _named([str(host) for host in split.importing]) or "a node that is not there"
    return Level.RED, f"{slot} is half moved between {split.owner} and {others}, which do not agree on it", end


def _named(names: Sequence[str]) -> str:
    return ", ".join([*names[:_SHOWN], "…"] if len(names) > _SHOWN else names)


def orphaned(count: int, looked_at: int) -> Finding:
    """Entries of indexes whose task is not there."""
    if not count:
        return Finding(what="orphans", value=f"each of the {looked_at:,} index entries looked at has its task")
    return Finding(
        what="orphans",
        level=Level.RED,
        value=f"{count:,} of {looked_at:,} index entries looked at name a task that is not there",
        remedy="an eviction or another program deleted tasks; submit them again, or `fairlead rebuild` from a journal",
    )


def stray(strange: Sequence[bytes], lasting: Sequence[bytes], looked_at: int, *, whole: bool) -> Finding:
    """Keys under our prefix that are not ours, or that should expire and do not."""
    scope = f"{'all' if whole else 'some'} {looked_at:,} keys"
    if strange:
        return Finding(
            what="keys",
            level=Level.YELLOW,
            value=f"{len(strange):,} of {scope} under our prefix are not ours: {_some(strange)}",
            remedy="give fairlead a prefix of its own with ?prefix=name, or delete these keys",
        )
    if lasting:
        return Finding(
            what="keys",
            level=Level.YELLOW,
            value=f"{len(lasting):,} keys never expire that should: {_some(lasting)}",
            remedy="EXPIRE them, or delete them: they hold hints only; something has called PERSIST",
        )
    return Finding(what="keys", value=f"{scope} under our prefix looked at: none is strange, none outlives its use")


def _some(keys: Sequence[bytes]) -> str:
    shown = [key.decode("utf-8", "backslashreplace") for key in keys[:_SHOWN]]
    return ", ".join([*shown, "…"] if len(keys) > _SHOWN else shown)
