"""What a PostgreSQL store, or a journal, says of its own health."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from fairlead.core.health.diagnosis import (
    POSTGRES_OFF,
    POSTGRES_ON,
    POSTGRES_UNSAFE,
    Examination,
    Finding,
    Level,
    Tier,
    durability,
)
from fairlead.storage.postgres.connection.session import Session
from fairlead.storage.postgres.statements import Statement
from fairlead.storage.postgres.url import Address

LOOKED_AT: Final = 10_000
"""How many idempotency keys are looked at."""
_MANY_DEAD: Final = 100_000
_OLD_SNAPSHOT: Final = 60


class Facts(Struct, frozen=True, kw_only=True):
    """What the server says."""

    server: str
    synchronous_commit: str
    fsync: str
    full_page_writes: str
    autovacuum: str
    max_connections: int
    """Those that are not kept for superusers."""
    standby: bool
    version: int
    """Of the schema; one that is not up to date is refused when the store is opened."""
    connections: int
    oldest_snapshot_seconds: int
    """For how long the oldest transaction that holds vacuum back has run."""
    live: int
    dead: int
    """Rows that were changed or removed, and whose room was not taken back yet."""


async def facts_of(session: Session, statement: Statement, address: Address) -> Facts:
    """What the server says of itself and of our schema."""
    ((text,),) = await session.fetch(statement, (address.schema,))
    return msgspec.json.decode(text, type=Facts)


def examined(facts: Facts, address: Address) -> Examination:
    """What the facts mean."""
    tier, level, remedy = _tier(facts)
    findings = (durability(tier, level, remedy), *judged(facts, address))
    return Examination(tier=tier, findings=findings)


def _tier(facts: Facts) -> tuple[Tier, Level, str]:
    if facts.fsync != "on":
        return POSTGRES_UNSAFE, Level.RED, "set fsync = on in postgresql.conf: a power loss may ruin the database"
    if facts.synchronous_commit == "off":
        return POSTGRES_OFF, Level.RED, "set synchronous_commit = on for the role or the database that fairlead uses"
    return POSTGRES_ON, Level.GREEN, ""


def judged(facts: Facts, address: Address) -> Iterable[Finding]:
    """What the facts mean beside durability."""
    yield Finding(what="PostgreSQL", value=f"{facts.server}, schema {address.schema} version {facts.version}")
    if facts.standby:
        yield Finding(
            what="role",
            level=Level.RED,
            value="a standby, which takes no writes",
            remedy="give the URL of the primary, or several hosts with ?target_session_attrs=read-write",
        )
    if facts.full_page_writes != "on":
        yield Finding(
            what="full_page_writes",
            level=Level.YELLOW,
            value="off: a power loss may leave torn pages, unless the filesystem prevents them",
            remedy="set full_page_writes = on",
        )
    yield _connections(facts, address)
    yield _vacuum(facts)
    if facts.oldest_snapshot_seconds > _OLD_SNAPSHOT:
        yield Finding(
            what="long transaction",
            level=Level.YELLOW,
            value=f"one has run for {facts.oldest_snapshot_seconds:,} s and holds vacuum back, so the tables grow",
            remedy="look for it in pg_stat_activity (backend_xmin), and end it; pg_terminate_backend(pid) does",
        )


def _connections(facts: Facts, address: Address) -> Finding:
    left = facts.max_connections - facts.connections
    shown = f"{facts.connections:,} of {facts.max_connections:,} are used; this process uses up to {address.pool}"
    if left >= address.pool:
        return Finding(what="connections", value=shown)
    return Finding(
        what="connections",
        level=Level.RED if left <= 0 else Level.YELLOW,
        value=shown,
        remedy="raise max_connections, put PgBouncer before it, or make ?pool=number in the store URLs smaller",
    )


def _vacuum(facts: Facts) -> Finding:
    shown = f"{facts.dead:,} dead rows beside {facts.live:,} live ones"
    if facts.autovacuum != "on":
        return Finding(
            what="vacuum",
            level=Level.RED,
            value=f"autovacuum is off; {shown}",
            remedy="set autovacuum = on: without it the tables grow and grow",
        )
    if facts.dead > max(_MANY_DEAD, facts.live):
        return Finding(
            what="vacuum",
            level=Level.YELLOW,
            value=shown,
            remedy="look for what holds vacuum back: a long transaction, a replication slot, too few workers",
        )
    return Finding(what="vacuum", value=shown)


def orphaned(count: int) -> Finding:
    """Idempotency keys whose task is not there."""
    if not count:
        return Finding(what="orphans", value="every idempotency key that was looked at has its task")
    return Finding(
        what="orphans",
        level=Level.YELLOW,
        value=f"{count:,} idempotency keys are held by a task that is not there",
        remedy="something else has deleted rows of table task; such keys are taken over by the next submit",
    )
