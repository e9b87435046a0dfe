"""Token buckets: a burst, then a rate; for each key, and for all keys of a tenant together."""

from __future__ import annotations

import pytest

from fairlead.core.instant import SECOND
from fairlead.core.tenancy import Role
from fairlead.server.auth.rate_limits import Bucket, RateLimits
from fairlead.server.http.problems import Refusal
from fairlead.server.settings import ServerSettings
from tests.server.doors import Doors, websocket


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = Bucket(rate=2, burst=3, now=0)
    assert [bucket.take(0) for _ in range(3)] == [0.0] * 3
    assert bucket.take(0) == pytest.approx(0.5)
    assert bucket.take(SECOND // 2) == 0.0
    assert bucket.take(SECOND // 2) > 0
    assert [bucket.take(100 * SECOND) for _ in range(4)][-1] > 0, "it never holds more than its burst"


def test_a_wait_is_whole_seconds_and_at_least_one() -> None:
    limits = RateLimits(rate=10, burst=1)
    assert limits.take("k", None, None, 0) == 0
    assert limits.take("k", None, 0.01, 0) == 0, "another rate is another bucket"
    assert limits.take("k", None, 0.01, 0) == 100
    fast = RateLimits(rate=1000, burst=1)
    assert [fast.take("k", None, None, 0) for _ in range(1001)][-1] == 1


def test_keys_do_not_share_and_tenants_do() -> None:
    limits = RateLimits(rate=1, burst=2)
    assert [limits.take("a", None, None, 0) for _ in range(3)] == [0, 0, 1]
    assert limits.take("b", None, None, 0) == 0
    assert [limits.take(key, "acme", None, 0) for key in ("c", "d", "e")] == [0, 0, 1]
    assert limits.take("e", None, None, 0) == 0, "what the tenant was refused did not cost the key"
    assert limits.take("e", None, None, 0) == 0


def test_zero_is_no_limit() -> None:
    limits = RateLimits(rate=0, burst=1)
    assert {limits.take("a", "acme", None, 0) for _ in range(100)} == {0}
    assert len(limits) == 0
    held = RateLimits(rate=1, burst=1)
    assert {held.take("a", None, 0, 0) for _ in range(100)} == {0}


def test_memory_is_bounded_and_the_busy_are_kept() -> None:
    limits = RateLimits(rate=1, burst=1, most=3)
    for number in range(10):
        limits.take("busy", None, None, 0)
        limits.take(f"k{number}", None, None, 0)
    assert len(limits) == 3
    assert limits.take("busy", None, None, 0) == 1


async def test_who_asks_too_often_is_told_when_to_come_back() -> None:
    doors = Doors(ServerSettings(rate_limit=0.5, rate_burst=2))
    key = (await doors.key(Role.SUBMIT, name="eager")).text
    assert [(await doors.submit(key)).status for _ in range(2)] == [201, 201]
    refused = await doors.submit(key)
    assert (refused.status, refused.headers["retry-after"]) == (429, "2")
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json["type"].endswith("rate-limited") and "'eager'" in refused.json["detail"]
    assert refused.json["remedy"] == "try again in 2 s"
    doors.clock.advance(2 * SECOND)
    assert (await doors.submit(key)).status == 201


async def test_a_key_may_have_a_rate_of_its_own() -> None:
    doors = Doors(ServerSettings(rate_limit=1, rate_burst=1))
    free = (await doors.key(Role.SUBMIT, rate=0)).text
    assert {(await doors.submit(free)).status for _ in range(20)} == {201}


async def test_what_workers_say_is_never_refused_for_being_often() -> None:
    doors = Doors(ServerSettings(rate_limit=1, rate_burst=1))
    scope = websocket(authorization=f"Bearer {(await doors.key(Role.ADMIN)).text}")
    for _ in range(20):
        await doors.gate.admit({**scope, "method": "POST"}, Role.WORK)
    await doors.gate.admit({**scope, "method": "GET"}, Role.READ)
    with pytest.raises(Refusal):
        await doors.gate.admit({**scope, "method": "GET"}, Role.READ)


async def test_a_caller_who_needs_no_key_has_no_limit() -> None:
    doors = Doors(ServerSettings(rate_limit=1, rate_burst=1))
    assert {(await doors.submit()).status for _ in range(20)} == {201}
