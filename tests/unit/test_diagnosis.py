"""What a doctor makes of facts: tiers, levels, and the rules that hold on every store."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from fairlead.core.errors import StoreUnavailable
from fairlead.core.health.diagnosis import (
    JOURNAL,
    POSTGRES_OFF,
    POSTGRES_ON,
    POSTGRES_UNSAFE,
    REDIS_ALWAYS,
    REDIS_EVERYSEC,
    REDIS_NOTHING,
    REDIS_UNSYNCED,
    SQLITE_FULL,
    SQLITE_NORMAL,
    TIERS,
    Diagnosis,
    Examination,
    Finding,
    Level,
    bound_of,
    clock_offset,
    overdue,
)
from fairlead.core.instant import SECOND
from fairlead.storage.journal import health as journal
from fairlead.storage.postgres import health as postgres
from fairlead.storage.postgres.url import parse
from fairlead.storage.redis import health as redis
from fairlead.storage.redis.health_facts import is_known, should_expire
from fairlead.storage.redis.url import parse_address
from fairlead.storage.sqlite import health as sqlite

GUARANTEES = Path(__file__).parents[2] / "docs/explanation/guarantees.md"

REDIS = redis.Facts(
    run_id="a",
    product="redis",
    version="8.2.2",
    role="master",
    append_only=True,
    append_ok=True,
    fsync="everysec",
    snapshots="",
    policy="noeviction",
    memory=10,
    most_memory=100,
    evicted=0,
    replicas=0,
    least_replicas=0,
    clients=3,
    most_clients=10_000,
)
POSTGRES = postgres.Facts(
    server="17.2",
    synchronous_commit="on",
    fsync="on",
    full_page_writes="on",
    autovacuum="on",
    max_connections=97,
    standby=False,
    version=2,
    connections=5,
    oldest_snapshot_seconds=0,
    live=10,
    dead=0,
)
SQLITE = sqlite.Facts(journal_mode="wal", synchronous="FULL", version=3, orphans=0)
PLAIN, WAITS = parse_address("redis://h"), parse_address("redis://h?replicas=1")
DATABASE = parse("postgresql://h/d")


def bad(examination: Examination) -> dict[str, Level]:
    """What is not green; each such finding says what to do."""
    found = [finding for finding in examination.findings if finding.level is not Level.GREEN]
    assert all(finding.remedy for finding in found)
    assert all(not finding.remedy for finding in examination.findings if finding.level is Level.GREEN)
    return {finding.what: finding.level for finding in found}


def test_every_tier_is_published_as_it_is() -> None:
    page = GUARANTEES.read_text(encoding="utf-8")
    for tier in TIERS:
        assert f"| {tier.name} | {tier.kill} | {tier.power} | {tier.lost_with} |" in page


def test_a_diagnosis_is_as_bad_as_its_worst_finding() -> None:
    found = [Finding(what=level, level=level, value="") for level in Level]
    assert Diagnosis(findings=()).level is Level.GREEN
    assert Diagnosis(findings=tuple(found[:2])).level is Level.YELLOW
    assert Diagnosis(findings=(found[2], found[0])).level is Level.RED


@pytest.mark.parametrize(
    ("offset", "level"),
    [
        (None, Level.GREEN),
        (SECOND // 2, Level.GREEN),
        (-2 * SECOND, Level.YELLOW),
        (301 * SECOND, Level.RED),
    ],
)
def test_a_clock_may_be_a_little_off(offset: int | None, level: Level) -> None:
    assert clock_offset(offset).level is level


def test_alarms_that_nobody_answered() -> None:
    assert overdue(0, 0, 0, 0, more=False).level is Level.GREEN
    assert overdue(0, 0, 3, SECOND, more=False).level is Level.YELLOW
    lost = overdue(2, 1, 0, 90 * SECOND, more=True)
    assert lost.level is Level.RED
    assert lost.value == ("at least 2 executing with no live worker, 1 due and still scheduled; the oldest for 90 s")


def test_a_queue_near_its_bound() -> None:
    assert bound_of("q", 79, 100) is None is bound_of("q", 10**9, None)
    nearly, full = bound_of("q", 80, 100), bound_of("q", 100, 100)
    assert nearly is not None and full is not None
    assert (nearly.level, full.level) == (Level.YELLOW, Level.RED)


@pytest.mark.parametrize(
    ("changes", "tier", "found"),
    [
        ({}, REDIS_EVERYSEC, {}),
        ({"fsync": "always"}, REDIS_ALWAYS, {}),
        ({"fsync": "no"}, REDIS_UNSYNCED, {"durability": Level.YELLOW}),
        ({"fsync": None}, REDIS_EVERYSEC, {"appendfsync": Level.YELLOW}),
        ({"append_only": False, "snapshots": "900 1"}, REDIS_NOTHING, {"durability": Level.RED}),
        ({"append_ok": False}, REDIS_EVERYSEC, {"append-only file": Level.RED}),
        ({"policy": "allkeys-lru", "evicted": 5}, REDIS_EVERYSEC, {"memory": Level.RED}),
        ({"most_memory": 0}, REDIS_EVERYSEC, {"memory": Level.YELLOW}),
        ({"memory": 95}, REDIS_EVERYSEC, {"memory": Level.RED}),
        ({"role": "slave"}, REDIS_EVERYSEC, {"role": Level.RED}),
        ({"replicas": 1}, REDIS_EVERYSEC, {"replicas": Level.YELLOW}),
        ({"replicas": 1, "least_replicas": 1}, REDIS_EVERYSEC, {}),
        ({"clients": 9_500}, REDIS_EVERYSEC, {"connections": Level.YELLOW}),
        ({"version": "8.4.0"}, REDIS_EVERYSEC, {}),
        ({"version": "7.2.4"}, REDIS_EVERYSEC, {"server": Level.YELLOW}),
        ({"version": "7.0.15"}, REDIS_EVERYSEC, {"server": Level.YELLOW}),
        ({"version": "6.2.20"}, REDIS_EVERYSEC, {}),
        ({"product": "valkey", "version": "8.0.6"}, REDIS_EVERYSEC, {}),
    ],
)
def test_redis(changes: dict[str, object], tier: object, found: dict[str, Level]) -> None:
    examination = redis.judged(replace(REDIS, **changes), PLAIN)
    assert (examination.tier, bad(examination)) == (tier, found)


def test_replicas_that_submits_wait_for_and_that_are_not_there() -> None:
    assert bad(redis.judged(REDIS, WAITS)) == {"replicas": Level.RED}
    assert bad(redis.judged(replace(REDIS, replicas=1), WAITS)) == {}


def test_keys_are_ours_anothers_or_strange() -> None:
    ours = [
        b"{fl}slots",
        b"{fl}mark",
        b"{fl}rworker",
        b"{fl}feed",
        b"{fl:7}e",
        b"{fl:7}t0123456789abcdef",
        b"{fl:7}bmail",
    ]
    others = [b"{fl:x:7}z", b"{fl:x}what", b"flat"]
    assert all(is_known(key, "fl") for key in ours + others)
    assert not any(is_known(key, "fl") for key in (b"{fl}else", b"{fl:7}z", b"{fl:7}ee", b"{fl:7}t", b"{fl}"))


def test_doorbells_and_the_feed_expire_and_tasks_do_not_whatever_their_ids() -> None:
    assert should_expire(b"{fl:7}bmail", "fl") and should_expire(b"{fl}feed", "fl")
    others = (b"{fl:7}t012345678}bcdefg", b"{fl:7}\n}b", b"{fl}rfeed", b"{fl:x}feed", b"{fl:x:7}bmail")
    assert not any(should_expire(key, "fl") for key in others)


@pytest.mark.parametrize(
    ("changes", "tier", "found"),
    [
        ({}, POSTGRES_ON, {}),
        ({"synchronous_commit": "remote_apply"}, POSTGRES_ON, {}),
        ({"synchronous_commit": "off"}, POSTGRES_OFF, {"durability": Level.RED}),
        ({"fsync": "off"}, POSTGRES_UNSAFE, {"durability": Level.RED}),
        ({"full_page_writes": "off"}, POSTGRES_ON, {"full_page_writes": Level.YELLOW}),
        ({"standby": True}, POSTGRES_ON, {"role": Level.RED}),
        ({"connections": 92}, POSTGRES_ON, {"connections": Level.YELLOW}),
        ({"connections": 97}, POSTGRES_ON, {"connections": Level.RED}),
        ({"autovacuum": "off"}, POSTGRES_ON, {"vacuum": Level.RED}),
        ({"dead": 200_000}, POSTGRES_ON, {"vacuum": Level.YELLOW}),
        ({"dead": 200_000, "live": 1_000_000}, POSTGRES_ON, {}),
        ({"oldest_snapshot_seconds": 61}, POSTGRES_ON, {"long transaction": Level.YELLOW}),
    ],
)
def test_postgresql(changes: dict[str, object], tier: object, found: dict[str, Level]) -> None:
    examination = postgres.examined(replace(POSTGRES, **changes), DATABASE)
    assert (examination.tier, bad(examination)) == (tier, found)


def test_a_journal_makes_up_for_what_redis_does_not_keep() -> None:
    hot = redis.judged(replace(REDIS, append_only=False), PLAIN)
    both = journal.examined(hot, postgres.examined(POSTGRES, DATABASE), 0, required=True)
    assert (both.tier, bad(both)) == (JOURNAL, {})
    late = journal.examined(hot, postgres.examined(replace(POSTGRES, fsync="off"), DATABASE), 10_000, required=True)
    assert bad(late) == {"durability": Level.RED, "journal lag": Level.YELLOW}


def test_a_journal_that_is_out_of_reach_promises_nothing() -> None:
    hot = redis.judged(REDIS, PLAIN)
    for required, effect in ((True, "submits are refused"), (False, "kept in Redis alone")):
        alone = journal.examined(hot, StoreUnavailable("it is down"), 5, required=required)
        assert alone.tier is REDIS_EVERYSEC
        assert bad(alone) == {"journal": Level.RED}
        assert effect in alone.findings[0].value


def test_sqlite(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    file.touch(0o600)
    for changes, tier, found in (
        ({}, SQLITE_FULL, {}),
        ({"synchronous": "EXTRA"}, SQLITE_FULL, {}),
        ({"synchronous": "NORMAL"}, SQLITE_NORMAL, {"durability": Level.YELLOW}),
        ({"journal_mode": "delete"}, SQLITE_FULL, {"journal mode": Level.RED}),
        ({"orphans": 1}, SQLITE_FULL, {"orphans": Level.RED}),
    ):
        examination = sqlite.examined(replace(SQLITE, **changes), file)
        said = bad(examination)
        said.pop("disk", None)  # That of whoever runs this may be full.
        assert (examination.tier, said) == (tier, found)


def test_the_disk_of_a_file() -> None:
    levels = [sqlite.disk(free).level for free in (2**31, 2**29, 2**20)]
    assert levels == [Level.GREEN, Level.YELLOW, Level.RED]


def test_which_filesystem_a_file_is_on() -> None:
    mounts = [
        "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
        "40 21 0:35 / /mnt/far\\040away rw shared:9 - nfs4 host:/x rw",
        "nonsense",
    ]
    assert sqlite.filesystem_of(Path("/mnt/far away/tasks.db"), mounts) == "nfs4"
    assert sqlite.filesystem_of(Path("/srv/tasks.db"), mounts) == "ext4"
    assert sqlite.filesystem_of(Path("/srv/tasks.db"), []) == ""


def test_a_file_that_is_damaged(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    file.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5_000)
    assert sqlite.sound(file).level is Level.RED
