"""What a doctor says: findings, the durability tiers, and the rules that hold on every store.

A store tells facts of itself and judges those that only it has. What the engine sees on any store is judged here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.health.unserved import UnservedTasks
from fairlead.core.instant import MINUTE, SECOND, Span


class Level(enum.StrEnum):
    """How bad a finding is."""

    GREEN = "green"
    """As it should be."""
    YELLOW = "yellow"
    """Less than it could be, or worth a look."""
    RED = "red"
    """Acknowledged tasks may be lost, tasks do not move, or others can open the store: do something."""


_ORDER: Final = (Level.GREEN, Level.YELLOW, Level.RED)


class Finding(Struct, frozen=True, kw_only=True):
    """The result of one check."""

    what: str
    level: Level = Level.GREEN
    value: str
    """What was found."""
    remedy: str = ""
    """What to do about it; empty when nothing need be done."""


class Tier(Struct, frozen=True, kw_only=True):
    """What an acknowledged submit, and an accepted outcome, survive in a store. Published in `guarantees`."""

    name: str
    kill: str
    """Whether they survive a kill -9 of any process, the store's own included."""
    power: str
    """Whether they survive a power loss."""
    lost_with: str
    """What they do not survive."""


MEMORY: Final = Tier(name="memory", kill="no", power="no", lost_with="the process")
SQLITE_FULL: Final = Tier(name="SQLite, `synchronous=FULL` (default)", kill="yes", power="yes", lost_with="the disk")
SQLITE_NORMAL: Final = Tier(
    name="SQLite, `synchronous=NORMAL`",
    kill="yes",
    power="the last moments may be lost, the file stays sound",
    lost_with="the disk",
)
REDIS_NOTHING: Final = Tier(
    name="Redis without an append-only file",
    kill="no: all since the last snapshot is lost",
    power="no",
    lost_with="a restart, a failover's window, `FLUSHALL`",
)
REDIS_UNSYNCED: Final = Tier(
    name="Redis, append-only file `no`",
    kill="yes",
    power="what the system had not written yet is lost, often 30 seconds",
    lost_with="a failover's window, `FLUSHALL`",
)
REDIS_EVERYSEC: Final = Tier(
    name="Redis, append-only file `everysec`",
    kill="yes",
    power="up to about a second may be lost",
    lost_with="a failover's window, `FLUSHALL`",
)
REDIS_ALWAYS: Final = Tier(
    name="Redis, append-only file `always`", kill="yes", power="yes", lost_with="a failover's window, `FLUSHALL`"
)
JOURNAL: Final = Tier(
    name="Redis with a journal in PostgreSQL",
    kill="yes",
    power="yes; what ended in the last moments may run again",
    lost_with="both servers",
)
POSTGRES_ON: Final = Tier(
    name="PostgreSQL, `synchronous_commit=on`",
    kill="yes",
    power="yes",
    lost_with="the disk; a failover to an asynchronous replica",
)
POSTGRES_OFF: Final = Tier(
    name="PostgreSQL, `synchronous_commit=off`",
    kill="of the server: up to about a second may be lost",
    power="up to about a second may be lost",
    lost_with="the disk; a failover",
)
POSTGRES_UNSAFE: Final = Tier(
    name="PostgreSQL, `fsync=off`", kill="yes", power="no: the whole database may be damaged", lost_with="the disk"
)

TIERS: Final = (
    MEMORY,
    SQLITE_FULL,
    SQLITE_NORMAL,
    REDIS_NOTHING,
    REDIS_UNSYNCED,
    REDIS_EVERYSEC,
    REDIS_ALWAYS,
    JOURNAL,
    POSTGRES_ON,
    POSTGRES_OFF,
    POSTGRES_UNSAFE,
)


class Examination(Struct, frozen=True, kw_only=True):
    """What a store says of itself."""

    tier: Tier
    findings: tuple[Finding, ...]


class Diagnosis(Struct, frozen=True, kw_only=True):
    """All that was found; the tier is None when the store could not be reached."""

    tier: Tier | None = None
    findings: tuple[Finding, ...]

    @property
    def level(self) -> Level:
        """The worst of the findings."""
        return worst([finding.level for finding in self.findings])


def worst(levels: Sequence[Level]) -> Level:
    """The worst of these levels; green when there is none."""
    return max(levels, key=_ORDER.index, default=Level.GREEN)


def durability(tier: Tier, level: Level = Level.GREEN, remedy: str = "") -> Finding:
    """What an acknowledged task survives."""
    value = f"{tier.name.replace('`', '')}; survives kill -9: {tier.kill}; power loss: {tier.power}"
    return Finding(what="durability", level=level, value=value, remedy=remedy)


def unknown(what: str, error: object, remedy: str) -> Finding:
    """Something that the store does not let us look at."""
    return Finding(what=what, level=Level.YELLOW, value=f"could not be read: {error}", remedy=remedy)


_OFFSET: Final[Span] = SECOND
_GROSS_OFFSET: Final[Span] = 5 * MINUTE


def clock_offset(offset: Span | None) -> Finding:
    """How far the host's clock is ahead of the store's; None for a store that has no clock of its own."""
    if offset is None:
        return Finding(what="clock", value="the host's own: the store is on this host")
    shown = f"{offset / SECOND:+.3f} s from the store's"
    if abs(offset) < _OFFSET:
        return Finding(what="clock", value=shown)
    return Finding(
        what="clock",
        level=Level.RED if abs(offset) >= _GROSS_OFFSET else Level.YELLOW,
        value=shown,
        remedy="let NTP set the clock of this host; tasks follow the store's clock, logs and certificates do not",
    )


def overdue(leases: int, due: int, ended: int, oldest: Span, *, more: bool) -> Finding:
    """Alarms that came long ago and that no sweep has answered: of leases, of tasks that are due, of ended tasks."""
    if not leases + due + ended:
        return Finding(what="sweep", value="no alarm is overdue")
    counts = ((leases, "executing with no live worker"), (due, "due and still scheduled"), (ended, "past retention"))
    listed = ", ".join(f"{count:,} {text}" for count, text in counts if count)
    return Finding(
        what="sweep",
        level=Level.RED if leases or due else Level.YELLOW,
        value=f"{'at least ' if more else ''}{listed}; the oldest for {oldest // SECOND:,} s",
        remedy="start a worker or a server on this store: each sweeps; if one runs, its log says what keeps it from it",
    )


def unserved(queue: str, waiting: UnservedTasks) -> Iterator[Finding]:
    """The ready tasks of a queue that no live worker could run, by kind; nothing if some worker could run each."""
    for kind in waiting.first:
        tasks = f"{kind.tasks:,} tasks are" if kind.tasks > 1 else "1 task is"
        yield Finding(
            what=f"queue {queue}" if kind.type is None else f"tasks of {kind.type} in {queue}",
            level=Level.YELLOW,
            value=f"{tasks} ready, and {kind.reason}",
            remedy=kind.remedy(queue),
        )
    if waiting.kinds > len(waiting.first):
        more = waiting.kinds - len(waiting.first)
        yield Finding(
            what=f"queue {queue}",
            level=Level.YELLOW,
            value=f"nor could any worker run the ready tasks of {more:,} more task types or capability sets",
            remedy="see whose they are with `fairlead list --state queued`, and cancel what nobody is to run",
        )


_NEARLY: Final = 0.8


def bound_of(queue: str, waiting: int, bound: int | None) -> Finding | None:
    """How full a queue is; None when it has no bound or much room."""
    if bound is None or waiting < bound * _NEARLY:
        return None
    full = waiting >= bound
    return Finding(
        what=f"queue {queue}",
        level=Level.RED if full else Level.YELLOW,
        value=f"{waiting:,} tasks wait, and its bound is {bound:,}{': submits are refused' if full else ''}",
        remedy=f"start more workers, or raise the bound with `fairlead queues set {queue} --bound N`",
    )


def quarantine(counts: Mapping[str, int], newer: Mapping[str, int]) -> Finding:
    """What cannot be decoded, by kind: what was set aside, and what is left to a newer version."""
    said, remedies = [], []
    if aside := sum(counts.values()):
        said.append(f"{aside:,} in quarantine, as they cannot be decoded: {_by_kind(counts)}")
        remedies.append("`fairlead quarantine list` shows them: restore or discard each")
    if ahead := sum(newer.values()):
        said.append(f"{ahead:,} of a newer version of fairlead: {_by_kind(newer)}")
        remedies.append("finish the rollout: this version leaves them alone")
    level = Level.RED if aside else Level.YELLOW if ahead else Level.GREEN
    return Finding(
        what="quarantine", level=level, value="; ".join(said) or "every record can be read", remedy="; ".join(remedies)
    )


def _by_kind(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))


def dead_letters(task_type: str, count: int, alert_at: int | None) -> Finding | None:
    """How many dead letters of a type there are; None when that is no reason for an alert."""
    if alert_at is None or count < alert_at:
        return None
    return Finding(
        what=f"dead letters of {task_type}",
        level=Level.RED,
        value=f"{count:,}, at least the {alert_at:,} from which on to alert",
        remedy=f"`fairlead dlq groups -q type:{task_type}` says why; replay or discard them",
    )
